-- UNLOCK: release the lock, and hand it over to the next waiter.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
--       10 the last FORCE: "CLIENT.SEQUENCE TOKEN"
-- ARGV  1 the first bytes of the holder's record: "hf1 TOKEN NONCE "
--       2 the channel that announces a release, optional
-- Returns HF_OK, HF_ENOTHELD or HF_ENOTOWNER; or {error, token} if it is
-- certain that no copy of this UNLOCK has released the lock: another claim
-- holds it with the same token, or it was forced.
local keys, call, mine = KEYS, redis.call, ARGV[1]

-- The first bytes are enough to compare. Redis parses '63' faster than it
-- converts the Lua number 63.
if string.sub(call('GETRANGE', keys[1], '0', '63'), 1, #mine) ~= mine then
    local held = redis.call('GET', KEYS[1])
    local err = held and HF_ENOTOWNER or HF_ENOTHELD
    local token = string.match(ARGV[1], '%d+', 4)
    local broken = redis.call('GET', KEYS[10]) or ''

    if string.match(held or '', '^hf1 (%d+) ') == token
        or string.match(broken, ' (%d+)$') == token then
        return {err, token}
    end
    return err
end
if ARGV[2] then
    redis.call('PUBLISH', ARGV[2], KEYS[1])
end

-- 1 if there is a queue, plus 2 if anything is watched.
local others = call('EXISTS', keys[2], keys[5], keys[5])

if others == 0 then
    call('DEL', keys[1])
    return HF_OK
end

--@ patterns.lua
local matches = others >= 2
    and matching_patterns(KEYS[5], KEYS[6], KEYS[1]) or {}

if others == 2 and #matches == 0 then
    redis.call('DEL', KEYS[1])
    return HF_OK
end

--@ record.lua
--@ events.lua
--@ liveness.lua
--@ queue.lua
--@ grant_next.lua

end_lock(HF_EVENT_RELEASED, watched and parse_record(read_record()) or {})
return HF_OK
