-- WATCH: register patterns or renew their registrations, keep the event stream
-- alive, and return the keys whose leases are due.
--
-- KEYS  1 watched patterns  2 sizes of watched prefixes  3 when each pattern
--       expires  4 the event stream  5 the holders that watchers know of
--       6 when their leases expire
-- ARGV  the patterns of this client, any number: '=KEY' or '^PREFIX'
-- Returns {index of the newest event; milliseconds until the next lease
-- expires, or -1; for each ARGV the "INDEX MICROSECONDS" of its registration,
-- or "0" if there are too many sizes of prefixes; and the keys whose leases are
-- due}.
local WATCH_MS = 10000  -- registrations expire, unless they are renewed
local EVENTS_MS = 60000 -- the stream and the known holders expire likewise
local DUE_MAX = 64      -- keys in one reply
local PURGE_MAX = 100   -- expired patterns removed by one call
local SIZES_MAX = 64    -- sizes of prefixes; each slows down every LOCK
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)

local function digits(number)
    return string.format('%.0f', number)
end

-- First, because it needs no memory: see record.lua.
for i, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, i <= 3 and WATCH_MS or EVENTS_MS)
end

-- A new stream starts at the time in microseconds, which is larger than any
-- index of an earlier stream.
if redis.call('EXISTS', KEYS[4]) == 0 then
    redis.call('XADD', KEYS[4], digits(now) .. '-0', 'e', '')
    redis.call('PEXPIRE', KEYS[4], EVENTS_MS)
end

for _, pattern in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf',
    digits(now_ms), 'LIMIT', 0, PURGE_MAX)) do
    local was = redis.call('HDEL', KEYS[1], pattern) == 1

    redis.call('ZREM', KEYS[3], pattern)
    if was and string.sub(pattern, 1, 1) == '^'
        and redis.call('HINCRBY', KEYS[2], #pattern - 1, -1) <= 0 then
        redis.call('HDEL', KEYS[2], #pattern - 1)
    end
end

local index = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1][1]
local marked = false

-- Earlier events of this pattern were not recorded. An empty event marks that,
-- so that a watcher which continues learns that it has missed some.
local function register(pattern)
    if string.sub(pattern, 1, 1) == '^' then
        if redis.call('HEXISTS', KEYS[2], #pattern - 1) == 0
            and redis.call('HLEN', KEYS[2]) >= SIZES_MAX then
            return '0'
        end
        redis.call('HINCRBY', KEYS[2], #pattern - 1, 1)
    end
    if not marked then
        index = digits(string.match(index, '^%d+') + 1) .. '-0'
        redis.call('XADD', KEYS[4], index, 'e', '')
        marked = true
    end
    local since = string.match(index, '^%d+') .. ' ' .. digits(now)

    redis.call('HSET', KEYS[1], pattern, since)
    return since
end

local since = {}

for i, pattern in ipairs(ARGV) do
    since[i] = redis.call('HGET', KEYS[1], pattern) or register(pattern)
    if since[i] ~= '0' then
        redis.call('ZADD', KEYS[3], digits(now_ms + WATCH_MS), pattern)
    end
end
for i = 1, 3 do
    redis.call('PEXPIRE', KEYS[i], WATCH_MS)
end

local answer = {index, -1}
local due = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', digits(now_ms - 1),
    'LIMIT', 0, DUE_MAX)
local first = redis.call('ZRANGEBYSCORE', KEYS[6], digits(now_ms), '+inf',
    'WITHSCORES', 'LIMIT', 0, 1)

if first[2] then
    answer[2] = first[2] - now_ms
end
for _, list in ipairs({since, due}) do
    for _, text in ipairs(list) do
        answer[#answer + 1] = text
    end
end
return answer
