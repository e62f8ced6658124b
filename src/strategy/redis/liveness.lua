-- Included: heartbeats. Uses neither KEYS nor ARGV.
--
-- A client with waiters proves that it is alive by its heartbeats, which are
-- kept in one key for all of its waiters. The key has the name of the client's
-- channel, and the value "SENT INTERVAL STEADY". SENT is the client's time when
-- it sent the last heartbeat, INTERVAL the milliseconds between two heartbeats,
-- and STEADY the server's time since when they have arrived without a gap. The
-- key expires LIVENESS_MS after the last heartbeat.

local LIVENESS_MS = 30000
local GAP_HEARTBEATS = 3 -- a longer silence, in intervals, is a gap

local function record_heartbeat(channel, sent, interval, now_ms)
    local steady = string.match(redis.call('GET', channel) or '', '%d+$')
    local silence = LIVENESS_MS - redis.call('PTTL', channel)

    if not steady or silence > GAP_HEARTBEATS * interval then
        steady = string.format('%.0f', now_ms)
    end
    redis.call('PEXPIRE', channel, LIVENESS_MS) -- works on a full server
    redis.call('SET', channel, sent .. ' ' .. interval .. ' ' .. steady,
        'PX', LIVENESS_MS)
end
