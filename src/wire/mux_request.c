/* mux_request.c - the handshake and the requests of MUX mode. */
#include "base/assert.h"
#include "wire/mux.h"

#define HELLO_WORDS 8

/* ---- The handshake ------------------------------------------------------*/

void hf_mux_write_hello(struct hf_buf *buf)
{
    hf_resp_write_array(buf, 3);
    hf_resp_write_text(buf, hf_verb_name(HF_VERB_HELLO));
    hf_resp_write_number(buf, HF_PROTOCOL_VERSION);
    hf_resp_write_text(buf, "MUX");
}

void hf_mux_hello_encode(const struct hf_mux_hello *hello, struct hf_buf *buf)
{
    hf_resp_write_array(buf, HELLO_WORDS);
    hf_resp_write_integer(buf, (int64_t)hello->version);
    hf_resp_write_bulk(buf, hello->cluster.data, hello->cluster.size);
    hf_resp_write_integer(buf, (int64_t)hello->node);
    hf_resp_write_integer(buf, (int64_t)hello->leader);
    hf_resp_write_bulk(buf, hello->address.data, hello->address.size);
    hf_resp_write_integer(buf, (int64_t)hello->table_version);
    hf_resp_write_integer(buf, (int64_t)hello->requests_max);
    hf_resp_write_integer(buf, (int64_t)hello->frame_max);
}

static bool decode_hello(struct hf_mux_hello *hello,
                         const struct hf_resp_value *words)
{
    if (!hf_resp_number(&words[0], HF_MUX_ID_MAX, &hello->version) ||
        !hf_resp_number(&words[2], HF_MUX_ID_MAX, &hello->node) ||
        !hf_resp_number(&words[3], HF_MUX_ID_MAX, &hello->leader) ||
        !hf_resp_number(&words[5], HF_MUX_ID_MAX, &hello->table_version) ||
        !hf_resp_number(&words[6], HF_MUX_ID_MAX, &hello->requests_max) ||
        !hf_resp_number(&words[7], HF_MUX_ID_MAX, &hello->frame_max))
        return false;
    if (!hf_resp_is_string(&words[1]) || !hf_resp_is_string(&words[4]))
        return false;
    hello->cluster = hf_resp_bytes(&words[1]);
    hello->address = hf_resp_bytes(&words[4]);
    return true;
}

enum hf_err hf_mux_hello_decode(struct hf_mux_hello *hello,
                                const struct hf_resp_message *message,
                                struct hf_bytes *text)
{
    const struct hf_resp_value *first = message->values;
    struct hf_mux_hello read;

    *text = (struct hf_bytes){0};
    if (first->kind == HF_RESP_ERROR)
        return hf_code_read(first, text);
    /* A later version may add words at the end. */
    if (first->kind != HF_RESP_ARRAY || first->size < HELLO_WORDS ||
        message->count != 1 + (size_t)first->size ||
        !decode_hello(&read, first + 1))
        return HF_EPROTO;
    *hello = read;
    return HF_OK;
}

/* ---- Requests -----------------------------------------------------------*/

static void write_bool(struct hf_buf *buf, bool x)
{
    hf_resp_write_bulk(buf, x ? "1" : "0", 1);
}

static void write_nonce(struct hf_buf *buf, const struct hf_nonce *nonce)
{
    hf_resp_write_bulk(buf, nonce->bytes, sizeof(nonce->bytes));
}

static void write_key(struct hf_buf *buf, struct hf_key key)
{
    hf_resp_write_bulk(buf, key.data, key.size);
}

static void write_words(const struct hf_mux_request *request,
                        struct hf_buf *buf)
{
    switch (request->verb) {
    case HF_VERB_OPEN:
        write_nonce(buf, &request->secret);
        hf_resp_write_bulk(buf, request->label.data, request->label.size);
        break;
    case HF_VERB_ATTACH:
        hf_resp_write_number(buf, request->session);
        write_nonce(buf, &request->secret);
        break;
    case HF_VERB_DO:
        hf_resp_write_number(buf, request->remaining_ms);
        hf_resp_write_bulk(buf, request->command.data, request->command.size);
        break;
    case HF_VERB_LOOKUP:
        write_key(buf, request->key);
        write_nonce(buf, &request->secret);
        write_bool(buf, request->linearizable);
        break;
    case HF_VERB_READ:
    case HF_VERB_LIST:
        write_key(buf, request->key);
        write_bool(buf, request->linearizable);
        break;
    case HF_VERB_WATCH:
        hf_resp_write_number(buf, request->watch);
        write_key(buf, request->key);
        hf_resp_write_number(buf, request->from);
        write_bool(buf, request->exact);
        break;
    case HF_VERB_UNWATCH:
        hf_resp_write_number(buf, request->watch);
        break;
    default:
        break;
    }
}

