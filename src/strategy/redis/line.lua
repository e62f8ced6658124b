-- Who stands in line, who is next, and what watchers are told.
--
-- The line is a sorted set of nonces by arrival. A hash has two fields for
-- each: NONCE, what the claim is ("LEASE CHANNEL BEAT OWNER_SIZE NOTE_SIZE\n",
-- owner, note, value), and +NONCE, its last sign of life ("SENT SEEN"): what
-- the client called the instant when it sent it, and when it came. In the same
-- hash, `heard` is when anyone in this line was last heard of, and `stalled`
-- when the last long silence of all of them ended: then it was the server, or
-- the network, and not they. `last` is the number of the last arrival.
--
-- Whoever includes this has found out whether it is `watched`.

local key, line, standing = KEYS[1], KEYS[2], KEYS[3]
local events, holds, ends = 'hf:events', 'hf:held', 'hf:ends'

local LINE_MS = 60000   -- a line that nobody stands in any more goes by itself
local PUT_OFF_MS = 8000 -- and each so often it is put off
local STALL_MS = 1000   -- so long nobody is silent who is well
local FORGET_MS = 30000 -- so long is a place kept for who is silent
local WATCH_MS = 60000  -- so long after its last watcher goes what they read
local EVENTS_KEPT = 4096

local now_ms = math.floor(clock() / 1000)

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

-- ---- Events

local told = {}

local function note_held(token, owner, lease)
    redis.call('HSET', holds, key, token .. ' ' .. owner)
    redis.call('ZADD', ends, digits(now_ms + lease), key)
    redis.call('PEXPIRE', holds, WATCH_MS)
    redis.call('PEXPIRE', ends, WATCH_MS)
end

local function tell(kind, token, owner, lease)
    local event = {kind = kind, token = token, owner = owner, lease = lease}

    if watched then
        told[#told + 1] = event
        if lease > 0 then
            note_held(token, owner, lease)
        end
    end
    return event
end

local function tell_end(kind, token, owner)
    if watched then
        redis.call('HDEL', holds, key)
        redis.call('ZREM', ends, key)
    end
    return tell(kind, token, owner, 0)
end

-- Nobody holds the key. If watchers know of a holder, its lease has run out.
local function tell_expiry()
    local was = watched and redis.call('HGET', holds, key)

    if was then
        return tell_end(HF_EVENT_EXPIRED, string.match(was, '^(%d+) (.*)$'))
    end
    return {}
end

-- All at once, and last: by then it is known what frees the key.
local function publish()
    if #told == 0 then
        return
    end
    local last = redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)[1][1]
    local index = tonumber(string.match(last, '^%d+'))

    for _, event in ipairs(told) do
        index = index + 1
        redis.call('XADD', events, 'MAXLEN', '~', EVENTS_KEPT,
            digits(index) .. '-0', 'e',
            event.kind .. ' ' .. event.token .. ' ' ..
            (event.freed and 1 or 0) .. ' ' .. event.lease .. ' ' ..
            #event.owner .. '\n' .. event.owner .. key)
    end
    redis.call('PUBLISH', 'hf:bell', digits(index))
end

-- ---- In line

-- What a claim says; nothing if there is none.
local function parse_claim(text)
    local lease, channel, beat, owner_size, note_size, at =
        string.match(text or '', '^(%d+) (%S+) (%d+) (%d+) (%d+)\n()')

    if not lease then
        return nil
    end
    return {
        lease = lease, channel = channel, beat = tonumber(beat),
        owner = string.sub(text, at, at + owner_size - 1),
        note = string.sub(text, at + owner_size,
            at + owner_size + note_size - 1),
        value = string.sub(text, at + owner_size + note_size),
    }
end

local function leave(nonce)
    redis.call('ZREM', line, nonce)
    redis.call('HDEL', standing, nonce, '+' .. nonce)
end

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

-- Whether a waiter lives, as far as its silence tells.
local function is_heard(silence, beat)
    if mutant == 70 then return true end
    if silence <= 3 * beat then
        return true
    end

    local times = redis.call('HMGET', standing, 'heard', 'stalled')
    local heard, stalled = tonumber(times[1] or 0), tonumber(times[2] or 0)

    return now_ms - heard > STALL_MS or now_ms - stalled <= 3 * beat
end

local function is_connected(channel)
    return redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
end

-- Give the free key to `nonce`, if it can be told so. Who asks is told by the
-- answer; everyone else by a message to its own channel.
local function grant(nonce, claim, sent, token, asking)
    local message = 'grant ' .. nonce .. ' ' .. token .. ' ' .. sent

    if mutant == 71 then asking = nonce end
    redis.call('SET', key, record(token, nonce, claim.lease, claim.owner,
        claim.note, claim.value), 'PX', claim.lease)
    if mutant == 71 then redis.call('PUBLISH', claim.channel, message) end
    if nonce ~= asking
        and redis.call('PUBLISH', claim.channel, message) == 0 then
        redis.call('DEL', key)
        return false
    end
    leave(nonce)
    tell(HF_EVENT_GRANTED, token, claim.owner, tonumber(claim.lease))
    return true
end

-- Nobody is to hold the key: give it to the first in line who lives. Answers its
-- nonce and token, or nothing. `asking` is who runs this script, if it waits.
local function pass(asking)
    local token, place = nil, 0

    while true do
        local nonce = redis.call('ZRANGE', line, place, place)[1]

        if not nonce then
            return nil
        end
        local fields = redis.call('HMGET', standing, nonce, '+' .. nonce)
        local claim = parse_claim(fields[1])
        local sent, seen = string.match(fields[2] or '', '^(%S+) (%d+)$')

        if not claim or not seen then
            leave(nonce) -- half of it has expired
        else
            local silence = now_ms - seen

            if nonce == asking or is_heard(silence, claim.beat) then
                token = token or next_token()
                if grant(nonce, claim, sent, token, asking) then
                    return nonce, token
                end
            end
            if silence > FORGET_MS or (silence > 3 * claim.beat
                and not is_connected(claim.channel)) then
                leave(nonce)
                tell(HF_EVENT_WITHDRAWN, '0', claim.owner, 0)
            else
                place = place + 1
            end
        end
    end
end

-- End what is `held`, for the reason that `kind` names: hand the key over, or
-- nobody has it any more.
local function hand_over(kind, held)
    local lock = watched and parse(held) or {}
    local event = tell_end(kind, lock.token, lock.owner)

    event.freed = not pass()
    if event.freed then
        redis.call('DEL', key)
    end
    publish()
end
