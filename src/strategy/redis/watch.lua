-- Begin to watch, or go on: see that events are kept, and say what is due.
--
-- KEYS  1 the events  2 what is held  3 when that ends
-- Answers {index of the newest event, milliseconds until the next lease ends
-- or -1, and the keys of those that ought to have ended}.
local WATCH_MS = 60000
local DUE_MAX = 64
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- The time, in microseconds, is more than any index that there was before.
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('XADD', KEYS[1],
        string.format('%.0f-0', time[1] * 1000000 + time[2]), 'e', '')
end
for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, WATCH_MS)
end

local answer = {
    redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][1], -1
}
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf',
    string.format('%.0f', now_ms - 1), 'LIMIT', 0, DUE_MAX)
local first = redis.call('ZRANGEBYSCORE', KEYS[3],
    string.format('%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)

if first[2] then
    answer[2] = first[2] - now_ms
end
for _, key in ipairs(due) do
    answer[#answer + 1] = key
end
return answer
