#include "core/quorum/message.h"

#define FORMAT 1 /* the first byte of a message */

/* ---- Flags --------------------------------------------------------------*/

/* Bits of a byte of flags. */
enum request_flag {
    REQUEST_FAST = 1,
    REQUEST_QUEUE = 2,
    REQUEST_IS_QUEUED = 4,
    REQUEST_KEEPS_DEADLINE = 8,
    REQUEST_NOW = 16,
    REQUEST_FLAGS = 31,
};

enum report_flag {
    REPORT_FORCED = 1,
    REPORT_VOTE = 2,
    REPORT_FAST = 4,
    REPORT_FLAGS = 7,
};

static uint8_t flag(bool is_set, uint8_t bit)
{
    return is_set ? bit : 0;
}

/* ---- Parts --------------------------------------------------------------*/

static void encode_data(const struct hf_claim_data *data, struct hf_buf *buf)
{
    hf_buf_bytes(buf, data->value.data, data->value.size);
    hf_buf_bytes(buf, data->note.data, data->note.size);
    hf_buf_bytes(buf, data->owner.data, data->owner.size);
}

static void decode_data(struct hf_claim_data *data, struct hf_reader *reader)
{
    data->value = hf_reader_bytes(reader, HF_VALUE_MAX);
    data->note = hf_reader_bytes(reader, HF_NOTE_MAX);
    data->owner = hf_reader_bytes(reader, HF_LABEL_MAX);
}

static void encode_report(const struct hf_report *report, struct hf_buf *buf)
{
    hf_buf_u8(buf, (uint8_t)report->state);
    hf_buf_u8(buf, (uint8_t)(flag(report->forced, REPORT_FORCED) |
                             flag(report->has_vote, REPORT_VOTE) |
                             flag(report->vote_is_fast, REPORT_FAST)));
    hf_buf_u64(buf, report->promised);
    if (report->state != HF_REPORT_NONE) {
        hf_buf_u64(buf, report->ballot);
        hf_buf_u64(buf, report->token);
        hf_buf_raw(buf, &report->holder, sizeof(report->holder));
        hf_buf_u32(buf, report->held_ms);
        hf_buf_u32(buf, report->left_ms);
    }
    if (report->has_vote) {
        hf_buf_u64(buf, report->vote_number);
        hf_buf_raw(buf, &report->voter, sizeof(report->voter));
        hf_buf_u32(buf, report->vote_age_ms);
        hf_buf_u32(buf, report->vote_left_ms);
    }
    hf_buf_u32(buf, report->idle_ms);
    hf_buf_u32(buf, report->waiters);
    hf_buf_u8(buf, report->ended_count);
    hf_buf_raw(buf, report->ended,
               report->ended_count * sizeof(report->ended[0]));
    encode_data(&report->data, buf);
}

static void decode_lease(struct hf_report *report, struct hf_reader *reader)
{
    report->ballot = hf_reader_u64(reader);
    report->token = hf_reader_u64(reader);
    hf_reader_raw(reader, &report->holder, sizeof(report->holder));
    report->held_ms = hf_reader_u32(reader);
    report->left_ms = hf_reader_u32(reader);
}

static void decode_report_vote(struct hf_report *report,
                               struct hf_reader *reader)
{
    report->vote_number = hf_reader_u64(reader);
    hf_reader_raw(reader, &report->voter, sizeof(report->voter));
    report->vote_age_ms = hf_reader_u32(reader);
    report->vote_left_ms = hf_reader_u32(reader);
}

static void decode_report(struct hf_report *report, struct hf_reader *reader)
{
    uint8_t state = hf_reader_u8(reader), flags = hf_reader_u8(reader);

    *report = (struct hf_report){
        .state = state,
        .forced = flags & REPORT_FORCED,
        .has_vote = flags & REPORT_VOTE,
        .vote_is_fast = flags & REPORT_FAST,
        .promised = hf_reader_u64(reader),
    };
    if (state >= HF_REPORT_STATES || flags > REPORT_FLAGS ||
        (report->vote_is_fast && !report->has_vote))
        reader->failed = true;
    if (state != HF_REPORT_NONE)
        decode_lease(report, reader);
    if (report->has_vote)
        decode_report_vote(report, reader);
    report->idle_ms = hf_reader_u32(reader);
    report->waiters = hf_reader_u32(reader);
    report->ended_count = hf_reader_u8(reader);
    if (report->ended_count > HF_REPORT_ENDED_MAX) {
        reader->failed = true;
        return;
    }
    hf_reader_raw(reader, report->ended,
                  report->ended_count * sizeof(report->ended[0]));
    decode_data(&report->data, reader);
}

/* ---- Requests -----------------------------------------------------------*/

/* Every kind has the same layout, without data where it has none: requests are
 * small, and the numbers that a kind does not use are 0. */
static bool has_data(enum hf_quorum_request_kind kind)
{
    return kind == HF_QUORUM_ASK || kind == HF_QUORUM_COMMIT;
}

void hf_message_encode_request(const struct hf_quorum_request *request,
                               struct hf_buf *buf)
{
    hf_buf_u8(buf, FORMAT);
    hf_buf_u8(buf, (uint8_t)request->kind);
    hf_buf_u8(buf,
              (uint8_t)(flag(request->fast, REQUEST_FAST) |
                        flag(request->queue, REQUEST_QUEUE) |
                        flag(request->is_queued, REQUEST_IS_QUEUED) |
                        flag(request->keeps_deadline, REQUEST_KEEPS_DEADLINE) |
                        flag(request->now, REQUEST_NOW)));
    hf_buf_bytes(buf, request->key.data, request->key.size);
    hf_buf_raw(buf, &request->nonce, sizeof(request->nonce));
    hf_buf_u64(buf, request->number);
    hf_buf_u64(buf, request->token);
    hf_buf_u64(buf, request->ballot);
    hf_buf_u64(buf, request->ticket);
    hf_buf_u32(buf, request->serial);
    hf_buf_u32(buf, request->lease_ms);
    if (has_data(request->kind))
        encode_data(&request->data, buf);
}

