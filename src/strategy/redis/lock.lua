-- Take the lock; or, where it is held, stand in line for it. Asked again, it
-- is also a sign of life of who stands there, and the look whether a message
-- was lost: the answer tells a grant again.
--
-- ARGV  1 nonce  2 lease  3 "1" to stand in line  4 owner  5 note  6 value
--       7 the client's channel  8 what it calls this instant  9 its beat
--       10 the token to grant it with, if any
-- Answers {HF_OK, token, 1 if this very call granted it}, or {HF_EBUSY, place,
-- milliseconds that the holder has left, or less than 0}.
local watched = redis.call('EXISTS', KEYS[5]) == 1

--@ record.lua
--@ events.lua
--@ line.lua

local nonce, lease = ARGV[1], ARGV[2]
local held = redis.call('GET', key)
local token, holder = string.match(held or '', '^hf1 (%d+) (%x+) ')

-- A token that is given comes from another server: the next one of this server
-- is larger.
local function take()
    local token = ARGV[10]

    if not token then
        token = next_token()
    elseif tonumber(redis.call('GET', KEYS[4]) or 0) < tonumber(token) then
        redis.call('SET', KEYS[4], token)
    end
    redis.call('SET', key,
        record(token, nonce, lease, ARGV[4], ARGV[5], ARGV[6]), 'PX', lease)
    return token
end

if mutant == 73 and not held then return {HF_OK, take(), 1} end
if holder == nonce then
    return {HF_OK, token, 0}
end

local stands, heard, last =
    unpack(redis.call('HMGET', standing, '+' .. nonce, 'heard', 'last'))
local place = stands and redis.call('ZRANK', line, nonce)

heard = tonumber(heard or 0)
if place then
    mark(nonce, ARGV[8], heard)
end
if not held then
    --@ pass.lua

    local expiry = tell_expiry()
    local granted, token = pass(nonce)

    expiry.freed = not granted
    if not granted then
        granted, token = nonce, take()
        tell(HF_EVENT_GRANTED, token, ARGV[4], tonumber(lease))
    end
    if granted == nonce then
        publish()
        return {HF_OK, token, 1}
    end
end
if not place and ARGV[3] == '1' then
    place = redis.call('ZCARD', line)
    if place >= HF_WAITERS_MAX then
        publish()
        return {HF_ELIMIT, 0, -1}
    end
    if place == 0 then
        heard = 0 -- of another line: this one is new
    end
    last = digits((last or 0) + 1)
    redis.call('ZADD', line, last, nonce)
    mark(nonce, ARGV[8], heard, 'last', last, nonce,
        lease .. ' ' .. ARGV[7] .. ' ' .. ARGV[9] .. ' ' ..
        #ARGV[4] .. ' ' .. #ARGV[5] .. '\n' .. ARGV[4] .. ARGV[5] .. ARGV[6])
    tell(HF_EVENT_QUEUED, '0', ARGV[4], 0)
end
publish()
if place and place > 0 then
    return {HF_EBUSY, place + 1, -1} -- who is before it looks when it ends
end
return {HF_EBUSY, place and 1 or 0, redis.call('PTTL', key)}
