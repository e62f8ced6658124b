-- LOCK, fast path: take a lock that has no holder, waiters or watchers. In any
-- other case the script changes nothing; it reports another holder, or returns
-- 1, and lock.lua decides.
--
-- KEYS  1 the lock  2 its queue  3 the token counter  4 watched patterns
--       5 sizes of watched prefixes
-- ARGV  1 what follows the token in the record, up to the value: " NONCE 0 ..."
--       2 lease in ms  3 value  4 the token to grant, optional
-- Returns the token; {HF_EBUSY, 0, milliseconds left of the holder's lease}; or
-- 1: call lock.lua.
local keys, call = KEYS, redis.call

if call('EXISTS', keys[1], keys[2], keys[4]) > 0 then
    local held = redis.pcall('GET', KEYS[1])
    local nonce = string.match(ARGV[1], '^ %x+ ')

    if type(held) == 'string' and not string.find(held, nonce, 1, true) then
        return {HF_EBUSY, 0, redis.call('PTTL', KEYS[1])}
    end
    --@ patterns.lua
    if held or redis.call('EXISTS', KEYS[2]) == 1
        or #matching_patterns(KEYS[4], KEYS[5], KEYS[1]) > 0 then
        return 1
    end
end

local token = ARGV[4]

if token then
    if tonumber(redis.call('GET', KEYS[3]) or 0) < tonumber(token) then
        redis.call('SET', KEYS[3], token)
    end
else
    token = call('INCR', keys[3])
    if token < 1e15 then
        return 1 -- the counter was lost
    end
    -- Like digits() of record.lua, which this script does not include.
    token = string.format('%d%07d', token / 1e7, token % 1e7)
end
call('SET', keys[1], 'hf1 ' .. token .. ARGV[1] .. ARGV[3], 'PX', ARGV[2])
return token
