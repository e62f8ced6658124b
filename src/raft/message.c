#include "raft/message.h"

#include <stdlib.h>

#include "base/limits.h"

/* The version of this format. */
#define FORMAT 1

/* Bytes of an entry without data: term, kind, length. */
#define ENTRY_OVERHEAD 13

/* ---- Encoding -----------------------------------------------------------*/

static void put_u16(struct hf_buf *buf, uint16_t x)
{
    hf_buf_u8(buf, (uint8_t)(x & 0xff));
    hf_buf_u8(buf, (uint8_t)(x >> 8));
}

static void encode_append(struct hf_buf *buf,
                          const struct hf_message_append *append)
{
    hf_buf_u64(buf, append->prev_index);
    hf_buf_u64(buf, append->prev_term);
    hf_buf_u64(buf, append->commit);
    hf_buf_u32(buf, append->count);
    for (uint32_t i = 0; i < append->count; i++) {
        const struct hf_entry *entry = &append->entries[i];

        hf_buf_u64(buf, entry->term);
        hf_buf_u8(buf, (uint8_t)entry->kind);
        hf_buf_bytes(buf, entry->data.data, entry->data.size);
    }
}

static void encode_end_of_log(struct hf_buf *buf,
                              const struct hf_message_vote *vote)
{
    hf_buf_u64(buf, vote->last_index);
    hf_buf_u64(buf, vote->last_term);
}

static void encode_result(struct hf_buf *buf, const struct hf_message *message)
{
    if (message->kind == HF_MESSAGE_APPEND_RESULT) {
        hf_buf_u64(buf, message->append_result.rejected);
        hf_buf_u64(buf, message->append_result.last_index);
        put_u16(buf, message->append_result.features);
        put_u16(buf, message->append_result.capacity);
    } else {
        hf_buf_u8(buf, message->vote_result.granted);
        hf_buf_u8(buf, message->vote_result.pre_vote);
        put_u16(buf, message->vote_result.features);
        put_u16(buf, message->vote_result.capacity);
    }
}

void hf_message_encode(struct hf_buf *buf, const struct hf_message *message)
{
    hf_buf_u8(buf, FORMAT);
    hf_buf_u8(buf, (uint8_t)message->kind);
    hf_buf_u8(buf, message->version);
    hf_buf_u64(buf, message->term);
    switch (message->kind) {
    case HF_MESSAGE_HELLO:
        break;
    case HF_MESSAGE_APPEND:
        encode_append(buf, &message->append);
        break;
    case HF_MESSAGE_APPEND_RESULT:
    case HF_MESSAGE_VOTE_RESULT:
        encode_result(buf, message);
        break;
    case HF_MESSAGE_VOTE:
        encode_end_of_log(buf, &message->vote);
        hf_buf_u8(buf, message->vote.pre_vote);
        hf_buf_u8(buf, message->vote.disrupt);
        break;
    case HF_MESSAGE_TIMEOUT_NOW:
        encode_end_of_log(buf, &message->vote);
        break;
    case HF_MESSAGE_ROUND:
    case HF_MESSAGE_ECHO:
        hf_buf_u64(buf, message->round);
        break;
    case HF_MESSAGE_LEADER_LOST:
        encode_end_of_log(buf, &message->vote);
        break;
    }
}

/* ---- Decoding -----------------------------------------------------------*/

static uint16_t get_u16(struct hf_reader *reader)
{
    uint16_t low = hf_reader_u8(reader);

    return (uint16_t)(low | hf_reader_u8(reader) << 8);
}

static bool get_bool(struct hf_reader *reader)
{
    uint8_t byte = hf_reader_u8(reader);

    if (byte > 1)
        reader->failed = true;
    return byte == 1;
}

/* Check the index and the term of an entry: index 0 has the term 0, and any
 * other index a term from 1 to `term_max`. */
static void check_position(struct hf_reader *reader, uint64_t index,
                           uint64_t term, uint64_t term_max)
{
    if ((index == 0) != (term == 0) || term > term_max)
        reader->failed = true;
}

/* Terms do not decrease in a log, so they are at least `term`, that of the
 * entry before these, and at most `term_max`, that of the leader. */
