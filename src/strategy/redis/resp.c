#include "strategy/redis/resp.h"

#include <string.h>

#include "base/assert.h"

size_t hf_redis_resp_write_digits(char to[HF_REDIS_DIGITS_MAX], uint64_t number)
{
    char digits[HF_REDIS_DIGITS_MAX];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    memcpy(to, digits + at, sizeof(digits) - at);
    return sizeof(digits) - at;
}

void hf_redis_resp_add(struct hf_redis_resp_args *args, const void *bytes,
                       size_t size)
{
    HF_ASSERT(args->count < HF_REDIS_RESP_ARGS_MAX);
    args->values[args->count++] = (struct hf_bytes){bytes, size};
}

void hf_redis_resp_add_text(struct hf_redis_resp_args *args, const char *text)
{
    hf_redis_resp_add(args, text, strlen(text));
}

void hf_redis_resp_add_number(struct hf_redis_resp_args *args, uint64_t number)
{
    char *digits = args->numbers[args->count];

    hf_redis_resp_add(args, digits, hf_redis_resp_write_digits(digits, number));
}

void hf_redis_resp_write_header(struct hf_buf *out, char kind, size_t size)
{
    char text[1 + HF_REDIS_DIGITS_MAX + 2] = {kind};
    size_t end = 1 + hf_redis_resp_write_digits(text + 1, size);

    text[end++] = '\r';
    text[end++] = '\n';
    hf_buf_raw(out, text, end);
}

void hf_redis_resp_write_bulk(struct hf_buf *out, const void *bytes,
                              size_t size)
{
    hf_redis_resp_write_header(out, '$', size);
    hf_buf_raw(out, bytes, size);
    hf_buf_raw(out, "\r\n", 2);
}

bool hf_redis_resp_encode(const struct hf_redis_resp_args *args,
                          struct hf_buf *out)
{
    size_t before = out->size;

    hf_redis_resp_write_header(out, '*', args->count);
    for (unsigned i = 0; i < args->count; i++)
        hf_redis_resp_write_bulk(out, args->values[i].data,
                                 args->values[i].size);
    if (!out->failed)
        return true;
    out->failed = false;
    out->size = before;
    return false;
}
