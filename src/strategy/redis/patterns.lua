-- Included: which keys are watched. Uses neither KEYS nor ARGV: matching_patterns() has
-- its keys as parameters.
--
-- A client that watches registers '=KEY' or '^PREFIX' (watch.lua). `watched` is
-- a hash of these patterns. The value of each is "INDEX MICROSECONDS": the
-- newest event and the server's time when it was registered. `prefixes` is a
-- hash of the sizes of the prefixes among them, with the number of each: the
-- sizes are few, even where the prefixes are many.

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
            found[#found + 1] = {pattern, tonumber(string.match(since[i], '%d+$'))}
        end
    end
    return found
end
