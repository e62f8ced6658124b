-- Begin to watch, or go on: see that events are kept, and say what is due.
--
-- Answers {index of the newest event, milliseconds until the next lease ends
-- or -1, and the keys of those that ought to have ended}.
local WATCH_MS = 60000
local DUE_MAX = 64
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- The time, in microseconds, is more than any index that there was before.
if redis.call('EXISTS', 'hf:events') == 0 then
    redis.call('XADD', 'hf:events',
        string.format('%.0f-0', time[1] * 1000000 + time[2]), 'e', '')
end
for _, key in ipairs({'hf:events', 'hf:held', 'hf:ends'}) do
    redis.call('PEXPIRE', key, WATCH_MS)
end

local answer = {
    redis.call('XREVRANGE', 'hf:events', '+', '-', 'COUNT', 1)[1][1], -1
}
local due = redis.call('ZRANGEBYSCORE', 'hf:ends', '-inf',
    string.format('%.0f', now_ms - 1), 'LIMIT', 0, DUE_MAX)
local first = redis.call('ZRANGEBYSCORE', 'hf:ends',
    string.format('%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)

if first[2] then
    answer[2] = first[2] - now_ms
end
for _, key in ipairs(due) do
    answer[#answer + 1] = key
end
return answer