static void decode_entries(struct hf_reader *reader, struct hf_entry *entries,
                           uint32_t count, uint64_t term, uint64_t term_max)
{
    for (uint32_t i = 0; i < count; i++) {
        struct hf_entry *entry = &entries[i];

        entry->term = hf_reader_u64(reader);
        entry->kind = (enum hf_entry_kind)hf_reader_u8(reader);
        entry->data = hf_reader_bytes(reader, HF_RAFT_ENTRY_MAX);
        if (entry->term < term || entry->term == 0 || entry->term > term_max ||
            entry->kind < HF_ENTRY_COMMAND || entry->kind > HF_ENTRY_CHANGE)
            reader->failed = true;
        term = entry->term;
    }
}

static enum hf_err decode_append(struct hf_reader *reader,
                                 struct hf_message *message)
{
    struct hf_message_append *append = &message->append;
    struct hf_entry *entries;

    append->prev_index = hf_reader_u64(reader);
    append->prev_term = hf_reader_u64(reader);
    append->commit = hf_reader_u64(reader);
    append->count = hf_reader_u32(reader);
    check_position(reader, append->prev_index, append->prev_term,
                   message->term);
    if (reader->failed || append->count > HF_RAFT_APPEND_ENTRIES ||
        append->count > reader->size / ENTRY_OVERHEAD ||
        append->prev_index > UINT64_MAX / 2)
        return HF_EPROTO;
    if (append->count == 0)
        return HF_OK;
    entries = malloc(append->count * sizeof(*entries));
    if (!entries)
        return HF_ENOMEM;
    decode_entries(reader, entries, append->count, append->prev_term,
                   message->term);
    append->entries = entries;
    return HF_OK;
}

static void decode_vote(struct hf_reader *reader, struct hf_message *message)
{
    message->vote.last_index = hf_reader_u64(reader);
    message->vote.last_term = hf_reader_u64(reader);
    check_position(reader, message->vote.last_index, message->vote.last_term,
                   message->term);
    if (message->kind == HF_MESSAGE_VOTE) {
        message->vote.pre_vote = get_bool(reader);
        message->vote.disrupt = get_bool(reader);
    }
}

static void decode_raft_result(struct hf_reader *reader,
                               struct hf_message *message)
{
    if (message->kind == HF_MESSAGE_APPEND_RESULT) {
        message->append_result.rejected = hf_reader_u64(reader);
        message->append_result.last_index = hf_reader_u64(reader);
        message->append_result.features = get_u16(reader);
        message->append_result.capacity = get_u16(reader);
    } else {
        message->vote_result.granted = get_bool(reader);
        message->vote_result.pre_vote = get_bool(reader);
        message->vote_result.features = get_u16(reader);
        message->vote_result.capacity = get_u16(reader);
    }
}

static enum hf_err decode_body(struct hf_reader *reader,
                               struct hf_message *message)
{
    switch (message->kind) {
    case HF_MESSAGE_HELLO:
        return HF_OK;
    case HF_MESSAGE_APPEND:
        return decode_append(reader, message);
    case HF_MESSAGE_APPEND_RESULT:
    case HF_MESSAGE_VOTE_RESULT:
        decode_raft_result(reader, message);
        return HF_OK;
    case HF_MESSAGE_VOTE:
    case HF_MESSAGE_TIMEOUT_NOW:
    case HF_MESSAGE_LEADER_LOST:
        decode_vote(reader, message);
        return HF_OK;
    case HF_MESSAGE_ROUND:
    case HF_MESSAGE_ECHO:
        message->round = hf_reader_u64(reader);
        return HF_OK;
    }
    return HF_EPROTO;
}

enum hf_err hf_message_decode(struct hf_reader *reader,
                              struct hf_message *message)
{
    struct hf_message decoded = {0};
    uint8_t format = hf_reader_u8(reader);
    enum hf_err err;

    decoded.kind = (enum hf_message_kind)hf_reader_u8(reader);
    decoded.version = hf_reader_u8(reader);
    decoded.term = hf_reader_u64(reader);
    if (reader->failed || format != FORMAT)
        return HF_EPROTO;
    if (decoded.term > UINT64_MAX / 2)
        return HF_EPROTO;
    err = decode_body(reader, &decoded);
    if (!err && (reader->failed || reader->size > 0))
        err = HF_EPROTO;
    if (err) {
        hf_message_fini(&decoded);
        return err;
    }
    *message = decoded;
    return HF_OK;
}

void hf_message_fini(struct hf_message *message)
{
    if (message->kind == HF_MESSAGE_APPEND) {
        free((void *)(uintptr_t)message->append.entries);
        message->append.entries = NULL;
    }
}
