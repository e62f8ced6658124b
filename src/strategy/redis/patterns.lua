-- Included: which keys are watched. Uses neither KEYS nor ARGV;
-- matching_patterns() takes its keys as parameters.
--
-- A client registers '=KEY' or '^PREFIX' for each of its watches (watch.lua).
-- `watched` is a hash of these patterns. The value of each is "INDEX
-- MICROSECONDS": the newest event and the server's time at the registration.
-- `prefixes` is a hash of the sizes of the registered prefixes, with the number
-- of prefixes of each size. There are few sizes, even if there are many
-- prefixes, so few patterns have to be looked up for a key.

-- The registered patterns that match, as {pattern, microseconds}.
local function matching_patterns(watched, prefixes, key)
    local patterns, found = {'=' .. key}, {}

    for _, size in ipairs(redis.call('HKEYS', prefixes)) do
        if tonumber(size) <= #key then
            patterns[#patterns + 1] = '^' .. string.sub(key, 1, size)
        end
    end

    local since = redis.call('HMGET', watched, unpack(patterns))

    for i, pattern in ipairs(patterns) do
        if since[i] then
            found[#found + 1] =
                {pattern, tonumber(string.match(since[i], '%d+$'))}
        end
    end
    return found
end
