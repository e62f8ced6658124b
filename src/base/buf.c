#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

void hf_buf_fini(struct hf_buf *buf)
{
    free(buf->data);
    *buf = (struct hf_buf){0};
}

static bool make_room(struct hf_buf *buf, size_t size)
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
    if (size == 0 || !make_room(buf, size))
        return;
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
}

void hf_buf_u8(struct hf_buf *buf, uint8_t x)
{
    hf_buf_raw(buf, &x, 1);
}

static void put(struct hf_buf *buf, uint64_t x, size_t size)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(x >> (8 * i));
    hf_buf_raw(buf, bytes, size);
}

void hf_buf_u32(struct hf_buf *buf, uint32_t x)
{
    put(buf, x, 4);
}

void hf_buf_u64(struct hf_buf *buf, uint64_t x)
{
    put(buf, x, 8);
}

void hf_buf_bytes(struct hf_buf *buf, const void *data, size_t size)
{
    hf_buf_u32(buf, (uint32_t)size);
    hf_buf_raw(buf, data, size);
}

static const uint8_t *get(struct hf_reader *reader, size_t size)
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

static uint64_t get_number(struct hf_reader *reader, size_t size)
{
    const uint8_t *bytes = get(reader, size);
    uint64_t x = 0;

    for (size_t i = 0; bytes && i < size; i++)
        x |= (uint64_t)bytes[i] << (8 * i);
    return x;
}

uint8_t hf_reader_u8(struct hf_reader *reader)
{
    return (uint8_t)get_number(reader, 1);
}

uint32_t hf_reader_u32(struct hf_reader *reader)
{
    return (uint32_t)get_number(reader, 4);
}

uint64_t hf_reader_u64(struct hf_reader *reader)
{
    return get_number(reader, 8);
}

void hf_reader_raw(struct hf_reader *reader, void *to, size_t size)
{
    const uint8_t *bytes = get(reader, size);

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
        data = get(reader, size);
    return (struct hf_bytes){data, data ? size : 0};
}
