/* resp.h - the words of a command, and how they are said to a server.
 *
 * Not by hiredis, which allocates for each command and prints each length by
 * sprintf(): that was half of what a client with many calls open had to do. */
#ifndef HF_STRATEGY_REDIS_RESP_H
#define HF_STRATEGY_REDIS_RESP_H

#include "base/buf.h"

#define HF_REDIS_RESP_ARGS_MAX 24
#define HF_REDIS_DIGITS_MAX 20

/* The words are borrowed. */
struct hf_redis_resp_args {
    unsigned count;
    struct hf_bytes values[HF_REDIS_RESP_ARGS_MAX];
    char numbers[HF_REDIS_RESP_ARGS_MAX][HF_REDIS_DIGITS_MAX];
};

void hf_redis_resp_add(struct hf_redis_resp_args *args, const void *bytes,
                       size_t size);
void hf_redis_resp_add_text(struct hf_redis_resp_args *args, const char *text);
void hf_redis_resp_add_number(struct hf_redis_resp_args *args, uint64_t number);

/* Append a word; or how many there are ('*'), or how long one is ('$'). */
void hf_redis_resp_write_bulk(struct hf_buf *out, const void *bytes,
                              size_t size);
void hf_redis_resp_write_header(struct hf_buf *out, char kind, size_t size);

/* Append them as a command; false: out of memory, and nothing is appended. */
bool hf_redis_resp_encode(const struct hf_redis_resp_args *args,
                          struct hf_buf *out);

/* Write a number, without an end; answers how many digits it has. */
size_t hf_redis_resp_write_digits(char to[HF_REDIS_DIGITS_MAX],
                                  uint64_t number);

#endif
