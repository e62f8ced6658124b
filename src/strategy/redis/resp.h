/* resp.h - encode commands in RESP, the protocol of Redis.
 *
 * hiredis could encode them, too, but it allocates memory for each command and
 * formats each length with sprintf(). That took half of the CPU time of a
 * client with many open calls. */
#ifndef HF_STRATEGY_REDIS_RESP_H
#define HF_STRATEGY_REDIS_RESP_H

#include "base/buf.h"

#define HF_REDIS_RESP_ARGS_MAX 24
#define HF_REDIS_DIGITS_MAX 20

/* The arguments of one command, its name first. The bytes are borrowed, numbers
 * are stored here. */
struct hf_redis_resp_args {
    unsigned count;
    struct hf_bytes values[HF_REDIS_RESP_ARGS_MAX];
    char numbers[HF_REDIS_RESP_ARGS_MAX][HF_REDIS_DIGITS_MAX];
};

void hf_redis_resp_add(struct hf_redis_resp_args *args, const void *bytes,
                       size_t size);
void hf_redis_resp_add_text(struct hf_redis_resp_args *args, const char *text);
void hf_redis_resp_add_number(struct hf_redis_resp_args *args, uint64_t number);

/* Append `bytes` as a bulk string. */
void hf_redis_resp_write_bulk(struct hf_buf *out, const void *bytes,
                              size_t size);

/* Append a header: `kind` '*' and the number of arguments, or '$' and the size
 * of a bulk string. */
void hf_redis_resp_write_header(struct hf_buf *out, char kind, size_t size);

/* Append a whole command. Returns false if out of memory; then nothing is
 * appended. */
bool hf_redis_resp_encode(const struct hf_redis_resp_args *args,
                          struct hf_buf *out);

/* Write a decimal number without a NUL, and return the number of digits. */
size_t hf_redis_resp_write_digits(char to[HF_REDIS_DIGITS_MAX],
                                  uint64_t number);

#endif
