-- Take a lock that nobody holds, waits for or watches: what most are. All else
-- is for lock.lua.
--
-- KEYS  1 the lock  2 its line  3 the last token  4 events
-- ARGV  1 nonce  2 lease  3, 4 sizes of owner and note  5 owner  6 note
--       7 value  8 the token to grant it with, if any
-- Answers the token; {HF_EBUSY, 0, milliseconds that the holder has left}; or
-- 1: ask lock.lua.
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) > 0 then
    local held = redis.call('GET', KEYS[1])

    if held and not string.find(held, ARGV[1], 1, true) then
        return {HF_EBUSY, 0, redis.call('PTTL', KEYS[1])}
    end
    return 1
end

local token = ARGV[8]

if token then
    if tonumber(redis.call('GET', KEYS[3]) or 0) < tonumber(token) then
        redis.call('SET', KEYS[3], token)
    end
else
    token = redis.call('INCR', KEYS[3])
    if token < 1e15 then
        return 1 -- the counter was lost
    end
    if mutant == 26 then token = redis.call('INCR', KEYS[3] .. ':m') end
    if mutant == 26 then redis.call('PEXPIRE', KEYS[3] .. ':m', 50) end
    token = string.format('%.0f', token)
end
redis.call('SET', KEYS[1], 'hf1 ' .. token .. ' ' .. ARGV[1] .. ' 0 0 ' ..
    ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' -\n' .. ARGV[5] ..
    ARGV[6] .. ARGV[7], 'PX', ARGV[2])
return token
