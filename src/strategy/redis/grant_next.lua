-- Included after record.lua, events.lua, liveness.lua and queue.lua: hand the
-- key over to the next waiter. Uses what those define, and neither KEYS nor
-- ARGV.

local WINDOW = 100           -- waiters read from the queue at a time
local SCANNED_MAX = 1000     -- waiters visited by one call, which blocks Redis
local SILENT_MAX = 100       -- silent waiters that keep their position
local UNSUBSCRIBED_MAX = 900 -- waiters of unsubscribed clients that keep theirs
local LATER_MS = 100         -- until the next attempt, after SCANNED_MAX

-- The fields of a claim; nil if there is none.
local function parse_claim(text)
    local lease, owner_size, note_size, at =
        string.match(text or '', '^(%d+) (%d+) (%d+)\n()')

    if not lease then
        return nil
    end
    return {
        lease = lease,
        owner = string.sub(text, at, at + owner_size - 1),
        note = string.sub(text, at + owner_size,
            at + owner_size + note_size - 1),
        value = string.sub(text, at + owner_size + note_size),
    }
end

-- The clients that this script has looked up, by id.
local clients = {}

local function find_client(id)
    if clients[id] then
        return clients[id]
    end
    local client = {channel = channels .. id, steady_ms = 0}
    local sent, interval, steady = string.match(
        redis.call('GET', client.channel) or '', '^(%d+) (%d+) (%d+)$')

    if sent then
        client.sent = sent
        client.gap_ms = GAP_HEARTBEATS * interval
        client.silent = LIVENESS_MS - redis.call('PTTL', client.channel)
            > client.gap_ms
        client.steady_ms = client.silent and 0 or now_ms - steady
    end
    client.dead = not sent or (client.silent
        and redis.call('PUBSUB', 'NUMSUB', client.channel)[2] == 0)
    clients[id] = client
    return client
end

-- Grant the free key to `waiter`, if its client can be notified: the caller by
-- the reply, any other client by a message on its channel. `asking` is the
-- waiter that called the script, or nil.
--
-- NUMSUB decides whether the client is subscribed. The result of PUBLISH would
-- not do, because it counts pattern subscribers, too, such as an operator who
-- watches '*'.
local function grant_to(waiter, client, asking)
    local nonce = string.sub(waiter, 1, NONCE_SIZE)
    local claim = parse_claim(redis.call('HGET', claims, nonce))

    if not claim then
        remove_waiter(waiter) -- the hash of claims has expired
        return nil
    end
    if waiter ~= asking
        and redis.call('PUBSUB', 'NUMSUB', client.channel)[2] == 0 then
        client.unsubscribed = true
        return nil
    end

    local token = next_token()
    local message = 'grant ' .. nonce .. ' ' .. token .. ' ' .. client.sent

    redis.call('SET', key, format_record(token, nonce, claim.lease, claim.owner,
        claim.note, claim.value), 'PX', claim.lease)
    if waiter ~= asking then
        redis.call('PUBLISH', client.channel, message)
    end
    remove_waiter(waiter)
    record_event(HF_EVENT_GRANTED, token, claim.owner, tonumber(claim.lease))
    return token
end

-- All claims of a client have the same owner. Read only one claim of each
-- client, because a claim includes a value, which may be long.
local function find_owner(waiter)
    local client = find_client(string.sub(waiter, NONCE_SIZE + 1))

    if not client.owner then
        local claim = parse_claim(redis.call('HGET', claims,
            string.sub(waiter, 1, NONCE_SIZE)))

        client.owner = claim and claim.owner
    end
    return client.owner or ''
end

local function remove_dead(waiters)
    local nonces = {}

    for i, waiter in ipairs(waiters) do
        nonces[i] = string.sub(waiter, 1, NONCE_SIZE)
    end
    if #nonces == 0 then
        return
    end
    if watched then
        for _, waiter in ipairs(waiters) do
            record_event(HF_EVENT_WITHDRAWN, '0', find_owner(waiter), 0)
        end
    end
    redis.call('ZREM', queue, unpack(waiters))
    redis.call('HDEL', claims, unpack(nonces))
end

-- The key is free: grant it to the first waiter whose client is alive. Returns
-- its nonce and token. If no waiter can be granted the key now, returns nil,
-- the milliseconds after which to ask again (nil if no waiter comes before the
-- caller), and whether all waiters are silent.
--
-- A silent client is skipped only in favour of a client whose heartbeats have
-- been steady for so long that those of the silent one should have arrived,
-- too. Otherwise the server or the network may have stalled, and the heartbeat
-- may be on its way.
--
-- A client that was stopped may have more waiters than one call can skip. Most
-- of them are dropped, so that the following calls make progress; they join the
-- queue again when the client continues. The same goes for a client that is
-- alive, but has lost its pub/sub connection.
local function grant_next(asking)
    local scanned, kept, steady_ms, size = 0, 0, 0, 1
    local asking_steady_ms = asking
        and find_client(string.sub(asking, NONCE_SIZE + 1)).steady_ms or 0

    while scanned < SCANNED_MAX do
        local waiters = redis.call('ZRANGE', queue, kept, kept + size - 1)
        local dead = {}

        if #waiters == 0 then
            return nil, steady_ms > 0 and steady_ms or nil, steady_ms > 0
        end
        for _, waiter in ipairs(waiters) do
            local client = find_client(string.sub(waiter, NONCE_SIZE + 1))

            if client.dead or (client.silent and kept >= SILENT_MAX
                and asking_steady_ms > client.gap_ms) then
                dead[#dead + 1] = waiter
            elseif client.unsubscribed and waiter ~= asking
                and kept >= UNSUBSCRIBED_MAX then
                dead[#dead + 1] = waiter
            elseif client.silent then
                steady_ms = math.max(steady_ms, client.gap_ms)
                kept = kept + 1
            elseif client.unsubscribed and waiter ~= asking then
                kept = kept + 1
            elseif client.steady_ms < steady_ms then
                remove_dead(dead)
                return nil, steady_ms
            else
                remove_dead(dead)
                dead = {}

                local token = grant_to(waiter, client, asking)

                if token then
                    return string.sub(waiter, 1, NONCE_SIZE), token
                end
                kept = kept + (client.unsubscribed and 1 or 0)
            end
        end
        remove_dead(dead)
        scanned = scanned + #waiters
        size = WINDOW
    end
    return nil, kept < scanned and 0 or math.max(steady_ms, LATER_MS)
end

-- End `lock`, record it as an event of `kind`, and grant the key to the next
-- waiter.
local function end_lock(kind, lock)
    redis.call('DEL', key) -- first: it needs no memory

    local event = record_end(kind, lock.token, lock.owner)

    event.freed = not grant_next()
    publish()
end
