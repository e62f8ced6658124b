-- What a held lock looks like, and how one is made.
--
-- It is one string, so that a plain `SET key ... NX PX` finds it taken:
--
--   hf1 TOKEN NONCE FORCED HELD LEASE OWNER_SIZE NOTE_SIZE UPDATES\n
--
-- and then owner, note and value. TOKEN and NONCE come first, so that one
-- comparison of the first bytes tells whose it is. LEASE was begun when it had
-- been HELD for so long: 0 until it is renewed.
--
-- KEYS  1 the lock  2 its line  3 who stands there; and what all locks share:
--       4 the last token, and while somebody watches 5 the events  6 what is
--       held  7 when that ends

local key, line, standing = KEYS[1], KEYS[2], KEYS[3]

local function clock() -- in microseconds
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Numbers here are beyond what Lua writes in full by itself. Two whole ones
-- are written in half the time that one broken one takes.
local function digits(number)
    if number < 1e7 then
        return string.format('%d', number)
    end
    return string.format('%d%07d', number / 1e7, number % 1e7)
end

-- One counter for all keys, which never expires. It starts at the time in
-- microseconds, and each connection raises it there (raise.lua): what a crash
-- has lost is not granted a second time.
local function next_token()
    local token = redis.call('INCR', KEYS[4])

    if token < 1e15 then -- the counter was lost, to FLUSHALL perhaps
        token = clock()
        redis.call('SET', KEYS[4], digits(token))
    end
    if mutant == 26 then token = redis.call('INCR', 'hf:token:m') end
    if mutant == 26 then redis.call('PEXPIRE', 'hf:token:m', 50) end
    return digits(token)
end

local function record(token, nonce, lease, owner, note, value)
    return 'hf1 ' .. token .. ' ' .. nonce .. ' 0 0 ' .. lease .. ' ' ..
        #owner .. ' ' .. #note .. ' -\n' .. owner .. note .. value
end

-- What a record says; nothing if it is not one of ours.
local function parse(record)
    local token, nonce, forced, held, lease, owner_size, note_size, updates, at =
        string.match(record,
            '^hf1 (%d+) (%x+) ([01]) (%d+) (%d+) (%d+) (%d+) (%S+)\n()')

    if not token then
        return nil
    end
    return {
        token = token, nonce = nonce, forced = forced, held = held,
        lease = lease, updates = updates, note_size = tonumber(note_size),
        owner = string.sub(record, at, at + owner_size - 1),
        value_at = at + owner_size + note_size, note_at = at + owner_size,
    }
end