void hf_mux_request_encode(const struct hf_mux_request *request,
                           struct hf_buf *buf)
{
    struct hf_verb_words words = hf_verb_words(request->verb, true);

    HF_ASSERT(words.max >= 0);
    hf_resp_write_array(buf, 2 + (size_t)words.max);
    hf_resp_write_number(buf, request->id);
    hf_resp_write_text(buf, hf_verb_name(request->verb));
    write_words(request, buf);
}

/* ---- Decoding -----------------------------------------------------------*/

static bool read_bool(const struct hf_resp_value *word, bool *x)
{
    uint64_t number;

    if (!hf_resp_number(word, 1, &number))
        return false;
    *x = number == 1;
    return true;
}

static bool read_u32(const struct hf_resp_value *word, uint32_t *x)
{
    uint64_t number;

    if (!hf_resp_number(word, UINT32_MAX, &number))
        return false;
    *x = (uint32_t)number;
    return true;
}

static bool read_key(const struct hf_resp_value *word, bool is_prefix,
                     struct hf_key *key)
{
    if (word->size > HF_KEY_MAX || (word->size == 0 && !is_prefix))
        return false;
    *key = (struct hf_key){word->data, word->size};
    return true;
}

static bool read_label(const struct hf_resp_value *word, struct hf_bytes *label)
{
    *label = hf_resp_bytes(word);
    return label->size <= HF_LABEL_MAX &&
           (label->size == 0 || !memchr(label->data, '\0', label->size));
}

/* Read the words after the name. The caller has checked their number. */
static bool read_words(struct hf_mux_request *request,
                       const struct hf_resp_value *words)
{
    bool is_list = request->verb == HF_VERB_LIST;

    switch (request->verb) {
    case HF_VERB_OPEN:
        return hf_resp_nonce(&words[0], &request->secret) &&
               read_label(&words[1], &request->label);
    case HF_VERB_ATTACH:
        return hf_resp_number(&words[0], UINT64_MAX, &request->session) &&
               hf_resp_nonce(&words[1], &request->secret);
    case HF_VERB_DO:
        request->command = hf_resp_bytes(&words[1]);
        return read_u32(&words[0], &request->remaining_ms);
    case HF_VERB_LOOKUP:
        return read_key(&words[0], false, &request->key) &&
               hf_resp_nonce(&words[1], &request->secret) &&
               read_bool(&words[2], &request->linearizable);
    case HF_VERB_READ:
    case HF_VERB_LIST:
        return read_key(&words[0], is_list, &request->key) &&
               read_bool(&words[1], &request->linearizable);
    case HF_VERB_WATCH:
        return hf_resp_number(&words[0], UINT64_MAX, &request->watch) &&
               read_key(&words[1], true, &request->key) &&
               hf_resp_number(&words[2], UINT64_MAX, &request->from) &&
               read_bool(&words[3], &request->exact);
    case HF_VERB_UNWATCH:
        return hf_resp_number(&words[0], UINT64_MAX, &request->watch);
    default:
        return true;
    }
}

enum hf_err hf_mux_request_decode(struct hf_mux_request *request,
                                  const struct hf_resp_message *message,
                                  const char **cause)
{
    const struct hf_resp_value *values = message->values;
    struct hf_verb_words words;

    *request = (struct hf_mux_request){0};
    *cause = "a request begins with an id from 1 to 2^63 - 1";
    if (!hf_resp_number(&values[0], HF_MUX_ID_MAX, &request->id) ||
        request->id == 0)
        return HF_EPROTO;
    *cause = "unknown command";
    if (message->count < 2)
        return HF_EPROTO;
    request->verb = hf_verb_find(&values[1]);
    if (request->verb == HF_VERB_COUNT)
        return HF_EPROTO;
    words = hf_verb_words(request->verb, true);
    if (words.min < 0)
        return HF_EPROTO;
    *cause = "wrong number of arguments";
    if (message->count - 2 != (size_t)words.max)
        return HF_EPROTO;
    *cause = "an argument is malformed or too long";
    return read_words(request, values + 2) ? HF_OK : HF_EPROTO;
}
