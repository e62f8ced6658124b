-- UPDATE: replace the value. A repeat, sent because the reply was lost, changes
-- nothing: the record lists the updates that may still be repeated, each as
-- CLIENT.SEQUENCE.
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
-- ARGV  1 the first bytes of the holder's record: "hf1 TOKEN NONCE "  2 value
--       3 "1" to compare, else "0"  4 the expected value  5 client id
--       6 sequence  7 the lowest sequence whose reply the client still awaits
-- Returns HF_OK, HF_ENOTHELD, HF_ENOTOWNER or HF_EMISMATCH.
local matches = {}

--@ record.lua
--@ patterns.lua
if redis.call('EXISTS', KEYS[5]) == 1 then
    matches = matching_patterns(KEYS[5], KEYS[6], key)
end
--@ events.lua

local UPDATES_KEPT = 32
local held = read_record()

if type(held) == 'table' then
    return held
end
if not held then
    return HF_ENOTHELD
end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
    return HF_ENOTOWNER
end

local lock = parse_record(held)
local kept = {ARGV[5] .. '.' .. ARGV[6]}

for client, sequence in string.gmatch(lock.updates, '(%x+)%.(%d+)') do
    if client == ARGV[5] and sequence == ARGV[6] then
        return HF_OK
    end
    if #kept < UPDATES_KEPT
        and (client ~= ARGV[5] or tonumber(sequence) >= tonumber(ARGV[7])) then
        kept[#kept + 1] = client .. '.' .. sequence
    end
end
if ARGV[3] == '1' and string.sub(held, lock.value_at) ~= ARGV[4] then
    return HF_EMISMATCH
end
redis.call('SET', key, 'hf1 ' .. lock.token .. ' ' .. lock.nonce .. ' ' ..
    lock.forced .. ' ' .. lock.held .. ' ' .. lock.lease .. ' ' ..
    #lock.owner .. ' ' .. lock.note_size .. ' ' .. table.concat(kept, ',') ..
    '\n' .. lock.owner .. string.sub(held, lock.note_at, lock.value_at - 1) ..
    ARGV[2], 'KEEPTTL')
record_event(HF_EVENT_UPDATED, lock.token, lock.owner, 0)
publish()
return HF_OK
