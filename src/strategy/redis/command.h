/* command.h - what a server's replies mean: answers to lock commands, what is
 * read, and errors. For redis: and redlock:. */
#ifndef HF_STRATEGY_REDIS_COMMAND_H
#define HF_STRATEGY_REDIS_COMMAND_H

#include "strategy/redis/words.h"

/* What an error of the server means; what follows from it, such as loading
 * scripts anew, is begun. */
enum hf_err hf_redis_failure(struct hf_redis_link *link,
                             const redisReply *reply);

/* What a reply to LOCK tells besides. */
struct hf_redis_taken {
    bool fresh;       /* this very call granted it */
    bool in_full;     /* nothing is done: it must be asked in full */
    uint32_t left_ms; /* busy: what the holder has left, as far as is known */
};

/* Fill in the answer to a COMMAND; `sent` is when it was. */
void hf_redis_take_command(struct hf_redis_link *link, const redisReply *reply,
                           hf_time sent, const struct hf_command *command,
                           struct hf_answer *answer,
                           struct hf_redis_taken *taken);

/* Fill in what a reply to READ says of `key`. `*index` is of the newest event;
 * `*ours`: it is no plain client's, nor free. HF_ENOMEM, HF_EPROTO, or as
 * hf_redis_failure() says. */
enum hf_err hf_redis_take_read(struct hf_redis_link *link,
                               const redisReply *reply, struct hf_key key,
                               struct hf_info *info, bool *ours);

/* Say why, in the server's words; nothing if there is no memory. */
void hf_redis_explain(struct hf_answer *answer, const char *text);

/* The same, of an error of the server about `key`. */
void hf_redis_explain_error(struct hf_answer *answer, struct hf_key key,
                            const redisReply *reply);

/* A number of digits, up to the first other; 0 of what is no string. */
uint64_t hf_redis_digits(const redisReply *reply);

/* Read a number, and what stands behind it, from a text. */
bool hf_redis_next(const char **text, uint64_t *number);

#endif
