-- Extend the lease, never shorten it, never create one.
--
-- ARGV  1 how the holder's record begins: "hf1 TOKEN NONCE "  2 lease
--@ record.lua

local held = redis.call('GET', KEYS[1])

if not held then
    return {HF_ENOTHELD}
end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
    return {HF_ENOTOWNER}
end
if string.sub(held, #ARGV[1] + 1, #ARGV[1] + 1) == '1' then
    return {HF_EFORCED}
end
if tonumber(ARGV[2]) >= redis.call('PTTL', KEYS[1]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if redis.call('EXISTS', KEYS[5]) == 1 then
    --@ line.lua

    local lock = parse(held)

    tell(HF_EVENT_RENEWED, lock.token, lock.owner, redis.call('PTTL', key))
    publish()
end
return {HF_OK}
