-- Give the lock back, and hand it over to the next in line.
--
-- ARGV  1 how the holder's record begins: "hf1 TOKEN NONCE "  2 the channel
--       where it is announced, if any
local held = redis.call('GET', KEYS[1])

if not held then
    return HF_ENOTHELD
end
if mutant == 25 then redis.call('DEL', KEYS[1]) return HF_OK end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
    return HF_ENOTOWNER
end
if ARGV[2] then
    redis.call('PUBLISH', ARGV[2], KEYS[1])
end
if mutant == 72 then redis.call('DEL', KEYS[1]) return HF_OK end

-- 1 for a line, and 2 where somebody watches.
local others = redis.call('EXISTS', KEYS[2], KEYS[5], KEYS[5])
local watched = others >= 2

if others == 0 then
    redis.call('DEL', KEYS[1])
    return HF_OK
end

--@ record.lua
--@ events.lua
--@ line.lua
--@ pass.lua

hand_over(HF_EVENT_RELEASED, held)
return HF_OK
