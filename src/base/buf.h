/* buf.h - a growing buffer to write bytes into, and a reader of bytes.
 *
 * Both keep a sticky `failed` flag, so a series of calls needs only one check
 * at its end. Numbers are little-endian. hf_buf_bytes() writes a 32-bit length
 * before the bytes. */
#ifndef HF_BASE_BUF_H
#define HF_BASE_BUF_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/error.h"

struct hf_buf {
    uint8_t *data;
    size_t size;
    size_t capacity;
    bool failed; /* out of memory; later writes do nothing */
};

/* A zeroed struct is an empty buffer: there is no hf_buf_init(). */
void hf_buf_fini(struct hf_buf *buf);

void hf_buf_raw(struct hf_buf *buf, const void *data, size_t size);
void hf_buf_u8(struct hf_buf *buf, uint8_t x);
void hf_buf_u32(struct hf_buf *buf, uint32_t x);
void hf_buf_u64(struct hf_buf *buf, uint64_t x);
void hf_buf_bytes(struct hf_buf *buf, const void *data, size_t size);

struct hf_reader {
    const uint8_t *data;
    size_t size; /* bytes left to read */
    bool failed; /* the input is too short, or a length exceeds its limit */
};

/* After a failure, each of these functions returns 0, or fills `to` with
 * zeros. */
uint8_t hf_reader_u8(struct hf_reader *reader);
uint32_t hf_reader_u32(struct hf_reader *reader);
uint64_t hf_reader_u64(struct hf_reader *reader);
void hf_reader_raw(struct hf_reader *reader, void *to, size_t size);

/* Read a length of at most `max`, and that many bytes. The result points into
 * the input; after a failure it is empty. */
struct hf_bytes hf_reader_bytes(struct hf_reader *reader, size_t max);

#endif
