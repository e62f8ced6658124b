-- What watchers are told. Where nobody watches, that is nothing, and little is
-- spent on it. Whoever includes this has found out whether it is `watched`.

local WATCH_MS = 60000 -- so long after its last watcher goes what they read
local EVENTS_KEPT = 4096

local now_ms = math.floor(clock() / 1000)

local function nothing()
    return {}
end

local note_held = nothing
local tell, tell_end, tell_expiry = nothing, nothing, nothing
local publish = nothing

if watched then
    local told = {}

    note_held = function(token, owner, lease)
        redis.call('HSET', KEYS[6], key, token .. ' ' .. owner)
        redis.call('ZADD', KEYS[7], digits(now_ms + lease), key)
        redis.call('PEXPIRE', KEYS[6], WATCH_MS)
        redis.call('PEXPIRE', KEYS[7], WATCH_MS)
    end

    tell = function(kind, token, owner, lease)
        local event = {kind = kind, token = token, owner = owner, lease = lease}

        told[#told + 1] = event
        if lease > 0 then
            note_held(token, owner, lease)
        end
        return event
    end

    tell_end = function(kind, token, owner)
        redis.call('HDEL', KEYS[6], key)
        redis.call('ZREM', KEYS[7], key)
        return tell(kind, token, owner, 0)
    end

    -- Nobody holds the key. If watchers know of a holder, its lease has run out.
    tell_expiry = function()
        local was = redis.call('HGET', KEYS[6], key)

        if was then
            return tell_end(HF_EVENT_EXPIRED, string.match(was, '^(%d+) (.*)$'))
        end
        return {}
    end

    -- All at once, and last: by then it is known what frees the key.
    publish = function()
        if #told == 0 then
            return
        end
        local last =
            redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1)[1][1]
        local index = tonumber(string.match(last, '^%d+'))

        for _, event in ipairs(told) do
            index = index + 1
            redis.call('XADD', KEYS[5], 'MAXLEN', '~', EVENTS_KEPT,
                digits(index) .. '-0', 'e',
                event.kind .. ' ' .. event.token .. ' ' ..
                (event.freed and 1 or 0) .. ' ' .. event.lease .. ' ' ..
                #event.owner .. '\n' .. event.owner .. key)
        end
        redis.call('PUBLISH', 'hf:bell', digits(index))
    end
end
