-- LIST: one step of SCAN over the strings, and which of them are locks. Of the
-- others only the first bytes are read.
--
-- KEYS  none: it is not known which keys it finds
-- ARGV  1 cursor  2 pattern  3 how many keys to visit
-- Returns {the next cursor, keys...}.
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3],
    'TYPE', 'string')
local answer = {found[1]}

for _, key in ipairs(found[2]) do
    -- A key that the user may not read, or that is no string any more, is none.
    if redis.pcall('GETRANGE', key, 0, 3) == 'hf1 ' then
        answer[#answer + 1] = key
    end
end
return answer
