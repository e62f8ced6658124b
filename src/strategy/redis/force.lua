-- FORCE: break a lock. Either mark it, so that it cannot be renewed, or end it
-- now. A FORCE that is repeated because its reply was lost changes nothing.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
--       10 the last FORCE: "CLIENT.SEQUENCE TOKEN"
-- ARGV  1 token  2 "1" to end it now, "0" to mark it  3 the caller, as
--       CLIENT.SEQUENCE  4 the channel that announces a release, optional
-- Returns HF_OK, HF_ENOTHELD or HF_ENOTOWNER.
local matches = {}

--@ record.lua
--@ patterns.lua
if redis.call('EXISTS', KEYS[5]) == 1 then
    matches = matching_patterns(KEYS[5], KEYS[6], key)
end
--@ events.lua
--@ liveness.lua
--@ queue.lua
--@ grant_next.lua

local REMEMBER_MS = 60000
local held = read_record()

if type(held) == 'table' then
    return held
end

local lock = held and parse_record(held)
local broken = ARGV[3] .. ' ' .. ARGV[1]

if redis.call('GET', KEYS[10]) == broken then
    return HF_OK
end
if not held then
    return HF_ENOTHELD
end
if not lock or lock.token ~= ARGV[1] then
    return HF_ENOTOWNER
end
extend_queue()
if ARGV[2] == '1' then
    local left = redis.call('PTTL', key)

    redis.call('SET', KEYS[10], broken, 'PX', math.max(left, REMEMBER_MS))
    if ARGV[4] then
        redis.call('PUBLISH', ARGV[4], key)
    end
    end_lock(HF_EVENT_FORCED, lock)
elseif lock.forced == '0' then
    redis.call('SETRANGE', key,
        #('hf1 ' .. lock.token .. ' ' .. lock.nonce .. ' '), '1')
    record_event(HF_EVENT_FORCED, lock.token, lock.owner, 0)
    publish()
end
-- Holders subscribe to this channel, and renew at once if the token is theirs.
-- If the user may not publish there, the holder finds out at its next renewal.
redis.pcall('PUBLISH', string.sub(KEYS[4], 1, -6) .. 'forced', lock.token)
return HF_OK
