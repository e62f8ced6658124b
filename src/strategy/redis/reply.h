/* reply.h - what a server's replies mean: answers to lock commands, what is
 * read, and errors. For redis: and redlock:. */
#ifndef HF_STRATEGY_REDIS_REPLY_H
#define HF_STRATEGY_REDIS_REPLY_H

#include "strategy/redis/heartbeat.h"
#include "strategy/redis/script_call.h"

/* What an error of the server means; what follows from it, such as loading
 * scripts anew, is begun. */
enum hf_err hf_redis_reply_handle_error(struct hf_redis_connection *connection,
                                        const redisReply *reply);

/* What a reply to LOCK tells besides. */
struct hf_redis_lock_reply {
    bool fresh;       /* this very call granted it */
    bool slow_path;   /* nothing is done: it must be asked in full */
    uint32_t left_ms; /* busy: what the holder has left, as far as is known */
};

/* Fill in the answer to a COMMAND; `sent` is when it was. */
void hf_redis_reply_decode(struct hf_redis_connection *connection,
                           const redisReply *reply, hf_time sent,
                           const struct hf_command *command,
                           struct hf_answer *answer,
                           struct hf_redis_lock_reply *lock_reply);

/* Fill in what a reply to READ says of `key`. `*index` is of the newest event;
 * `*ours`: it is no plain client's, nor free. HF_ENOMEM, HF_EPROTO, or as
 * hf_redis_reply_handle_error() says. */
enum hf_err hf_redis_reply_decode_read(struct hf_redis_connection *connection,
                                       const redisReply *reply,
                                       struct hf_key key, struct hf_info *info,
                                       bool *ours);

/* Say why, in the server's words; nothing if there is no memory. */
void hf_redis_reply_set_cause(struct hf_answer *answer, const char *text);

/* The same, of an error of the server about `key`. */
void hf_redis_reply_set_error_cause(struct hf_answer *answer, struct hf_key key,
                                    const redisReply *reply);

/* A number of digits, up to the first other; 0 of what is no string. */
uint64_t hf_redis_reply_number(const redisReply *reply);

/* Read a number, and what stands behind it, from a text. */
bool hf_redis_reply_next_number(const char **text, uint64_t *number);

#endif
