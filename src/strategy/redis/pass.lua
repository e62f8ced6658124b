-- Who is next.

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
