-- Extend the lease, never shorten it, never create one.
--
-- ARGV  1 how the holder's record begins: "hf1 TOKEN NONCE "  2 lease
local held = redis.call('GET', KEYS[1])

if not held then
    return HF_ENOTHELD
end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
    return HF_ENOTOWNER
end

local forced, before, lease, rest =
    string.match(held, '^(%d) (%d+) (%d+)()', #ARGV[1] + 1)
local left = redis.call('PTTL', KEYS[1])

if forced == '1' then
    return HF_EFORCED
end
if tonumber(ARGV[2]) >= left then
    redis.call('SET', KEYS[1], ARGV[1] .. '0 ' ..
        string.format('%.0f', before + lease - left) .. ' ' .. ARGV[2] ..
        string.sub(held, rest), 'PX', ARGV[2])
    left = tonumber(ARGV[2])
end
if redis.call('EXISTS', KEYS[5]) == 1 then
    local watched = true

    --@ record.lua
    --@ events.lua

    local lock = parse(held)

    tell(HF_EVENT_RENEWED, lock.token, lock.owner, left)
    publish()
end
return HF_OK
