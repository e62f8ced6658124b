#include "raft/membership.h"

#define FORMAT 1    /* of libraft's configuration */
#define VOTER 1     /* RAFT_VOTER */
#define ALIGNMENT 8 /* the library pads with zeros */
#define DIGITS_MAX 20

bool hf_membership_is_valid(const struct hf_membership *members)
{
    uint64_t last = 0;

    if (members->count < 1 || members->count > HF_RAFT_VOTERS_MAX)
        return false;
    for (size_t i = 0; i < members->count; i++) {
        if (members->voters[i] <= last)
            return false;
        last = members->voters[i];
    }
    return true;
}

bool hf_membership_has(const struct hf_membership *members, uint64_t id)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->voters[i] == id)
            return true;
    }
    return false;
}

/* The id in decimal, and a terminating 0. */
static void put_address(struct hf_buf *buf, uint64_t id)
{
    char digits[DIGITS_MAX + 1];
    size_t at = sizeof(digits) - 1;

    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    hf_buf_raw(buf, &digits[at], sizeof(digits) - at);
}

void hf_membership_encode(struct hf_buf *buf,
                          const struct hf_membership *members)
{
    size_t start = buf->size;

    hf_buf_u8(buf, FORMAT);
    hf_buf_u64(buf, members->count);
    for (size_t i = 0; i < members->count; i++) {
        hf_buf_u64(buf, members->voters[i]);
        put_address(buf, members->voters[i]);
        hf_buf_u8(buf, VOTER);
    }
    while ((buf->size - start) % ALIGNMENT > 0 && !buf->failed)
        hf_buf_u8(buf, 0);
}

/* Encode the members again and compare: nothing else is accepted. */
static bool is_encoding_of(struct hf_bytes bytes,
                           const struct hf_membership *members)
{
    struct hf_buf buf = {0};
    bool equal;

    hf_membership_encode(&buf, members);
    equal = !buf.failed &&
            hf_bytes_equal(bytes, (struct hf_bytes){buf.data, buf.size});
    hf_buf_fini(&buf);
    return equal;
}

enum hf_err hf_membership_decode(struct hf_bytes bytes,
                                 struct hf_membership *members)
{
    struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
    struct hf_membership decoded = {0};
    uint64_t count;

    (void)hf_reader_u8(&reader);
    count = hf_reader_u64(&reader);
    while (decoded.count < count && decoded.count < HF_RAFT_VOTERS_MAX) {
        decoded.voters[decoded.count++] = hf_reader_u64(&reader);
        while (hf_reader_u8(&reader) != '\0')
            ;
        (void)hf_reader_u8(&reader);
    }
    if (decoded.count != count || reader.failed ||
        !hf_membership_is_valid(&decoded) || !is_encoding_of(bytes, &decoded))
        return HF_EPROTO;
    *members = decoded;
    return HF_OK;
}
