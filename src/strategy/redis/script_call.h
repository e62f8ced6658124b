/* script_call.h - lock commands as calls of scripts.
 *
 * What both redis: and redlock: say to a server. */
#ifndef HF_STRATEGY_REDIS_SCRIPT_CALL_H
#define HF_STRATEGY_REDIS_SCRIPT_CALL_H

#include "strategy/redis/connection.h"
#include "strategy/redis/identity.h"

#define HF_REDIS_NONCE_SIZE ((size_t)2 * HF_NONCE_SIZE) /* in hex digits */
#define HF_REDIS_TOKEN_MIN 1000000000000000ll /* less: the counter was lost */

/* Of a record, up to its value. */
#define HF_REDIS_HEAD_MAX (HF_REDIS_NONCE_SIZE + (size_t)2 * HF_NOTE_MAX + 180)
/* A call of a script, with room for what it is made of. The bytes of the
 * request are borrowed. */
struct hf_redis_script_call {
    struct hf_redis_resp_args args;
    char keys[5][HF_REDIS_KEY_SIZE];
    char nonce[HF_REDIS_NONCE_SIZE + 1];
    char text[HF_REDIS_HEAD_MAX];
};

/* Options of a LOCK. */
struct hf_redis_lock_opts {
    bool slow_path;        /* by lock.lua; else by lock_fast.lua */
    bool queue;            /* wait for it */
    bool waiting;          /* it waits already: the server knows the rest */
    uint32_t heartbeat_ms; /* how often this client shows that it lives */
    hf_time sent;          /* comes back in the message of a grant */
    uint64_t token;        /* to be granted with; 0: the server's next */
};

/* A COMMAND. `lock` is for LOCK alone, and may be NULL elsewhere. */
void hf_redis_script_call_command(struct hf_redis_script_call *call,
                                  const struct hf_redis_connection *connection,
                                  const struct hf_redis_identity *identity,
                                  const struct hf_command *command,
                                  const struct hf_redis_lock_opts *lock);

/* Append several COMMANDs as one call: LOCKs that are asked for quickly, and
 * UNLOCKs. `out->failed`: there was no memory. */
void hf_redis_script_call_batch(struct hf_buf *out,
                                const struct hf_redis_connection *connection,
                                const struct hf_redis_identity *identity,
                                const struct hf_command *const *commands,
                                unsigned count);

void hf_redis_script_call_read(struct hf_redis_script_call *call,
                               const struct hf_redis_connection *connection,
                               struct hf_key key);

/* A sign of life, of a client whose next one comes in `heartbeat_ms`. */
void hf_redis_script_call_heartbeat(
    struct hf_redis_script_call *call,
    const struct hf_redis_connection *connection,
    const struct hf_redis_identity *identity, hf_time sent,
    uint32_t heartbeat_ms);

/* Append a call of watch.lua; `count` patterns are to follow, by
 * hf_redis_resp_write_bulk(). */
void hf_redis_script_call_watch(struct hf_buf *out,
                                const struct hf_redis_connection *connection,
                                size_t count);

#endif
