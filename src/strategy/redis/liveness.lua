-- Included: signs of life. Uses neither KEYS nor ARGV.
--
-- A client with waiters proves that it is alive by one key for all of them,
-- which has the name of its channel: "SENT BEAT STEADY". SENT is the client's
-- time when it sent the last sign of life, BEAT the interval between two of
-- them in milliseconds, and STEADY the server's time since when they have come
-- without a gap. The key expires LIVENESS_MS after the last one.

local LIVENESS_MS = 30000
local GAP_HEARTBEATS = 3

local function record_heartbeat(channel, sent, beat, now_ms)
    local steady = string.match(redis.call('GET', channel) or '', '%d+$')
    local silence = LIVENESS_MS - redis.call('PTTL', channel)

    if not steady or silence > GAP_HEARTBEATS * beat then
        steady = string.format('%.0f', now_ms)
    end
    redis.call('PEXPIRE', channel, LIVENESS_MS) -- works on a full server
    redis.call('SET', channel, sent .. ' ' .. beat .. ' ' .. steady,
        'PX', LIVENESS_MS)
end
