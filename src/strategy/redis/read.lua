-- Who holds the key. Where somebody watches, what is found is noted for them:
-- a holder that they did not know of, or the end of one that they did.
--
-- Answers {record or nil, milliseconds left, milliseconds held, waiters, index
-- of the newest event, or "0"}.
local watched = redis.call('EXISTS', KEYS[5]) == 1

--@ record.lua
--@ events.lua

local held = redis.call('GET', key)
local left = redis.call('PTTL', key)
local lock = held and parse(held)
local index = '0'

if watched and lock and redis.call('HEXISTS', KEYS[6], key) == 0 then
    note_held(lock.token, lock.owner, left)
elseif watched and lock then
    redis.call('ZADD', KEYS[7], digits(now_ms + left), key)
elseif watched and not held then
    tell_expiry().freed = redis.call('EXISTS', line) == 0
    publish()
end
if watched then
    index = redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1)[1][1]
end
return {held, left, lock and digits(lock.held + lock.lease - left) or '0',
    redis.call('ZCARD', line), index}
