/* buf.h - bytes being written, bytes being read.
 *
 * Both remember the first failure, so that a row of calls needs one check at
 * its end. Numbers are little-endian; bytes carry their length in front. */
#ifndef HF_BASE_BUF_H
#define HF_BASE_BUF_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/error.h"

struct hf_buf {
    uint8_t *data;
    size_t size;
    size_t capacity;
    bool failed; /* memory ran out: nothing after that was written */
};

/* A zeroed buffer is an empty one. */
void hf_buf_fini(struct hf_buf *buf);

void hf_buf_raw(struct hf_buf *buf, const void *data, size_t size);
void hf_buf_u8(struct hf_buf *buf, uint8_t x);
void hf_buf_u32(struct hf_buf *buf, uint32_t x);
void hf_buf_u64(struct hf_buf *buf, uint64_t x);
void hf_buf_bytes(struct hf_buf *buf, const void *data, size_t size);

struct hf_reader {
    const uint8_t *data;
    size_t size; /* what is left */
    bool failed; /* it was too short, or a length was over its limit */
};

/* Each answers 0, or no bytes, once it has failed. */
uint8_t hf_reader_u8(struct hf_reader *reader);
uint32_t hf_reader_u32(struct hf_reader *reader);
uint64_t hf_reader_u64(struct hf_reader *reader);
void hf_reader_raw(struct hf_reader *reader, void *to, size_t size);

/* Borrowed from the input. */
struct hf_bytes hf_reader_bytes(struct hf_reader *reader, size_t max);

#endif
