-- Included after record.lua and patterns.lua: record events for watchers. Uses
-- KEYS[7] to KEYS[9] as record.lua names them, and no ARGV.
--
-- Events are appended to a stream, and the holders that watchers know of are
-- kept in a hash. `matches` is the result of matching_patterns(); if it is
-- empty, the key is not watched, and the functions below do nothing.

local EVENTS_MS = 60000 -- KEYS 8 and 9 expire this long after their last use
local EVENTS_KEPT = 4096

local watched = #matches > 0
local now = server_time_us()
local now_ms = math.floor(now / 1000)

local function nothing()
    return {}
end

local note_holder, known_holder = nothing, nothing
local record_event, record_end, record_expiry = nothing, nothing, nothing
local publish = nothing

if watched then
    local recorded = {}

    note_holder = function(token, owner, lease)
        redis.call('HSET', KEYS[8], key,
            digits(now) .. ' ' .. token .. ' ' .. owner)
        redis.call('ZADD', KEYS[9], digits(now_ms + lease), key)
        redis.call('PEXPIRE', KEYS[8], EVENTS_MS)
        redis.call('PEXPIRE', KEYS[9], EVENTS_MS)
    end

    -- The token and owner that watchers know of, or nil. A holder that was
    -- noted before the oldest current registration may have ended unrecorded,
    -- and does not count.
    known_holder = function()
        local noted, token, owner = string.match(
            redis.call('HGET', KEYS[8], key) or '', '^(%d+) (%d+) (.*)$')

        for _, match in ipairs(matches) do
            if noted and tonumber(noted) >= match[2] then
                return token, owner
            end
        end
        return nil
    end

    record_event = function(kind, token, owner, lease)
        local event = {kind = kind, token = token, owner = owner, lease = lease}

        recorded[#recorded + 1] = event
        if lease > 0 then
            note_holder(token, owner, lease)
        end
        return event
    end

    record_end = function(kind, token, owner)
        redis.call('HDEL', KEYS[8], key)
        redis.call('ZREM', KEYS[9], key)
        return record_event(kind, token, owner, 0)
    end

    -- The key is free. If watchers know of a holder, its lease has expired.
    record_expiry = function()
        local token, owner = known_holder()

        if token then
            return record_end(HF_EVENT_EXPIRED, token, owner)
        end
        redis.call('ZREM', KEYS[9], key)
        return {}
    end

    -- Append and announce all events of this script. Called last, when it is
    -- known which event has freed the key.
    publish = function()
        if #recorded == 0 then
            return
        end
        local last = redis.call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', 1)[1]
        local index = last and tonumber(string.match(last[1], '^%d+')) or now

        for _, event in ipairs(recorded) do
            index = index + 1
            redis.call('XADD', KEYS[7], 'MAXLEN', '~', EVENTS_KEPT,
                digits(index) .. '-0', 'e',
                event.kind .. ' ' .. event.token .. ' ' ..
                (event.freed and 1 or 0) .. ' ' .. event.lease .. ' ' ..
                #event.owner .. '\n' .. event.owner .. key)
        end
        for _, match in ipairs(matches) do
            redis.call('PUBLISH', KEYS[7] .. match[1], digits(index))
        end
    end
end
