#include "base/buf.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void hf_buf_fini(struct hf_buf *buf)
{
    free(buf->data);
    *buf = (struct hf_buf){0};
}

static bool reserve_buf(struct hf_buf *buf, size_t size)
{
    size_t capacity = buf->capacity > 0 ? buf->capacity : 64;
    uint8_t *data;

    if (buf->failed)
        return false;
    if (size <= buf->capacity - buf->size)
        return true;
    while (capacity - buf->size < size)
        capacity *= 2;
    data = realloc(buf->data, capacity);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void hf_buf_raw(struct hf_buf *buf, const void *data, size_t size)
{
    if (size == 0 || !reserve_buf(buf, size))
        return;
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
}

void hf_buf_u8(struct hf_buf *buf, uint8_t x)
{
    hf_buf_raw(buf, &x, 1);
}

void hf_buf_u32(struct hf_buf *buf, uint32_t x)
{
    x = htole32(x);
    hf_buf_raw(buf, &x, sizeof(x));
}

void hf_buf_u64(struct hf_buf *buf, uint64_t x)
{
    x = htole64(x);
    hf_buf_raw(buf, &x, sizeof(x));
}

void hf_buf_bytes(struct hf_buf *buf, const void *data, size_t size)
{
    HF_ASSERT(size <= UINT32_MAX);
    hf_buf_u32(buf, (uint32_t)size);
    hf_buf_raw(buf, data, size);
}

static const uint8_t *skip_bytes(struct hf_reader *reader, size_t size)
{
    const uint8_t *data = reader->data;

    if (reader->failed || reader->size < size) {
        reader->failed = true;
        return NULL;
    }
    reader->data += size;
    reader->size -= size;
    return data;
}

uint8_t hf_reader_u8(struct hf_reader *reader)
{
    const uint8_t *byte = skip_bytes(reader, 1);

    return byte ? *byte : 0;
}

uint32_t hf_reader_u32(struct hf_reader *reader)
{
    uint32_t x;

    hf_reader_raw(reader, &x, sizeof(x));
    return le32toh(x);
}

uint64_t hf_reader_u64(struct hf_reader *reader)
{
    uint64_t x;

    hf_reader_raw(reader, &x, sizeof(x));
    return le64toh(x);
}

void hf_reader_raw(struct hf_reader *reader, void *to, size_t size)
{
    const uint8_t *bytes = skip_bytes(reader, size);

    if (bytes)
        memcpy(to, bytes, size);
    else
        memset(to, 0, size);
}

struct hf_bytes hf_reader_bytes(struct hf_reader *reader, size_t max)
{
    uint32_t size = hf_reader_u32(reader);
    const uint8_t *data = NULL;

    if (size > max)
        reader->failed = true;
    else
        data = skip_bytes(reader, size);
    return (struct hf_bytes){data, data ? size : 0};
}
