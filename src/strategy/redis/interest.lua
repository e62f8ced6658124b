-- Which keys are watched. A client that watches registers '=KEY' or '^PREFIX'
-- (watch.lua). `watched` is a hash of these, each with "INDEX MICROSECONDS": the
-- newest event, and the time, when it was registered. `prefixes` is a hash of
-- the sizes of the prefixes in it, with the number of each: few, where the
-- prefixes may be many.

-- The registered patterns that match, as {pattern, microseconds}.
local function matching(watched, prefixes, key)
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
    if mutant == 162 then found = {{'=' .. key, 0}} end
    return found
end
