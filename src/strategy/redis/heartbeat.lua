-- The heartbeat of a client that has waiters.
--
-- KEYS  1 the heartbeat, which has the name of the client's channel
-- ARGV  1 the client's time  2 milliseconds until its next heartbeat
-- Returns HF_OK.
local time = redis.call('TIME')

--@ liveness.lua

record_heartbeat(KEYS[1], ARGV[1], ARGV[2],
    time[1] * 1000 + math.floor(time[2] / 1000))
return HF_OK
