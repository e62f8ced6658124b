-- Raise the counter of tokens to the time in microseconds: what was granted
-- and lost with a crash, or with a master, is not granted again.
--
-- A server without memory refuses to SET, and must still be connected to, to
-- give locks back. DEL it allows, and a counter that is lost begins at the time,
-- too, once there is a grant (next_token() in record.lua).
--
-- KEYS  1 the last token, and all else that locks share: who may not touch
--       those hears of it now, and not in the middle of a step
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if tonumber(redis.call('GET', KEYS[1]) or 0) < now then
    local answer = redis.pcall('SET', KEYS[1], string.format('%.0f', now))

    if answer.err and string.find(answer.err, 'OOM', 1, true) then
        redis.call('DEL', KEYS[1])
    elseif answer.err then
        return answer
    end
end
return 'OK'
