-- Raise the counter of tokens to the time in microseconds: what was granted
-- and lost with a crash, or with a master, is not granted again.
--
-- KEYS  1 the last token, and all else that locks share: who may not touch
--       those hears of it now, and not in the middle of a step
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- A full server refuses a script's first write if that may need memory, and must
-- still be connected to, to give locks back. This one needs none.
redis.call('PERSIST', KEYS[1])
if tonumber(redis.call('GET', KEYS[1]) or 0) < now then
    redis.call('SET', KEYS[1], string.format('%.0f', now))
end
return 'OK'
