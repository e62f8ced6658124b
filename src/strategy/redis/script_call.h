/* script_call.h - encode lock commands as calls of scripts, for redis: and
 * redlock:. */
#ifndef HF_STRATEGY_REDIS_SCRIPT_CALL_H
#define HF_STRATEGY_REDIS_SCRIPT_CALL_H

#include "strategy/redis/connection.h"
#include "strategy/redis/identity.h"

#define HF_REDIS_NONCE_SIZE ((size_t)2 * HF_NONCE_SIZE) /* in hex digits */

/* A smaller token means that the server has lost its counter (record.lua). */
#define HF_REDIS_TOKEN_MIN 1000000000000000ll

/* The largest size of a record without its value. */
#define HF_REDIS_HEAD_MAX (HF_REDIS_NONCE_SIZE + (size_t)2 * HF_NOTE_MAX + 180)

/* The arguments of one EVALSHA, with storage for arguments that are composed
 * here. All other arguments are borrowed from the command, the connection and
 * the identity until the call is sent. */
struct hf_redis_script_call {
    struct hf_redis_resp_args args;
    char keys[5][HF_REDIS_KEY_SIZE];
    char nonce[HF_REDIS_NONCE_SIZE + 1];
    char text[HF_REDIS_HEAD_MAX];
};

/* Options of a LOCK. */
struct hf_redis_lock_opts {
    bool slow_path;        /* use lock.lua, not lock_fast.lua */
    bool queue;            /* join the queue if the lock is held */
    bool waiting;          /* the claim is queued: no owner, note or value */
    uint32_t heartbeat_ms; /* this client's heartbeat interval */
    hf_time sent;          /* send time of the LOCK; grant messages repeat it */
    uint64_t token;        /* the token to grant; 0: the server's next one */
};

/* Encode a command. `lock` is for LOCK, and may be NULL for other commands. */
void hf_redis_script_call_command(struct hf_redis_script_call *call,
                                  const struct hf_redis_connection *connection,
                                  const struct hf_redis_identity *identity,
                                  const struct hf_command *command,
                                  const struct hf_redis_lock_opts *lock);

/* Append a call of batch.lua with `count` commands: LOCKs on the fast path, and
 * UNLOCKs. Sets `out->failed` if out of memory. */
void hf_redis_script_call_batch(struct hf_buf *out,
                                const struct hf_redis_connection *connection,
                                const struct hf_redis_identity *identity,
                                const struct hf_command *const *commands,
                                unsigned count);

void hf_redis_script_call_read(struct hf_redis_script_call *call,
                               const struct hf_redis_connection *connection,
                               struct hf_key key);

/* Encode a heartbeat. `sent` is the current time, which grant messages repeat.
 * The next heartbeat follows in `heartbeat_ms`. */
void hf_redis_script_call_heartbeat(
    struct hf_redis_script_call *call,
    const struct hf_redis_connection *connection,
    const struct hf_redis_identity *identity, hf_time sent,
    uint32_t heartbeat_ms);

/* Append a call of watch.lua, except its `count` patterns, which the caller
 * appends with hf_redis_resp_write_bulk(). */
void hf_redis_script_call_watch(struct hf_buf *out,
                                const struct hf_redis_connection *connection,
                                size_t count);

#endif
