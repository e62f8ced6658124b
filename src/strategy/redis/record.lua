-- Included: the record of a held lock.
--
-- It is one string, so that a plain `SET key ... NX PX` finds the key taken:
--
--   hf1 TOKEN NONCE FORCED HELD LEASE OWNER_SIZE NOTE_SIZE UPDATES\n
--
-- followed by owner, note and value. TOKEN and NONCE come first, so that
-- comparing the first bytes identifies the holder. HELD is how long the lock
-- had been held, in milliseconds, when its current LEASE began: 0 until the
-- first renewal. HELD has 15 digits and LEASE 10, so that a renewal overwrites
-- them in place.
--
-- Uses KEYS[1] to KEYS[4], and no ARGV. Every script that includes it has:
--
-- KEYS  1 the lock  2 its queue  3 the claims of its queue  4 the token counter
--       5 watched patterns  6 sizes of watched prefixes  7 the event stream
--       8 the holders that watchers know of  9 when their leases expire
--
-- A full server (maxmemory) refuses a script's first write if it may need
-- memory, and lets later ones pass. So a script that must work on a full server
-- begins with a write that needs none.

local key, queue, claims = KEYS[1], KEYS[2], KEYS[3]

local function server_time_us() -- in microseconds
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Lua formats large numbers with an exponent. Formatting two integers takes
-- half the time of %.0f.
local function digits(number)
    if number < 1e7 then
        return string.format('%d', number)
    end
    return string.format('%d%07d', number / 1e7, number % 1e7)
end

-- The record; false if the key is free; or, if it is of another type, a table:
-- the error to return.
local function read_record()
    local held = redis.pcall('GET', key)

    if type(held) == 'table' then
        return {err = 'WRONGTYPE ' .. redis.call('TYPE', key).ok}
    end
    return held
end

-- All keys share one counter, which never expires. It starts at the time in
-- microseconds, and each new connection raises it to the time
-- (raise_tokens.lua), so that a token which was lost in a crash is not granted
-- a second time.
local function next_token()
    local token = redis.call('INCR', KEYS[4])

    if token < 1e15 then -- the counter was lost, perhaps by FLUSHALL
        token = server_time_us()
        redis.call('SET', KEYS[4], digits(token))
    end
    return digits(token)
end

local function format_record(token, nonce, lease, owner, note, value)
    return 'hf1 ' .. token .. ' ' .. nonce .. ' 0 000000000000000 ' ..
        string.format('%010d', lease) .. ' ' .. #owner .. ' ' .. #note ..
        ' -\n' .. owner .. note .. value
end

-- The fields of a record; nil if holdfast did not write it.
local function parse_record(record)
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
