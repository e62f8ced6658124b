-- Included after record.lua and patterns.lua: what is recorded for watchers.
-- Uses KEYS[7] to KEYS[9] as record.lua names them, and no ARGV.
--
-- Events go into a stream, and the holders that watchers know of into a hash.
-- `matches` is what matching_patterns() returned; if it is empty, nothing is recorded.

local EVENTS_MS = 60000 -- the stream stays this long after its last watcher
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
        redis.call('HSET', KEYS[8], key, digits(now) .. ' ' .. token .. ' ' .. owner)
        redis.call('ZADD', KEYS[9], digits(now_ms + lease), key)
        redis.call('PEXPIRE', KEYS[8], EVENTS_MS)
        redis.call('PEXPIRE', KEYS[9], EVENTS_MS)
    end

    -- The token and the owner that watchers know of, or nil. What was noted
    -- before anybody registered who watches now may have ended unnoticed.
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

    -- Nobody holds the key. If watchers know of a holder, its lease has ended.
    record_expiry = function()
        local token, owner = known_holder()

        if token then
            return record_end(HF_EVENT_EXPIRED, token, owner)
        end
        redis.call('ZREM', KEYS[9], key)
        return {}
    end

    -- All at once, and last: by then it is known what frees the key.
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
