-- A batch of LOCKs and UNLOCKs of one client, executed in order. Each takes the
-- fast path of lock_fast.lua or unlock.lua: the key has no waiters and is not
-- watched. Most of what a script costs the server does not depend on the
-- number of commands in it.
--
-- KEYS  for N commands: 1 to N the locks, N+1 to 2N their queues; then the
--       token counter, watched patterns, sizes of watched prefixes
-- ARGV  three for each command: LOCK has what follows the token in the record
--       up to the value, the lease in ms, and the value; UNLOCK has the first
--       bytes of the holder's record, "hf1 TOKEN NONCE ", and two empty strings
-- Returns for each command what lock_fast.lua or unlock.lua returns; or 1 if
-- nothing was done, and the command must be sent alone.
--@ patterns.lua

local count, answers = (#KEYS - 3) / 2, {}
local counter, watched, prefixes = unpack(KEYS, #KEYS - 2)
local others =
    redis.call('EXISTS', watched, unpack(KEYS, count + 1, 2 * count)) > 0
local locks, token = 0, 0

for i = 1, count do
    if ARGV[3 * i - 1] ~= '' then
        locks = locks + 1
    end
end

-- A full server refuses INCRBY, and must still execute the UNLOCKs.
if locks > 0 then
    token = redis.pcall('INCRBY', counter, locks)
    token = type(token) == 'number' and token - locks or 0
end

local function try_lock(key, head, lease, value)
    if token < 1e15 then
        return 1 -- INCRBY was refused, or the counter was lost
    end
    token = token + 1

    local digits = string.format('%d%07d', token / 1e7, token % 1e7)
    local record = 'hf1 ' .. digits .. head .. value

    if redis.call('SET', key, record, 'NX', 'PX', lease) then
        return digits
    end

    local held = redis.pcall('GET', key)
    local nonce = string.match(head, '^ %x+ ')

    if type(held) == 'string' and not string.find(held, nonce, 1, true) then
        return {HF_EBUSY, 0, redis.call('PTTL', key)}
    end
    return 1
end

local function try_unlock(key, mine)
    local held = redis.pcall('GET', key)

    if type(held) ~= 'string' or string.sub(held, 1, #mine) ~= mine then
        return 1 -- unlock.lua determines the error
    end
    redis.call('DEL', key)
    return HF_OK
end

for i = 1, count do
    local what, lease = ARGV[3 * i - 2], ARGV[3 * i - 1]

    if others and (redis.call('EXISTS', KEYS[count + i]) == 1
        or #matching_patterns(watched, prefixes, KEYS[i]) > 0) then
        answers[i] = 1
    elseif lease ~= '' then
        answers[i] = try_lock(KEYS[i], what, lease, ARGV[3 * i])
    else
        answers[i] = try_unlock(KEYS[i], what)
    end
end
return answers
