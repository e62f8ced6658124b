#include "raft/membership.h"

#define FORMAT 1       /* of libraft's configuration */
#define VOTER 1        /* RAFT_VOTER */
#define ALIGNMENT 8    /* the library pads to a multiple of this */
#define ADDRESS_MAX 21 /* digits of an id, and a terminating 0 */

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

/* Write the id in decimal and a terminating 0 to the end of `text`. Returns the
 * first digit. */
static const char *format_address(uint64_t id, char text[ADDRESS_MAX])
{
    size_t at = ADDRESS_MAX - 1;

    text[at] = '\0';
    do {
        text[--at] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    return &text[at];
}

void hf_membership_encode(struct hf_buf *buf,
                          const struct hf_membership *members)
{
    size_t start = buf->size;

    hf_buf_u8(buf, FORMAT);
    hf_buf_u64(buf, members->count);
    for (size_t i = 0; i < members->count; i++) {
        char text[ADDRESS_MAX];
        const char *address = format_address(members->voters[i], text);

        hf_buf_u64(buf, members->voters[i]);
        hf_buf_raw(buf, address, strlen(address) + 1);
        hf_buf_u8(buf, VOTER);
    }
    while ((buf->size - start) % ALIGNMENT > 0 && !buf->failed)
        hf_buf_u8(buf, 0);
}

static void decode_voter(struct hf_reader *reader, uint64_t *id)
{
    char text[ADDRESS_MAX];
    const char *address;

    *id = hf_reader_u64(reader);
    address = format_address(*id, text);
    do {
        if (hf_reader_u8(reader) != (uint8_t)*address)
            reader->failed = true;
    } while (*address++ != '\0');
    if (hf_reader_u8(reader) != VOTER)
        reader->failed = true;
}

/* Returns true if the rest of an encoding of `size` bytes is its padding: zeros
 * up to the next multiple of ALIGNMENT, and no more. */
static bool is_padding(struct hf_reader *reader, size_t size)
{
    if (size % ALIGNMENT > 0 || reader->size >= ALIGNMENT)
        return false;
    while (reader->size > 0) {
        if (hf_reader_u8(reader) != 0)
            return false;
    }
    return true;
}

enum hf_err hf_membership_decode(struct hf_bytes bytes,
                                 struct hf_membership *members)
{
    struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
    struct hf_membership decoded = {0};
    uint8_t format = hf_reader_u8(&reader);
    uint64_t count = hf_reader_u64(&reader);

    if (format != FORMAT || count > HF_RAFT_VOTERS_MAX)
        return HF_EPROTO;
    while (decoded.count < count)
        decode_voter(&reader, &decoded.voters[decoded.count++]);
    if (reader.failed || !hf_membership_is_valid(&decoded) ||
        !is_padding(&reader, bytes.size))
        return HF_EPROTO;
    *members = decoded;
    return HF_OK;
}
