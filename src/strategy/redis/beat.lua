-- A sign of life of a client that waits for locks.
--
-- KEYS  1 the key with the name of its channel
-- ARGV  1 what the client calls this instant  2 its beat
local time = redis.call('TIME')

--@ alive.lua

show_alive(KEYS[1], ARGV[1], ARGV[2],
    time[1] * 1000 + math.floor(time[2] / 1000))
return HF_OK
