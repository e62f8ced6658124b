#include "wire/protocol.h"

#include "base/assert.h"

const char *hf_protocol_claim_name(enum hf_claim_state state)
{
    static const char *const names[] = {
#define ROW(name, text) text,
        HF_CLAIMS(ROW)
#undef ROW
    };

    HF_ASSERT(state < HF_CLAIM_COUNT);
    return names[state];
}

enum {
    INFO_HELD = 1,
    INFO_FORCED = 2,
    INFO_FLAGS = 3
};

static void encode_string(const char *text, struct hf_buf *buf)
{
    hf_buf_bytes(buf, text, strlen(text) + 1);
}

/* Read a string with its NUL. On failure sets reader->failed and returns "". */
static const char *decode_string(struct hf_reader *reader)
{
    struct hf_bytes bytes = hf_reader_bytes(reader, HF_NOTE_MAX + 1);

    if (bytes.size == 0 || memchr(bytes.data, '\0', bytes.size) !=
                               (const char *)bytes.data + bytes.size - 1) {
        reader->failed = true;
        return "";
    }
    return bytes.data;
}

void hf_protocol_encode_info(const struct hf_info *info, struct hf_buf *buf)
{
    unsigned flags =
        (info->held ? INFO_HELD : 0U) | (info->forced ? INFO_FORCED : 0U);

    hf_buf_u8(buf, (uint8_t)flags);
    hf_buf_u64(buf, info->index);
    hf_buf_u64(buf, info->token);
    hf_buf_u32(buf, info->held_ms);
    hf_buf_u32(buf, info->left_ms);
    hf_buf_u32(buf, info->waiters);
    hf_buf_bytes(buf, info->key.data, info->key.size);
    hf_buf_bytes(buf, info->value.data, info->value.size);
    encode_string(info->owner, buf);
    encode_string(info->note, buf);
}

enum hf_err hf_protocol_decode_info(struct hf_info *info, struct hf_bytes bytes)
{
    struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
    struct hf_info read = {0};
    unsigned flags = hf_reader_u8(&reader);
    struct hf_bytes key;

    read.held = flags & INFO_HELD;
    read.forced = flags & INFO_FORCED;
    read.index = hf_reader_u64(&reader);
    read.token = hf_reader_u64(&reader);
    read.held_ms = hf_reader_u32(&reader);
    read.left_ms = hf_reader_u32(&reader);
    read.waiters = hf_reader_u32(&reader);
    key = hf_reader_bytes(&reader, HF_KEY_MAX);
    read.key = (struct hf_key){key.data, key.size};
    read.value = hf_reader_bytes(&reader, HF_VALUE_MAX);
    read.owner = decode_string(&reader);
    read.note = decode_string(&reader);
    if (reader.failed || reader.size > 0 || flags > INFO_FLAGS || key.size == 0)
        return HF_EPROTO;
    *info = read;
    return HF_OK;
}

void hf_protocol_encode_event(const struct hf_event *event, struct hf_buf *buf)
{
    hf_buf_u32(buf, (uint32_t)event->kind);
    hf_buf_u8(buf, event->freed);
    hf_buf_u64(buf, event->index);
    hf_buf_u64(buf, event->token);
    hf_buf_bytes(buf, event->key.data, event->key.size);
    encode_string(event->owner, buf);
}

/* An event has one kind, which is one bit of HF_EVENT_ANY. */
static bool is_event_kind(uint32_t kind)
{
    return kind != 0 && (kind & (kind - 1)) == 0 && (kind & HF_EVENT_ANY) != 0;
}

enum hf_err hf_protocol_decode_event(struct hf_event *event,
                                     struct hf_bytes bytes)
{
    struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
    struct hf_event read = {0};
    uint32_t kind = hf_reader_u32(&reader);
    unsigned freed = hf_reader_u8(&reader);
    struct hf_bytes key;

    read.kind = (enum hf_event_kind)kind;
    read.freed = freed;
    read.index = hf_reader_u64(&reader);
    read.token = hf_reader_u64(&reader);
    key = hf_reader_bytes(&reader, HF_KEY_MAX);
    read.key = (struct hf_key){key.data, key.size};
    read.owner = decode_string(&reader);
    if (reader.failed || reader.size > 0 || freed > 1 || !is_event_kind(kind))
        return HF_EPROTO;
    *event = read;
    return HF_OK;
}
