-- CANCEL: end a claim, whatever its state. A waiter leaves the queue, a holder
-- releases the lock.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
-- ARGV  1 nonce  2 client id  3 the channel that announces a release, optional
-- Returns {HF_OK, the token of the claim, or "0" if the claim waited}; or
-- {HF_ENOTHELD, "0"} if there is no such claim.
local matches = {}

--@ record.lua
--@ patterns.lua
if redis.call('EXISTS', KEYS[5]) == 1 then
    matches = matching_patterns(KEYS[5], KEYS[6], key)
end
--@ events.lua
--@ liveness.lua
--@ queue.lua
--@ grant_next.lua

local nonce = ARGV[1]
local held = read_record()
-- A waiter can leave even if another client has changed the type of the key.
local text = type(held) == 'string' and held or ''
local token, holder = string.match(text, '^hf1 (%d+) (%x+) ')
local claim = parse_claim(redis.call('HGET', claims, nonce))

if holder == nonce then
    if ARGV[3] then
        redis.call('PUBLISH', ARGV[3], key)
    end
    end_lock(HF_EVENT_RELEASED, parse_record(held))
    return {HF_OK, token}
end
if not claim then
    return {HF_ENOTHELD, '0'}
end
remove_waiter(nonce .. ARGV[2])
record_event(HF_EVENT_WITHDRAWN, '0', claim.owner, 0)
publish()
return {HF_OK, '0'}
