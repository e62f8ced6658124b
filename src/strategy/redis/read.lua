-- READ: query who holds the key. If the key is watched, the result is recorded
-- for watchers: a holder that they did not know of, or the expiry of one that
-- they did.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
-- ARGV  none
-- Returns {record or nil, milliseconds left, milliseconds held, waiters, index
-- of the newest event, or "0" if the key is not watched}.
local matches = {}

--@ record.lua
--@ patterns.lua
if redis.call('EXISTS', KEYS[5]) == 1 then
    matches = matching_patterns(KEYS[5], KEYS[6], key)
    redis.call('ZREM', KEYS[9], #matches == 0 and key or '')
end
--@ events.lua

local held = read_record()
local foreign = type(held) == 'table'
local left = redis.call('PTTL', key)
local lock = held and not foreign and parse_record(held)
local index = '0'

if watched and lock and known_holder() ~= lock.token then
    note_holder(lock.token, lock.owner, left)
elseif watched and lock then
    redis.call('ZADD', KEYS[9], digits(now_ms + left), key)
elseif watched then
    -- If the key is not free, a plain Redis client has set it.
    record_expiry().freed = not held and redis.call('EXISTS', queue) == 0
    publish()
end
if foreign then
    return held
end
if watched then
    local last = redis.call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', 1)[1]

    index = last and last[1] or '0'
end
return {held, left,
    lock and digits(math.max(lock.held + lock.lease - left, 0)) or '0',
    redis.call('ZCARD', queue), index}
