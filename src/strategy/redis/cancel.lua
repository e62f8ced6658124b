-- End a claim, whatever has become of it: who waits leaves the line, who holds
-- gives the lock back.
--
-- ARGV  1 nonce  2 the channel where it is announced, if any
-- Answers {HF_OK, the token it held with, or "0"}.
--@ record.lua
--@ line.lua

local nonce = ARGV[1]
local held = redis.call('GET', key)
local lock = held and parse(held)

if lock and lock.nonce == nonce then
    redis.call('DEL', key)
    if ARGV[2] then
        redis.call('PUBLISH', ARGV[2], key)
    end
    hand_over(HF_EVENT_RELEASED, lock.token, lock.owner)
    return {HF_OK, lock.token}
end

local claim = redis.call('HGET', standing, nonce)

if not claim then
    return {HF_ENOTHELD, '0'}
end

leave(nonce)
tell(HF_EVENT_WITHDRAWN, '0', owner_of(claim), 0)
publish()
return {HF_OK, '0'}
