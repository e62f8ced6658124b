-- Included after record.lua: the queue of a key. Uses KEYS[2] to KEYS[4] as
-- record.lua names them, and no ARGV.
--
-- The queue is a sorted set of waiters by arrival. A waiter is its nonce (32
-- digits) followed by its client id. A hash has the claim of each, by nonce:
-- "LEASE OWNER_SIZE NOTE_SIZE\n", owner, note, value; and `last`, the number of
-- the last arrival.

local QUEUE_MS = 60000 -- a queue expires this long after its last use
local NONCE_SIZE = 32

-- The prefix of the clients' channels: "...hf:c:", beside "...hf:token".
local channels = string.sub(KEYS[4], 1, -6) .. 'c:'

-- A script on a full server calls this first, because it needs no memory.
local function extend_queue()
    redis.call('PEXPIRE', queue, QUEUE_MS)
    redis.call('PEXPIRE', claims, QUEUE_MS)
end

local function remove_waiter(waiter)
    redis.call('ZREM', queue, waiter)
    redis.call('HDEL', claims, string.sub(waiter, 1, NONCE_SIZE))
end
