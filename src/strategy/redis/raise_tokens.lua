-- Raise the token counter to the server's time in microseconds, so that a token
-- which was granted before a crash or a failover, and forgotten, is not granted
-- again.
--
-- KEYS  1 the token counter, and after it every other key that locks share: so
--       a user who may not access one of them is refused when it connects, and
--       not in the middle of a script
-- ARGV  none
-- Returns "OK".
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- A full server refuses a script whose first write may need memory, but clients
-- must still be able to connect, to release locks. PERSIST needs none.
redis.call('PERSIST', KEYS[1])
if tonumber(redis.call('GET', KEYS[1]) or 0) < now then
    redis.call('SET', KEYS[1], string.format('%.0f', now))
end
return 'OK'
