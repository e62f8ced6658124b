#include "node/packet.h"

#include "base/limits.h"

#define MAGIC 0x52504648 /* "HFPR" */

/* Flags of a REPLY. */
#define REPLY_NO_SPACE 1
#define REPLY_IS_FULL 2

/* A REPLY of a node that does not lead has this number in the field of the
 * outcome's error; no outcome has it. */
#define REPLY_NO_LEADER HF_ESTATE

/* Returns HF_EPROTO if the message was too short, or if bytes are left over. */
static enum hf_err end_of(const struct hf_reader *reader)
{
    return reader->failed || reader->size > 0 ? HF_EPROTO : HF_OK;
}

static struct hf_bytes rest_of(struct hf_reader *reader)
{
    struct hf_bytes rest = {reader->data, reader->size};

    reader->data += reader->size;
    reader->size = 0;
    return rest;
}

void hf_packet_encode_hello(struct hf_buf *buf,
                            const struct hf_packet_hello *hello)
{
    hf_buf_u32(buf, MAGIC);
    hf_buf_u32(buf, hello->protocol_min);
    hf_buf_u32(buf, hello->protocol_max);
    hf_buf_raw(buf, hello->cluster.bytes, sizeof(hello->cluster.bytes));
    hf_buf_u64(buf, hello->from);
    hf_buf_u64(buf, hello->to);
    hf_buf_u64(buf, hello->incarnation);
    hf_buf_u32(buf, hello->version);
}

/* Ignores bytes that are left over: a later protocol may append fields. */
enum hf_err hf_packet_decode_hello(struct hf_reader *reader,
                                   struct hf_packet_hello *hello)
{
    bool is_ours = hf_reader_u32(reader) == MAGIC;

    hello->protocol_min = hf_reader_u32(reader);
    hello->protocol_max = hf_reader_u32(reader);
    hf_reader_raw(reader, hello->cluster.bytes, sizeof(hello->cluster.bytes));
    hello->from = hf_reader_u64(reader);
    hello->to = hf_reader_u64(reader);
    hello->incarnation = hf_reader_u64(reader);
    hello->version = hf_reader_u32(reader);
    return is_ours && !reader->failed ? HF_OK : HF_EPROTO;
}

void hf_packet_encode_forward(struct hf_buf *buf,
                              const struct hf_packet_forward *forward)
{
    hf_buf_u64(buf, forward->number);
    hf_buf_u32(buf, forward->remaining_ms);
    hf_buf_raw(buf, forward->command.data, forward->command.size);
}

enum hf_err hf_packet_decode_forward(struct hf_reader *reader,
                                     struct hf_packet_forward *forward)
{
    forward->number = hf_reader_u64(reader);
    forward->remaining_ms = hf_reader_u32(reader);
    forward->command = rest_of(reader);
    return end_of(reader);
}

void hf_packet_encode_reply(struct hf_buf *buf,
                            const struct hf_packet_reply *reply)
{
    enum hf_err err = reply->is_leader ? reply->outcome.err : REPLY_NO_LEADER;

    hf_buf_u64(buf, reply->number);
    hf_buf_u32(buf, (uint32_t)err);
    hf_buf_u8(buf, (reply->outcome.no_space ? REPLY_NO_SPACE : 0) |
                       (reply->outcome.is_full ? REPLY_IS_FULL : 0));
    hf_buf_u64(buf, reply->outcome.index);
    hf_buf_u64(buf, (uint64_t)reply->outcome.age_ms);
    hf_command_encode_result(&reply->outcome.result, buf);
}

enum hf_err hf_packet_decode_reply(struct hf_reader *reader,
                                   struct hf_packet_reply *reply)
{
    uint8_t flags;

    reply->number = hf_reader_u64(reader);
    reply->outcome.err = (enum hf_err)(int32_t)hf_reader_u32(reader);
    flags = hf_reader_u8(reader);
    reply->outcome.no_space = (flags & REPLY_NO_SPACE) != 0;
    reply->outcome.is_full = (flags & REPLY_IS_FULL) != 0;
    reply->outcome.index = hf_reader_u64(reader);
    reply->outcome.age_ms = (int64_t)hf_reader_u64(reader);
    hf_command_read_result(&reply->outcome.result, reader);
    reply->is_leader = reply->outcome.err != REPLY_NO_LEADER;
    if (!hf_err_is_known(reply->outcome.err))
        return HF_EPROTO;
    return end_of(reader);
}

void hf_packet_encode_read_reply(struct hf_buf *buf,
                                 const struct hf_packet_read_reply *reply)
{
    hf_buf_u64(buf, reply->number);
    hf_buf_u8(buf, reply->is_leader);
    hf_buf_u64(buf, reply->index);
}

enum hf_err hf_packet_decode_read_reply(struct hf_reader *reader,
                                        struct hf_packet_read_reply *reply)
{
    reply->number = hf_reader_u64(reader);
    reply->is_leader = hf_reader_u8(reader) != 0;
    reply->index = hf_reader_u64(reader);
    return end_of(reader);
}

void hf_packet_encode_push(struct hf_buf *buf,
                           const struct hf_node_grant *grant)
{
    hf_buf_u64(buf, grant->session);
    hf_buf_raw(buf, grant->nonce.bytes, HF_NONCE_SIZE);
    hf_buf_u64(buf, grant->token);
    hf_buf_u64(buf, (uint64_t)grant->age_ms);
}

enum hf_err hf_packet_decode_push(struct hf_reader *reader,
                                  struct hf_node_grant *grant)
{
    grant->session = hf_reader_u64(reader);
    hf_reader_raw(reader, grant->nonce.bytes, HF_NONCE_SIZE);
    grant->token = hf_reader_u64(reader);
    grant->age_ms = (int64_t)hf_reader_u64(reader);
    return end_of(reader);
}

void hf_packet_encode_snapshot(struct hf_buf *buf,
                               const struct hf_packet_snapshot *part)
{
    hf_buf_u64(buf, part->term);
    hf_buf_u64(buf, part->index);
    hf_buf_u64(buf, part->index_term);
    hf_buf_u64(buf, part->size);
    hf_buf_u64(buf, part->offset);
    hf_buf_raw(buf, part->data.data, part->data.size);
}

enum hf_err hf_packet_decode_snapshot(struct hf_reader *reader,
                                      struct hf_packet_snapshot *part)
{
    part->term = hf_reader_u64(reader);
    part->index = hf_reader_u64(reader);
    part->index_term = hf_reader_u64(reader);
    part->size = hf_reader_u64(reader);
    part->offset = hf_reader_u64(reader);
    part->data = rest_of(reader);
    if (part->index == 0 || part->index_term == 0 ||
        part->data.size > HF_NODE_SNAPSHOT_PART)
        return HF_EPROTO;
    return end_of(reader);
}

void hf_packet_encode_ack(struct hf_buf *buf,
                          const struct hf_packet_snapshot_ack *ack)
{
    hf_buf_u64(buf, ack->index);
    hf_buf_u64(buf, ack->have);
}

enum hf_err hf_packet_decode_ack(struct hf_reader *reader,
                                 struct hf_packet_snapshot_ack *ack)
{
    ack->index = hf_reader_u64(reader);
    ack->have = hf_reader_u64(reader);
    return end_of(reader);
}
