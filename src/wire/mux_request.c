/* mux_request.c - the handshake and the requests of MUX mode. */
#include "base/assert.h"
#include "wire/mux.h"

#define HELLO_WORDS 8      /* that every version sends */
#define HELLO_WORDS_NOW 11 /* that this version sends */

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
    hf_resp_write_array(buf, HELLO_WORDS_NOW);
    hf_resp_write_integer(buf, (int64_t)hello->version);
    hf_resp_write_bulk(buf, hello->cluster.data, hello->cluster.size);
    hf_resp_write_integer(buf, (int64_t)hello->node);
    hf_resp_write_integer(buf, (int64_t)hello->leader);
    hf_resp_write_bulk(buf, hello->address.data, hello->address.size);
    hf_resp_write_integer(buf, (int64_t)hello->table_version);
    hf_resp_write_integer(buf, (int64_t)hello->requests_max);
    hf_resp_write_integer(buf, (int64_t)hello->frame_max);
    hf_resp_write_bulk(buf, hello->mode.data, hello->mode.size);
    hf_resp_write_bulk(buf, hello->members.data, hello->members.size);
    hf_resp_write_integer(buf, (int64_t)hello->highest);
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

/* The words that later versions have added. */
static bool decode_hello_mode(struct hf_mux_hello *hello,
                              const struct hf_resp_value *words, size_t count)
{
    hello->mode = (struct hf_bytes){NULL, 0};
    hello->members = (struct hf_bytes){NULL, 0};
    hello->highest = 0;
    if (count < HELLO_WORDS + 2)
        return true;
    if (!hf_resp_is_string(&words[8]) || !hf_resp_is_string(&words[9]))
        return false;
    hello->mode = hf_resp_bytes(&words[8]);
    hello->members = hf_resp_bytes(&words[9]);
    return count < HELLO_WORDS + 3 ||
           hf_resp_number(&words[10], HF_MUX_ID_MAX, &hello->highest);
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
        !decode_hello(&read, first + 1) ||
        !decode_hello_mode(&read, first + 1, (size_t)first->size))
        return HF_EPROTO;
    *hello = read;
    return HF_OK;
}

/* Take the next word of `*rest`, and the blank after it. */
static struct hf_bytes take_word(struct hf_bytes *rest)
{
    const char *text = rest->data;
    const char *blank = rest->size > 0 ? memchr(text, ' ', rest->size) : NULL;
    size_t size = blank ? (size_t)(blank - text) : rest->size;
    size_t taken = size + (blank ? 1 : 0);

    *rest = (struct hf_bytes){text + taken, rest->size - taken};
    return (struct hf_bytes){text, size};
}

static bool read_decimal(struct hf_bytes word, uint64_t *number)
{
    struct hf_resp_value value = {
        .kind = HF_RESP_BULK, .data = word.data, .size = (uint32_t)word.size};

    return word.size > 0 && word.size <= 20 &&
           hf_resp_number(&value, HF_MUX_ID_MAX, number);
}

bool hf_mux_members_set(struct hf_bytes members, uint64_t *set,
                        struct hf_bytes *rest)
{
    *rest = members;
    return members.size > 0 && read_decimal(take_word(rest), set);
}

bool hf_mux_members_next(struct hf_bytes *rest, struct hf_mux_member *member)
{
    struct hf_bytes left = *rest, role = {NULL, 0};

    if (left.size == 0)
        return false;
    role = take_word(&left);
    member->is_master = hf_bytes_equal(role, hf_bytes_of("master"));
    if (!member->is_master && !hf_bytes_equal(role, hf_bytes_of("replica")))
        return false;
    if (left.size == 0 || !read_decimal(take_word(&left), &member->id) ||
        member->id == 0 || left.size == 0)
        return false;
    member->address = take_word(&left);
    if (member->address.size == 0)
        return false;
    *rest = left;
    return true;
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
    case HF_VERB_QUORUM:
        hf_resp_write_bulk(buf, request->command.data, request->command.size);
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
        return hf_resp_u32(&words[0], &request->remaining_ms);
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
    case HF_VERB_QUORUM:
        request->command = hf_resp_bytes(&words[0]);
        return true;
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
