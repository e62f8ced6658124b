/* mux_reply.c - the replies and pushes of MUX mode. */
#include "base/assert.h"
#include "wire/mux.h"

/* ---- Encoding -----------------------------------------------------------*/

static void begin_reply(const struct hf_mux_reply *reply, size_t words,
                        struct hf_buf *buf)
{
    hf_resp_write_array(buf, 1 + words);
    hf_resp_write_integer(buf, (int64_t)reply->id);
}

static void write_error_reply(const struct hf_mux_reply *reply,
                              struct hf_buf *buf)
{
    char text[sizeof(((struct hf_error *)0)->text)] = {0};
    size_t size = reply->text.size;

    if (size >= sizeof(text))
        size = sizeof(text) - 1;
    hf_copy(text, reply->text.data, size);
    begin_reply(reply, 1, buf);
    if (reply->no_space)
        hf_resp_write_error(buf, HF_CODE_NOSPACE, text);
    else if (reply->session_gone)
        hf_resp_write_error(buf, HF_CODE_GONE, text);
    else
        hf_code_write(buf, reply->err, size > 0 ? text : NULL);
}

static void write_lookup(const struct hf_mux_reply *reply, struct hf_buf *buf)
{
    begin_reply(reply, 5, buf);
    hf_resp_write_text(buf, hf_protocol_claim_name(reply->state));
    hf_resp_write_integer(buf, (int64_t)reply->token);
    hf_resp_write_integer(buf, reply->generation);
    hf_resp_write_integer(buf, reply->position);
    hf_resp_write_integer(buf, (int64_t)reply->index);
}

void hf_mux_reply_encode(const struct hf_mux_reply *reply, enum hf_verb verb,
                         struct hf_buf *buf)
{
    if (reply->err) {
        write_error_reply(reply, buf);
        return;
    }
    switch (verb) {
    case HF_VERB_OPEN:
        begin_reply(reply, 1, buf);
        hf_resp_write_integer(buf, (int64_t)reply->session);
        break;
    case HF_VERB_DO:
        begin_reply(reply, 3, buf);
        hf_resp_write_bulk(buf, reply->result.data, reply->result.size);
        hf_resp_write_integer(buf, reply->age_ms);
        hf_resp_write_integer(buf, (int64_t)reply->index);
        break;
    case HF_VERB_LOOKUP:
        write_lookup(reply, buf);
        break;
    case HF_VERB_WATCH:
        begin_reply(reply, 1, buf);
        hf_resp_write_integer(buf, (int64_t)reply->index);
        break;
    case HF_VERB_STATUS:
    case HF_VERB_QUORUM:
        begin_reply(reply, 1, buf);
        hf_resp_write_bulk(buf, reply->result.data, reply->result.size);
        break;
    default:
        HF_ASSERT(verb != HF_VERB_READ && verb != HF_VERB_LIST);
        begin_reply(reply, 1, buf);
        hf_resp_write_simple(buf, "OK");
    }
}

void hf_mux_reply_encode_infos(const struct hf_mux_reply *reply,
                               enum hf_verb verb, size_t count,
                               struct hf_buf *buf)
{
    bool is_list = verb == HF_VERB_LIST;

    begin_reply(reply, (is_list ? 2 : 1) + count, buf);
    hf_resp_write_integer(buf, (int64_t)reply->index);
    if (is_list)
        hf_resp_write_integer(buf, reply->more);
}

/* The name of each push, and how many words follow it. */
static const struct {
    const char *name;
    size_t words;
} pushes[] = {
    [HF_MUX_PUSH_GRANT] = {"GRANT", 4},     [HF_MUX_PUSH_EVENT] = {"EVENT", 2},
    [HF_MUX_PUSH_LEADER] = {"LEADER", 2},   [HF_MUX_PUSH_FULL] = {"FULL", 0},
    [HF_MUX_PUSH_RECHECK] = {"RECHECK", 1}, [HF_MUX_PUSH_VOTE] = {"VOTE", 2},
};

