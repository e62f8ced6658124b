-- LIST: one step of SCAN over the strings, filtered for locks. Only the first
-- bytes of each string are read.
--
-- KEYS  none: they are not known in advance
-- ARGV  1 cursor  2 pattern  3 how many keys to visit
-- Returns {the next cursor, keys...}.
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3],
    'TYPE', 'string')
local answer = {found[1]}

for _, key in ipairs(found[2]) do
    -- Skip keys that the user may not read, or that changed their type.
    if redis.pcall('GETRANGE', key, 0, 3) == 'hf1 ' then
        answer[#answer + 1] = key
    end
end
return answer
