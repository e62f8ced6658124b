-- Who stands in line.
--
-- The line is a sorted set of nonces by arrival. A hash has two fields for
-- each: NONCE, what the claim is ("LEASE CHANNEL BEAT OWNER_SIZE NOTE_SIZE\n",
-- owner, note, value), and +NONCE, its last sign of life ("SENT SEEN"): what
-- the client called the instant when it sent it, and when it came. In the same
-- hash, `heard` is when anyone in this line was last heard of, and `stalled`
-- when the last long silence of all of them ended: then it was the server, or
-- the network, and not they. `last` is the number of the last arrival.

local LINE_MS = 60000   -- a line that nobody stands in any more goes by itself
local PUT_OFF_MS = 8000 -- and each so often it is put off
local STALL_MS = 1000   -- so long nobody is silent who is well
local FORGET_MS = 30000 -- so long is a place kept for who is silent

-- A sign of life, and whatever other fields are to be written. `heard` is when
-- there was one before. The line's own expiry is put off now and then.
local function mark(nonce, sent, heard, ...)
    local now = digits(now_ms)

    redis.call('HSET', standing, '+' .. nonce, sent .. ' ' .. now,
        'heard', now, ...)
    if heard > 0 and now_ms - heard > STALL_MS then
        redis.call('HSET', standing, 'stalled', digits(now_ms))
    end
    if math.floor(heard / PUT_OFF_MS) ~= math.floor(now_ms / PUT_OFF_MS) then
        redis.call('PEXPIRE', line, LINE_MS)
        redis.call('PEXPIRE', standing, LINE_MS)
    end
end
