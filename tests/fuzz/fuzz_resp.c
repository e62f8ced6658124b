/* fuzz_resp.c - the messages of a stream do not depend on the pieces in which
 * it arrives, stay within the limits, and are decoded safely.
 *
 * The first byte selects requests or replies and the size of the pieces. */
#include <stdlib.h>

#include "wire/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LIMITS ((struct hf_resp_limits){.elements = 64, .bytes = 512})

/* Append a message in a form that two messages share only if they are equal. */
static void record_message(struct hf_buf *record,
                           const struct hf_resp_message *message)
{
    if (message->count == 0 || message->count > LIMITS.elements)
        abort();
    hf_buf_u8(record, message->is_inline);
    for (size_t i = 0; i < message->count; i++) {
        const struct hf_resp_value *value = &message->values[i];

        hf_buf_u8(record, (uint8_t)value->kind);
        hf_buf_u32(record, value->size);
        if (value->kind == HF_RESP_INTEGER)
            hf_buf_u64(record, (uint64_t)value->integer);
        else if (value->kind <= HF_RESP_BULK)
            hf_buf_raw(record, value->data, value->size);
    }
}

static void decode_info_or_event(const struct hf_resp_value *value)
{
    struct hf_event event;
    struct hf_info info;

    if (value->kind != HF_RESP_BULK)
        return;
    if (!hf_protocol_decode_info(&info, hf_resp_bytes(value)) &&
        (strlen(info.owner) > HF_NOTE_MAX || strlen(info.note) > HF_NOTE_MAX))
        abort();
    if (!hf_protocol_decode_event(&event, hf_resp_bytes(value)) &&
        strlen(event.owner) > HF_NOTE_MAX)
        abort();
}

static void decode_message(const struct hf_resp_message *message, bool requests)
{
    struct hf_mux_request request;
    struct hf_mux_hello hello;
    struct hf_mux_reply reply;
    struct hf_mux_push push;
    struct hf_bytes text;
    const char *cause;

    if (requests) {
        (void)hf_mux_request_decode(&request, message, &cause);
        return;
    }
    (void)hf_mux_hello_decode(&hello, message, &text);
    (void)hf_mux_push_decode(&push, message);
    for (unsigned verb = 0; verb < HF_VERB_COUNT; verb++)
        (void)hf_mux_reply_decode(&reply, (enum hf_verb)verb, message);
    for (size_t i = 0; i < message->count; i++)
        decode_info_or_event(&message->values[i]);
}

static void read_stream(bool requests, const uint8_t *data, size_t size,
                        size_t step, struct hf_buf *record)
{
    enum hf_resp_status status = HF_RESP_MORE;
    struct hf_resp_reader reader;
    struct hf_resp_message message;

    hf_resp_reader_init(&reader, requests, LIMITS);
    for (size_t i = 0; i < size && status == HF_RESP_MORE; i += step) {
        size_t piece = size - i < step ? size - i : step;

        if (hf_resp_reader_feed(&reader, data + i, piece))
            abort();
        while ((status = hf_resp_reader_next(&reader, &message)) ==
               HF_RESP_MESSAGE) {
            record_message(record, &message);
            decode_message(&message, requests);
        }
        if (hf_resp_reader_keep(&reader))
            abort();
    }
    hf_buf_u8(record, (uint8_t)status);
    hf_resp_reader_fini(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_buf whole = {0};
    struct hf_buf pieces = {0};

    if (size < 2)
        return 0;
    read_stream(data[0] & 1, data + 1, size - 1, size, &whole);
    read_stream(data[0] & 1, data + 1, size - 1, 1 + (data[0] >> 1), &pieces);
    if (whole.size != pieces.size ||
        memcmp(whole.data, pieces.data, whole.size) != 0)
        abort();
    hf_buf_fini(&whole);
    hf_buf_fini(&pieces);
    return 0;
}
