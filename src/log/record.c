#include "log/record.h"

#include "base/assert.h"

#define MAGIC UINT32_C(0x52464821) /* "!HFR" */
#define CHECKSUM_SIZE 8

enum item_kind {
    ITEM_ENTRIES = 1,
    ITEM_BASE = 2,
};

/* ---- Writing ------------------------------------------------------------*/

void hf_record_start(struct hf_buf *buf)
{
    static const uint8_t header[HF_RECORD_HEADER];

    HF_ASSERT(buf->size == 0);
    hf_buf_raw(buf, header, sizeof(header));
}

void hf_record_add_entries(struct hf_buf *buf, uint64_t index,
                           const struct hf_log_entry *entries, size_t count)
{
    hf_buf_u8(buf, ITEM_ENTRIES);
    hf_buf_u64(buf, index);
    hf_buf_u32(buf, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        hf_buf_u64(buf, entries[i].term);
        hf_buf_u8(buf, entries[i].kind);
        hf_buf_bytes(buf, entries[i].data.data, entries[i].data.size);
    }
}

void hf_record_add_base(struct hf_buf *buf, uint64_t index, uint64_t term)
{
    hf_buf_u8(buf, ITEM_BASE);
    hf_buf_u64(buf, index);
    hf_buf_u64(buf, term);
}

void hf_record_pad(struct hf_buf *buf)
{
    static const uint8_t zeros[HF_RECORD_SECTOR];

    hf_buf_raw(buf, zeros, hf_record_padded(buf->size) - buf->size);
}

static uint64_t record_checksum(const uint8_t *data, size_t padded,
                                const struct hf_seed *secret)
{
    return hf_siphash(secret, data + CHECKSUM_SIZE, padded - CHECKSUM_SIZE);
}

void hf_record_seal(uint8_t *data, size_t padded, struct hf_record *record,
                    const struct hf_seed *secret)
{
    hf_bytes_put_u32(data + 8, MAGIC);
    hf_bytes_put_u32(data + 12, record->size);
    hf_bytes_put_u64(data + 16, record->epoch);
    hf_bytes_put_u64(data + 24, record->previous);
    hf_bytes_put_u64(data + 32, record->state.term);
    hf_bytes_put_u64(data + 40, record->state.vote);
    hf_bytes_put_u64(data + 48, record->state.last_index);
    hf_bytes_put_u64(data + 56, record->state.last_term);
    record->checksum = record_checksum(data, padded, secret);
    hf_bytes_put_u64(data, record->checksum);
}

/* ---- Reading ------------------------------------------------------------*/

static uint32_t decode_record_header(const uint8_t *data,
                                     struct hf_record *record)
{
    struct hf_reader reader = {.data = data, .size = HF_RECORD_HEADER};
    uint32_t magic;

    record->checksum = hf_reader_u64(&reader);
    magic = hf_reader_u32(&reader);
    record->size = hf_reader_u32(&reader);
    record->epoch = hf_reader_u64(&reader);
    record->previous = hf_reader_u64(&reader);
    record->state.term = hf_reader_u64(&reader);
    record->state.vote = hf_reader_u64(&reader);
    record->state.last_index = hf_reader_u64(&reader);
    record->state.last_term = hf_reader_u64(&reader);
    return magic;
}

bool hf_record_check(const uint8_t *data, size_t available, uint64_t epoch,
                     const struct hf_seed *secret, struct hf_record *record)
{
    struct hf_record header;

    if (available < HF_RECORD_SECTOR ||
        decode_record_header(data, &header) != MAGIC)
        return false;
    if (header.size < HF_RECORD_HEADER || header.size > available ||
        hf_record_padded(header.size) > available)
        return false;
    if (header.epoch != epoch)
        return false;
    if (record_checksum(data, hf_record_padded(header.size), secret) !=
        header.checksum)
        return false;
    *record = header;
    return true;
}

static enum hf_err replay_entry(struct hf_reader *reader, uint64_t index,
                                struct hf_log_state *state,
                                const struct hf_log_visitor *visitor)
{
    struct hf_log_entry entry;

    entry.term = hf_reader_u64(reader);
    entry.kind = hf_reader_u8(reader);
    entry.data = hf_reader_bytes(reader, reader->size);
    if (reader->failed || entry.term == 0)
        return HF_EPROTO;
    state->last_index = index;
    state->last_term = entry.term;
    return visitor->entry(visitor->arg, index, &entry);
}

static enum hf_err replay_entries(struct hf_reader *reader,
                                  struct hf_log_state *state,
                                  const struct hf_log_visitor *visitor)
{
    uint64_t index = hf_reader_u64(reader);
    uint32_t count = hf_reader_u32(reader);
    enum hf_err err = HF_OK;

    if (index == 0 || index - 1 > state->last_index || count == 0 ||
        index > UINT64_MAX - count)
        return HF_EPROTO;
    for (uint32_t i = 0; i < count && !err; i++)
        err = replay_entry(reader, index + i, state, visitor);
    return err;
}

static enum hf_err replay_base(struct hf_reader *reader,
                               struct hf_log_state *state,
                               const struct hf_log_visitor *visitor)
{
    uint64_t index = hf_reader_u64(reader);
    uint64_t term = hf_reader_u64(reader);

    if (reader->failed)
        return HF_EPROTO;
    state->last_index = index;
    state->last_term = term;
    visitor->base(visitor->arg, index, term);
    return HF_OK;
}

static enum hf_err replay_item(struct hf_reader *reader,
                               struct hf_log_state *state,
                               const struct hf_log_visitor *visitor)
{
    switch (hf_reader_u8(reader)) {
    case ITEM_ENTRIES:
        return replay_entries(reader, state, visitor);
    case ITEM_BASE:
        return replay_base(reader, state, visitor);
    default:
        return HF_EPROTO;
    }
}

/* Returns true if a record with the header state `next` can follow `state`: it
 * names the same last entry, terms never decrease, and a term has one vote. */
static bool can_follow(const struct hf_log_state *state,
                       const struct hf_log_state *next)
{
    if (next->last_index != state->last_index ||
        next->last_term != state->last_term || next->term < state->term)
        return false;
    return next->term > state->term || state->vote == 0 ||
           next->vote == state->vote;
}

enum hf_err hf_record_replay(const uint8_t *data,
                             const struct hf_record *record,
                             struct hf_log_state *state,
                             const struct hf_log_visitor *visitor)
{
    struct hf_reader reader = {
        .data = data + HF_RECORD_HEADER,
        .size = record->size - HF_RECORD_HEADER,
    };
    enum hf_err err = HF_OK;

    if (!can_follow(state, &record->state))
        return HF_EPROTO;
    state->term = record->state.term;
    state->vote = record->state.vote;
    while (!err && reader.size > 0)
        err = replay_item(&reader, state, visitor);
    return err;
}
