-- Which keys are watched. A client that watches registers '=KEY' or '^PREFIX'
-- (watch.lua). `watched` is a hash of these, each with "INDEX MICROSECONDS": the
-- newest event, and the time, when it was registered. `prefixes` is a set of
-- the prefixes in it.

-- The registered patterns that match, as {pattern, microseconds}.
local function matching(watched, prefixes, key)
    local patterns, found = {'=' .. key}, {}

    for _, prefix in ipairs(redis.call('SMEMBERS', prefixes)) do
        if string.sub(key, 1, #prefix) == prefix then
            patterns[#patterns + 1] = '^' .. prefix
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
