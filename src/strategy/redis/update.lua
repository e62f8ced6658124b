-- Replace the value. Asked a second time, because the answer was lost, it is
-- done once: the record keeps who updated it, as CLIENT.SEQUENCE, as long as
-- the client may ask again.
--
-- ARGV  1 how the holder's record begins: "hf1 TOKEN NONCE "  2 value
--       3 "1" to compare  4 with this value
--       5 client  6 sequence  7 lowest sequence that it still awaits
local matches = {}

--@ record.lua
--@ interest.lua
if redis.call('EXISTS', KEYS[5]) == 1 then
    matches = matching(KEYS[5], KEYS[6], key)
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

local lock = parse(held)
local kept = {ARGV[5] .. '.' .. ARGV[6]}
if mutant == 76 then lock.updates = '' end

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
tell(HF_EVENT_UPDATED, lock.token, lock.owner, 0)
publish()
return HF_OK
