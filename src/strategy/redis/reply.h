/* reply.h - decode the server's replies and errors, for redis: and redlock:. */
#ifndef HF_STRATEGY_REDIS_REPLY_H
#define HF_STRATEGY_REDIS_REPLY_H

#include "strategy/redis/heartbeat.h"
#include "strategy/redis/script_call.h"

/* Convert an error reply to a code. If the server has lost the scripts, load
 * them again; if it has become a replica or requires authentication, drop the
 * connection. */
enum hf_err hf_redis_reply_handle_error(struct hf_redis_connection *connection,
                                        const redisReply *reply);

/* Details of a reply to LOCK that are not part of the answer. */
struct hf_redis_lock_reply {
    bool fresh;       /* this call granted the lock, not an earlier call */
    bool slow_path;   /* nothing was done; send the LOCK on the slow path */
    uint32_t left_ms; /* HF_EBUSY: when to ask again; 0: not known */
};

/* Convert the reply to a command into an answer. `reply` is NULL if it was
 * lost. `sent` is when the command was sent. */
void hf_redis_reply_decode(struct hf_redis_connection *connection,
                           const redisReply *reply, hf_time sent,
                           const struct hf_command *command,
                           struct hf_answer *answer,
                           struct hf_redis_lock_reply *lock_reply);

/* Decode the reply to a READ of `key`. Set `*ours` to true if holdfast holds
 * the key, and to false if the key is free or was set by a plain Redis client.
 * Returns HF_OK, HF_ENOMEM, HF_EPROTO, or the code of
 * hf_redis_reply_handle_error(). */
enum hf_err hf_redis_reply_decode_read(struct hf_redis_connection *connection,
                                       const redisReply *reply,
                                       struct hf_key key, struct hf_info *info,
                                       bool *ours);

/* Copy `text` to the answer as its cause, if there is memory for it. */
void hf_redis_reply_set_cause(struct hf_answer *answer, const char *text);

/* Set the cause from the server's error reply to a command on `key`. */
void hf_redis_reply_set_error_cause(struct hf_answer *answer, struct hf_key key,
                                    const redisReply *reply);

/* The value of a positive integer reply, or of the digits at the start of a
 * string; 0 for any other reply. */
uint64_t hf_redis_reply_number(const redisReply *reply);

/* Parse a number, and skip it and the character after it. Returns false if
 * `*text` does not begin with a digit. */
bool hf_redis_reply_next_number(const char **text, uint64_t *number);

#endif
