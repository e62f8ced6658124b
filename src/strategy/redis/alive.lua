-- A client with waiters shows that it lives by one key for all of them, which
-- has the name of its channel: "SENT BEAT STEADY". SENT is what the client calls
-- the instant at which it sent the last sign of life, BEAT how often it sends
-- one, in milliseconds, and STEADY since when, by the server's clock, there was
-- no gap in them. The key expires ALIVE_MS after the last.

local ALIVE_MS = 30000
local GAP_BEATS = 3

local function show_alive(channel, sent, beat, now_ms)
    local steady = string.match(redis.call('GET', channel) or '', '%d+$')
    local silence = ALIVE_MS - redis.call('PTTL', channel)

    if not steady or silence > GAP_BEATS * beat then
        steady = string.format('%.0f', now_ms)
    end
    redis.call('PEXPIRE', channel, ALIVE_MS) -- works on a full server
    redis.call('SET', channel, sent .. ' ' .. beat .. ' ' .. steady,
        'PX', ALIVE_MS)
end