void hf_mux_push_encode(const struct hf_mux_push *push, struct hf_buf *buf)
{
    HF_ASSERT(push->kind < HF_MUX_PUSH_COUNT);
    hf_resp_write_array(buf, 2 + pushes[push->kind].words);
    hf_resp_write_integer(buf, 0);
    hf_resp_write_text(buf, pushes[push->kind].name);
    switch (push->kind) {
    case HF_MUX_PUSH_GRANT:
        hf_resp_write_bulk(buf, push->nonce.bytes, sizeof(push->nonce.bytes));
        hf_resp_write_integer(buf, (int64_t)push->token);
        hf_resp_write_integer(buf, push->generation);
        hf_resp_write_integer(buf, push->age_ms);
        break;
    case HF_MUX_PUSH_EVENT:
        hf_resp_write_integer(buf, (int64_t)push->watch);
        hf_resp_write_bulk(buf, push->event.data, push->event.size);
        break;
    case HF_MUX_PUSH_LEADER:
        hf_resp_write_integer(buf, (int64_t)push->leader);
        hf_resp_write_bulk(buf, push->address.data, push->address.size);
        break;
    case HF_MUX_PUSH_RECHECK:
        hf_resp_write_integer(buf, (int64_t)push->token);
        break;
    case HF_MUX_PUSH_VOTE:
        hf_resp_write_bulk(buf, push->claim.data, push->claim.size);
        hf_resp_write_bulk(buf, push->reply.data, push->reply.size);
        break;
    default:
        break;
    }
}

/* ---- Decoding -----------------------------------------------------------*/

/* The words of a reply after its id, without nested arrays. */
struct words {
    const struct hf_resp_value *values;
    size_t count;
};

static bool read_reply(const struct hf_resp_message *message, uint64_t *id,
                       struct words *words)
{
    const struct hf_resp_value *first = message->values;

    if (first->kind != HF_RESP_ARRAY || first->size < 2 ||
        message->count != 1 + (size_t)first->size)
        return false;
    *words = (struct words){first + 2, message->count - 2};
    return hf_resp_number(first + 1, HF_MUX_ID_MAX, id);
}

enum hf_err hf_mux_reply_id(const struct hf_resp_message *message, uint64_t *id)
{
    struct words words;

    return read_reply(message, id, &words) ? HF_OK : HF_EPROTO;
}

static bool read_u64(const struct hf_resp_value *value, uint64_t *x)
{
    return hf_resp_number(value, UINT64_MAX, x);
}

static bool read_age(const struct hf_resp_value *value, int64_t *age_ms)
{
    if (value->kind != HF_RESP_INTEGER || value->integer < HF_MUX_AGE_UNKNOWN)
        return false;
    *age_ms = value->integer;
    return true;
}

static bool read_bulk(const struct hf_resp_value *value, struct hf_bytes *bytes)
{
    if (value->kind != HF_RESP_BULK)
        return false;
    *bytes = hf_resp_bytes(value);
    return true;
}

static bool read_state(const struct hf_resp_value *value,
                       enum hf_claim_state *state)
{
    for (unsigned i = 0; i < HF_CLAIM_COUNT; i++) {
        *state = (enum hf_claim_state)i;
        if (hf_resp_is_string(value) &&
            hf_bytes_equal(hf_resp_bytes(value),
                           hf_bytes_of(hf_protocol_claim_name(*state))))
            return true;
    }
    return false;
}

static bool read_lookup(struct hf_mux_reply *reply, struct words words)
{
    return words.count == 5 && read_state(&words.values[0], &reply->state) &&
           read_u64(&words.values[1], &reply->token) &&
           hf_resp_u32(&words.values[2], &reply->generation) &&
           hf_resp_u32(&words.values[3], &reply->position) &&
           read_u64(&words.values[4], &reply->index);
}

static bool read_infos(struct hf_mux_reply *reply, struct words words,
                       size_t skipped)
{
    if (words.count < skipped)
        return false;
    reply->infos = words.values + skipped;
    reply->info_count = words.count - skipped;
    for (size_t i = 0; i < reply->info_count; i++)
        if (reply->infos[i].kind != HF_RESP_BULK)
            return false;
    return true;
}

static bool read_list(struct hf_mux_reply *reply, struct words words)
{
    uint64_t more;

    if (!read_infos(reply, words, 2) ||
        !read_u64(&words.values[0], &reply->index) ||
        !hf_resp_number(&words.values[1], 1, &more))
        return false;
    reply->more = more == 1;
    return true;
}

