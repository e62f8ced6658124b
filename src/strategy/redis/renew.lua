-- RENEW: extend the lease; never shorten it, never create one. It neither reads
-- nor writes the value, and works on a full server.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
-- ARGV  1 the first bytes of the holder's record: "hf1 TOKEN NONCE "
--       2 lease in ms
-- Returns HF_OK, HF_ENOTHELD, HF_ENOTOWNER or HF_EFORCED.
local TIMES_SIZE = 28 -- "FORCED HELD LEASE"
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] + TIMES_SIZE - 1)

if string.sub(head, 1, #ARGV[1]) ~= ARGV[1] then
    return redis.call('EXISTS', KEYS[1]) == 1 and HF_ENOTOWNER or HF_ENOTHELD
end

local forced, before, lease =
    string.match(head, '^(%d) (%d+) (%d+)$', #ARGV[1] + 1)
local left = redis.call('PTTL', KEYS[1])

if forced == '1' then
    return HF_EFORCED
end
if tonumber(ARGV[2]) >= left then
    redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- first: it needs no memory
    if before then
        -- `left` exceeds the lease if the server's clock was set back.
        before = math.max(before + lease - left, 0)
        redis.call('SETRANGE', KEYS[1], #ARGV[1] + 2,
            string.format('%015.0f %010.0f', before, ARGV[2]))
    end
    left = tonumber(ARGV[2])
end
if redis.call('EXISTS', KEYS[5]) == 1 then
    --@ patterns.lua
    local matches = matching_patterns(KEYS[5], KEYS[6], KEYS[1])

    if #matches > 0 then
        --@ record.lua
        --@ events.lua

        local lock = parse_record(redis.call('GET', key))

        record_event(HF_EVENT_RENEWED, lock.token, lock.owner, left)
        publish()
    end
end
return HF_OK