/* A claim commits its token under that number or a higher one, and ends with a
 * number that is at least its ballot. */
static bool is_valid_request(const struct hf_quorum_request *request)
{
    if (request->key.size == 0 || request->lease_ms > HF_LEASE_MAX_MS)
        return false;
    switch (request->kind) {
    case HF_QUORUM_ASK:
        return request->number > 0 && request->ticket > 0 &&
               request->ticket <= request->number && request->lease_ms > 0 &&
               request->serial > 0;
    case HF_QUORUM_PREPARE:
        return request->number > 0;
    case HF_QUORUM_COMMIT:
        return request->token > 0 && request->token <= request->number &&
               request->lease_ms > 0;
    case HF_QUORUM_RENEW:
        return request->token > 0 && request->lease_ms > 0;
    case HF_QUORUM_END:
        return request->ballot <= request->number;
    case HF_QUORUM_FORCE:
        return request->token > 0;
    case HF_QUORUM_READ:
    case HF_QUORUM_REQUEST_KINDS:
        break;
    }
    return true;
}

/* Everything after the key. */
static void decode_request_body(struct hf_quorum_request *request,
                                struct hf_reader *reader)
{
    hf_reader_raw(reader, &request->nonce, sizeof(request->nonce));
    request->number = hf_reader_u64(reader);
    request->token = hf_reader_u64(reader);
    request->ballot = hf_reader_u64(reader);
    request->ticket = hf_reader_u64(reader);
    request->serial = hf_reader_u32(reader);
    request->lease_ms = hf_reader_u32(reader);
    if (has_data(request->kind))
        decode_data(&request->data, reader);
}

enum hf_err hf_message_decode_request(struct hf_quorum_request *request,
                                      struct hf_bytes bytes)
{
    struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
    uint8_t format = hf_reader_u8(&reader), kind = hf_reader_u8(&reader);
    uint8_t flags = hf_reader_u8(&reader);
    struct hf_bytes key = hf_reader_bytes(&reader, HF_KEY_MAX);
    struct hf_quorum_request decoded = {
        .kind = kind,
        .key = {key.data, key.size},
        .fast = flags & REQUEST_FAST,
        .queue = flags & REQUEST_QUEUE,
        .is_queued = flags & REQUEST_IS_QUEUED,
        .keeps_deadline = flags & REQUEST_KEEPS_DEADLINE,
        .now = flags & REQUEST_NOW,
    };

    if (format != FORMAT || kind == 0 || kind >= HF_QUORUM_REQUEST_KINDS ||
        flags > REQUEST_FLAGS)
        return HF_EPROTO;
    decode_request_body(&decoded, &reader);
    if (reader.failed || reader.size > 0 || !is_valid_request(&decoded))
        return HF_EPROTO;
    *request = decoded;
    return HF_OK;
}

/* ---- Replies ------------------------------------------------------------*/

void hf_message_encode_reply(const struct hf_quorum_reply *reply,
                             struct hf_buf *buf)
{
    hf_buf_u8(buf, FORMAT);
    hf_buf_u8(buf, (uint8_t)reply->kind);
    hf_buf_u8(buf, (uint8_t)reply->end);
    hf_buf_u32(buf, (uint32_t)-reply->err);
    hf_buf_u64(buf, reply->number);
    hf_buf_u64(buf, reply->highest);
    hf_buf_u32(buf, reply->serial);
    hf_buf_u32(buf, reply->anchor);
    hf_buf_u32(buf, reply->age_ms);
    hf_buf_u32(buf, reply->position);
    hf_buf_u32(buf, reply->quiet_ms);
    encode_report(&reply->report, buf);
}

/* The errors with which a master refuses a request. */
static bool is_refusal(enum hf_err err)
{
    return err == HF_OK || err == HF_ELIMIT || err == HF_ENOMEM ||
           err == HF_EINVAL || err == HF_EUNAVAIL;
}

enum hf_err hf_message_decode_reply(struct hf_quorum_reply *reply,
                                    struct hf_bytes bytes)
{
    struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
    uint8_t format = hf_reader_u8(&reader), kind = hf_reader_u8(&reader);
    uint8_t end = hf_reader_u8(&reader);
    uint32_t err = hf_reader_u32(&reader);
    struct hf_quorum_reply decoded = {.kind = kind, .end = end};

    if (format != FORMAT || kind == 0 || kind >= HF_QUORUM_REPLY_KINDS ||
        end >= HF_QUORUM_END_KINDS || err > INT16_MAX)
        return HF_EPROTO;
    decoded.err = (enum hf_err)(-(int)err);
    decoded.number = hf_reader_u64(&reader);
    decoded.highest = hf_reader_u64(&reader);
    decoded.serial = hf_reader_u32(&reader);
    decoded.anchor = hf_reader_u32(&reader);
    decoded.age_ms = hf_reader_u32(&reader);
    decoded.position = hf_reader_u32(&reader);
    decoded.quiet_ms = hf_reader_u32(&reader);
    decode_report(&decoded.report, &reader);
    if (reader.failed || reader.size > 0 || !is_refusal(decoded.err))
        return HF_EPROTO;
    *reply = decoded;
    return HF_OK;
}