static bool read_result(struct hf_mux_reply *reply, enum hf_verb verb,
                        struct words words)
{
    const struct hf_resp_value *values = words.values;

    switch (verb) {
    case HF_VERB_OPEN:
        return words.count == 1 && read_u64(&values[0], &reply->session);
    case HF_VERB_DO:
        return words.count == 3 && read_bulk(&values[0], &reply->result) &&
               read_age(&values[1], &reply->age_ms) &&
               read_u64(&values[2], &reply->index);
    case HF_VERB_LOOKUP:
        return read_lookup(reply, words);
    case HF_VERB_READ:
        return words.count == 2 && read_infos(reply, words, 1) &&
               read_u64(&values[0], &reply->index);
    case HF_VERB_LIST:
        return read_list(reply, words);
    case HF_VERB_WATCH:
        return words.count == 1 && read_u64(&values[0], &reply->index);
    case HF_VERB_STATUS:
    case HF_VERB_QUORUM:
        return words.count == 1 && read_bulk(&values[0], &reply->result);
    default:
        return words.count == 1 && hf_resp_equals(&values[0], "OK");
    }
}

static void read_error(struct hf_mux_reply *reply,
                       const struct hf_resp_value *value)
{
    reply->err = hf_code_read(value, &reply->text);
    reply->no_space = hf_code_is(value, HF_CODE_NOSPACE);
    reply->session_gone = hf_code_is(value, HF_CODE_GONE);
}

enum hf_err hf_mux_reply_decode(struct hf_mux_reply *reply, enum hf_verb verb,
                                const struct hf_resp_message *message)
{
    struct hf_mux_reply read = {.age_ms = HF_MUX_AGE_UNKNOWN};
    struct words words;

    if (!read_reply(message, &read.id, &words))
        return HF_EPROTO;
    if (words.count == 1 && words.values[0].kind == HF_RESP_ERROR)
        read_error(&read, &words.values[0]);
    else if (!read_result(&read, verb, words))
        return HF_EPROTO;
    *reply = read;
    return HF_OK;
}

/* Returns HF_MUX_PUSH_COUNT if `word` is not the name of a push. */
static enum hf_mux_push_kind read_push_kind(const struct hf_resp_value *word)
{
    unsigned kind = 0;

    while (kind < HF_MUX_PUSH_COUNT && !hf_resp_equals(word, pushes[kind].name))
        kind++;
    return (enum hf_mux_push_kind)kind;
}

/* Read the words that follow the name of the push. */
static bool read_push(struct hf_mux_push *push,
                      const struct hf_resp_value *values)
{
    switch (push->kind) {
    case HF_MUX_PUSH_GRANT:
        return hf_resp_nonce(&values[0], &push->nonce) &&
               read_u64(&values[1], &push->token) &&
               hf_resp_u32(&values[2], &push->generation) &&
               read_age(&values[3], &push->age_ms);
    case HF_MUX_PUSH_EVENT:
        return read_u64(&values[0], &push->watch) &&
               read_bulk(&values[1], &push->event);
    case HF_MUX_PUSH_LEADER:
        return read_u64(&values[0], &push->leader) &&
               read_bulk(&values[1], &push->address);
    case HF_MUX_PUSH_RECHECK:
        return read_u64(&values[0], &push->token);
    case HF_MUX_PUSH_VOTE:
        return read_bulk(&values[0], &push->claim) &&
               push->claim.size == HF_MUX_CLAIM_SIZE &&
               read_bulk(&values[1], &push->reply);
    default:
        return true;
    }
}

enum hf_err hf_mux_push_decode(struct hf_mux_push *push,
                               const struct hf_resp_message *message)
{
    struct hf_mux_push read = {0};
    struct words words;
    uint64_t id;

    if (!read_reply(message, &id, &words) || id != 0 || words.count == 0 ||
        !hf_resp_is_string(&words.values[0]))
        return HF_EPROTO;
    read.kind = read_push_kind(&words.values[0]);
    if (read.kind == HF_MUX_PUSH_COUNT)
        return HF_EUNSUPPORTED;
    if (words.count != 1 + pushes[read.kind].words ||
        !read_push(&read, words.values + 1))
        return HF_EPROTO;
    *push = read;
    return HF_OK;
}
