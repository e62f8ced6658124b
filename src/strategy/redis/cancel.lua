-- End a claim, whatever has become of it: who waits leaves the line, who holds
-- gives the lock back.
--
-- ARGV  1 nonce  2 the channel where it is announced, if any
-- Answers {HF_OK, the token it held with, or "0"}.
local nonce = ARGV[1]
local held = redis.call('GET', KEYS[1])
local token, holder = string.match(held or '', '^hf1 (%d+) (%x+) ')
local claim = redis.call('HGET', KEYS[3], nonce)
local watched = redis.call('EXISTS', KEYS[5]) == 1

if holder ~= nonce and not claim then
    return {HF_ENOTHELD, '0'}
end
if holder == nonce then
    if ARGV[2] then
        redis.call('PUBLISH', ARGV[2], KEYS[1])
    end
    if not watched and redis.call('EXISTS', KEYS[2]) == 0 then
        redis.call('DEL', KEYS[1])
        return {HF_OK, token}
    end
elseif not watched then
    redis.call('ZREM', KEYS[2], nonce)
    redis.call('HDEL', KEYS[3], nonce, '+' .. nonce)
    return {HF_OK, '0'}
end

--@ record.lua
--@ events.lua
--@ line.lua
--@ pass.lua

if holder == nonce then
    hand_over(HF_EVENT_RELEASED, held)
    return {HF_OK, token}
end
leave(nonce)
tell(HF_EVENT_WITHDRAWN, '0', parse_claim(claim).owner, 0)
publish()
return {HF_OK, '0'}
