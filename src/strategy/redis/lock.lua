-- LOCK: take the lock or, if it is held, join its queue. A waiter sends it
-- again from time to time, in case the message of its grant was lost: the reply
-- repeats the grant.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
-- ARGV  1 nonce  2 lease in ms  3 "0" to ask once, "1" to join the queue, "2"
--       if the claim is in the queue  4 owner  5 note  6 value; the last three
--       are empty for "2"  7 client id  8 the client's time  9 milliseconds
--       until its next heartbeat  10 the token to grant, optional
-- Returns {HF_OK, token, 1 if this call granted it, else 0}; {HF_EBUSY,
-- position or 0, milliseconds after which to ask again, -1 if the holder has no
-- expiry, -2 if unknown}; {HF_ELIMIT, 0, -2}; or 1: the claim is not in the
-- queue, ask with "1".
local matches = {}

--@ record.lua
--@ patterns.lua
if redis.call('EXISTS', KEYS[5]) == 1 then
    matches = matching_patterns(KEYS[5], KEYS[6], key)
end
--@ events.lua
--@ liveness.lua
--@ queue.lua

local nonce, lease, mode = ARGV[1], ARGV[2], ARGV[3]
local waiter, channel = nonce .. ARGV[7], channels .. ARGV[7]
local held = read_record()

if type(held) == 'table' then
    return held
end

local token, holder = string.match(held or '', '^hf1 (%d+) (%x+) ')
local ask_again_ms

-- ARGV[10] is a token of another server (redlock:). Raise the counter to it, so
-- that the next token of this server is larger.
local function try_lock()
    local token = ARGV[10]

    if not token then
        token = next_token()
    elseif tonumber(redis.call('GET', KEYS[4]) or 0) < tonumber(token) then
        redis.call('SET', KEYS[4], token)
    end
    redis.call('SET', key,
        format_record(token, nonce, lease, ARGV[4], ARGV[5], ARGV[6]),
        'PX', lease)
    return token
end

if holder == nonce then
    return {HF_OK, token, 0}
end

local position = mode ~= '0' and redis.call('ZRANK', queue, waiter)

if position then
    extend_queue()
    record_heartbeat(channel, ARGV[8], ARGV[9], now_ms)
elseif mode == '2' then
    return 1
end
if not held then
    --@ grant_next.lua

    local expiry = record_expiry()
    local granted, detail, all_silent = grant_next(waiter)

    if all_silent and not position
        and find_client(ARGV[7]).steady_ms > detail then
        detail = nil
    end
    expiry.freed = not granted
    if not granted and not detail then
        if mode == '2' then -- its claim has expired
            publish()
            return 1
        end
        granted, detail = nonce, try_lock()
        record_event(HF_EVENT_GRANTED, detail, ARGV[4], tonumber(lease))
    end
    if granted == nonce then
        publish()
        return {HF_OK, detail, 1}
    end
    ask_again_ms = not granted and detail
end
if not position and mode == '1' then
    position = redis.call('ZCARD', queue)
    if position >= HF_WAITERS_MAX then
        publish()
        return {HF_ELIMIT, 0, -2}
    end
    redis.call('ZADD', queue, redis.call('HINCRBY', claims, 'last', 1), waiter)
    redis.call('HSET', claims, nonce, lease .. ' ' .. #ARGV[4] .. ' ' ..
        #ARGV[5] .. '\n' .. ARGV[4] .. ARGV[5] .. ARGV[6])
    extend_queue()
    record_heartbeat(channel, ARGV[8], ARGV[9], now_ms)
    record_event(HF_EVENT_QUEUED, '0', ARGV[4], 0)
end
publish()
if not ask_again_ms and (not position or position == 0) then
    ask_again_ms = redis.call('PTTL', key)
end
return {HF_EBUSY, position and position + 1 or 0, ask_again_ms or -2}
