/* resp.h - the Redis protocol, RESP2: parse messages, write messages.
 *
 * The parser is incremental and accepts any input. An announced length is
 * checked against the limits before memory is allocated. The work for a message
 * is proportional to its size, however it is cut into pieces, except that an
 * incomplete line is searched again for each piece. Arrays may be nested once.
 * Strings are not copied: they point into the input.
 *
 * Requests are arrays of bulk strings. A request may also be a line of words
 * that are separated by blanks, as a person types it into telnet. Replies are
 * anything that RESP2 has.
 *
 * See https://redis.io/docs/reference/protocol-spec/ */
#ifndef HF_WIRE_RESP_H
#define HF_WIRE_RESP_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/error.h"

enum hf_resp_kind {
    HF_RESP_SIMPLE,  /* +OK */
    HF_RESP_ERROR,   /* -BUSY held by another claim */
    HF_RESP_INTEGER, /* :1 */
    HF_RESP_BULK,    /* $2 and 2 bytes */
    HF_RESP_NULL,    /* $-1 or *-1 */
    HF_RESP_ARRAY,   /* *2; its elements are the values that follow it */
};

struct hf_resp_value {
    enum hf_resp_kind kind;
    uint32_t size; /* bytes of a string; elements of an array */
    union {
        const uint8_t *data; /* a string */
        int64_t integer;
        size_t offset; /* a string, while the message is incomplete */
    };
};

/* A complete message. It is valid until the next call with its reader. */
struct hf_resp_message {
    /* A request: its words. A reply: its value; if that is an array, its
     * elements follow, and those of an element that is an array follow it. */
    const struct hf_resp_value *values;
    size_t count;
    bool is_inline; /* a line of words */
};

struct hf_resp_limits {
    uint32_t elements; /* values of one message */
    uint32_t bytes;    /* of one message */
};

enum hf_resp_status {
    HF_RESP_MORE, /* the message is incomplete */
    HF_RESP_MESSAGE,
    HF_RESP_BROKEN, /* malformed, too large or no memory: disconnect */
};

#define HF_RESP_DEPTH 3 /* a value, its elements, and theirs */

struct hf_resp_parser {
    struct hf_resp_limits limits;
    bool requests; /* accept only requests; false: replies */
    bool in_bulk;  /* the last value is an incomplete string */
    unsigned depth;
    uint32_t left[HF_RESP_DEPTH]; /* values still to come at each depth */
    size_t offset;                /* bytes of the message parsed so far */
    struct hf_resp_value *values;
    size_t count;
    size_t capacity;
    enum hf_err err;   /* HF_RESP_BROKEN: HF_EPROTO, HF_ELIMIT, HF_ENOMEM */
    const char *cause; /* HF_RESP_BROKEN: what is wrong */
};

/* Cuts a stream of bytes into messages. It parses the caller's bytes in place;
 * hf_resp_reader_keep() copies the rest. */
struct hf_resp_reader {
    struct hf_resp_parser parser;
    struct hf_buf kept;   /* bytes that hf_resp_reader_keep() has copied */
    const uint8_t *input; /* the next message: in `kept`, or as it was fed */
    size_t size;          /* bytes from `input` on */
};

void hf_resp_reader_init(struct hf_resp_reader *reader, bool requests,
                         struct hf_resp_limits limits);
void hf_resp_reader_fini(struct hf_resp_reader *reader);

/* Add bytes, which must stay valid until hf_resp_reader_keep(). Returns
 * HF_ENOMEM if they cannot be added to bytes that were kept; then the stream
 * has lost bytes. */
enum hf_err hf_resp_reader_feed(struct hf_resp_reader *reader, const void *data,
                                size_t size);

/* Take the next message out of the stream. */
enum hf_resp_status hf_resp_reader_next(struct hf_resp_reader *reader,
                                        struct hf_resp_message *message);

/* Copy the bytes that were not taken as messages, so that the caller may reuse
 * the memory that it fed. Messages that were returned become invalid. Complete
 * messages among the copied bytes can be taken later. Returns HF_OK or
 * HF_ENOMEM. */
enum hf_err hf_resp_reader_keep(struct hf_resp_reader *reader);

/* Returns true if a part of a message has arrived. Call this after
 * hf_resp_reader_next() has returned HF_RESP_MORE. */
static inline bool hf_resp_reader_has_part(const struct hf_resp_reader *reader)
{
    return reader->size > 0;
}

/* ---- Values -------------------------------------------------------------*/

static inline bool hf_resp_is_string(const struct hf_resp_value *value)
{
    return value->kind == HF_RESP_BULK || value->kind == HF_RESP_SIMPLE;
}

/* The bytes of a string or an error. */
static inline struct hf_bytes hf_resp_bytes(const struct hf_resp_value *value)
{
    return (struct hf_bytes){value->data, value->size};
}

/* Returns true if the value is a string that equals `word`, in upper or lower
 * case. `word` must be in upper case. */
bool hf_resp_equals(const struct hf_resp_value *value, const char *word);

/* Read a number from 0 to `max`: an integer, or a string of decimal digits.
 * Returns false if the value is something else. */
bool hf_resp_number(const struct hf_resp_value *value, uint64_t max,
                    uint64_t *number);

/* The same for a number that fits into 32 bits. */
bool hf_resp_u32(const struct hf_resp_value *value, uint32_t *number);

/* Read `size` decimal digits, without a sign or a leading zero. Returns false
 * if there is anything else, or if the number is greater than `max`. */
bool hf_resp_read_number(const uint8_t *digits, size_t size, uint64_t max,
                         uint64_t *number);

/* Read a nonce: 16 bytes, or 32 hexadecimal digits. Returns false if the value
 * is neither. */
bool hf_resp_nonce(const struct hf_resp_value *value, struct hf_nonce *nonce);

/* ---- Writing ------------------------------------------------------------*/

void hf_resp_write_array(struct hf_buf *buf, size_t count);
void hf_resp_write_bulk(struct hf_buf *buf, const void *data, size_t size);
void hf_resp_write_text(struct hf_buf *buf, const char *text); /* bulk string */
void hf_resp_write_simple(struct hf_buf *buf, const char *text);
void hf_resp_write_integer(struct hf_buf *buf, int64_t integer);
void hf_resp_write_null(struct hf_buf *buf);

/* Write a number as a bulk string of digits, as requests carry it. */
void hf_resp_write_number(struct hf_buf *buf, uint64_t number);

/* Write "-code text". Control characters become blanks, because a line break
 * would end the error. */
void hf_resp_write_error(struct hf_buf *buf, const char *code,
                         const char *text);

/* Write the digits of `number` to `digits` and return their count. */
size_t hf_resp_digits(char digits[20], uint64_t number);

#endif
