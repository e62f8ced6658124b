#include "quorum/members.h"

#include <stdlib.h>

#include "base/hex.h"
#include "base/siphash.h"
#include "wire/resp.h"

#define MAGIC "holdfast-master "

const struct hf_member *hf_members_find(const struct hf_members *members,
                                        uint64_t id)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->masters[i].id == id)
            return &members->masters[i];
    }
    return NULL;
}

/* ---- Writing ------------------------------------------------------------*/

static void add_word(struct hf_buf *buf, const char *word)
{
    hf_buf_raw(buf, word, strlen(word));
}

static void add_number_line(struct hf_buf *buf, uint64_t number)
{
    char digits[20];

    hf_buf_raw(buf, digits, hf_resp_digits(digits, number));
}

static void add_member_line(struct hf_buf *buf, const char *name,
                            uint64_t number)
{
    add_word(buf, name);
    add_word(buf, " ");
    add_number_line(buf, number);
    add_word(buf, "\n");
}

static void add_hex_line(struct hf_buf *buf, const char *name,
                         const uint8_t *bytes, size_t size)
{
    char digits[2 * HF_MEMBERS_CLUSTER + 1];

    hf_hex_encode(digits, bytes, size);
    add_word(buf, name);
    add_word(buf, " ");
    add_word(buf, digits);
    add_word(buf, "\n");
}

static void add_master(struct hf_buf *buf, const struct hf_member *member)
{
    add_word(buf, "master ");
    add_number_line(buf, member->id);
    add_word(buf, " ");
    add_word(buf, member->address);
}

void hf_members_write(const struct hf_members *members, struct hf_buf *buf)
{
    add_number_line(buf, members->set);
    for (size_t i = 0; i < members->count; i++) {
        add_word(buf, " ");
        add_master(buf, &members->masters[i]);
    }
}

static void add_checksum(struct hf_buf *buf, size_t start)
{
    static const struct hf_seed zero;
    uint8_t bytes[sizeof(uint64_t)];

    if (buf->failed)
        return;
    hf_bytes_put_u64(bytes,
                     hf_siphash(&zero, buf->data + start, buf->size - start));
    add_hex_line(buf, "checksum", bytes, sizeof(bytes));
}

void hf_members_encode_file(const struct hf_members_file *file,
                            struct hf_buf *buf)
{
    const struct hf_members *members = &file->members;
    size_t start = buf->size;

    add_word(buf, MAGIC);
    add_number_line(buf, HF_MEMBERS_VERSION);
    add_word(buf, "\n");
    add_hex_line(buf, "cluster", members->cluster, sizeof(members->cluster));
    add_member_line(buf, "node", file->node);
    add_member_line(buf, "lease_max_ms", members->lease_max_ms);
    add_member_line(buf, "set", members->set);
    for (size_t i = 0; i < members->count; i++) {
        add_master(buf, &members->masters[i]);
        add_word(buf, "\n");
    }
    add_member_line(buf, "mark", file->mark);
    add_checksum(buf, start);
}

/* ---- Reading ------------------------------------------------------------
 *
 * The parser is lenient. What counts is that the file is, byte by byte, what
 * hf_members_encode_file() writes for the result. */

struct text {
    const char *data;
    size_t size;
};

/* Take the next line, without its end. */
static struct text take_line(struct text *rest)
{
    const char *end =
        rest->size > 0 ? memchr(rest->data, '\n', rest->size) : NULL;
    struct text line = {rest->data,
                        end ? (size_t)(end - rest->data) : rest->size};
    size_t used = line.size + (end != NULL);

    rest->data += used;
    rest->size -= used;
    return line;
}

/* If the line begins with `name` and a blank, remove both. */
static bool take_name(struct text *line, const char *name)
{
    size_t size = strlen(name);

    if (line->size <= size || memcmp(line->data, name, size) != 0 ||
        line->data[size] != ' ')
        return false;
    line->data += size + 1;
    line->size -= size + 1;
    return true;
}

/* Remove a number, and the blank after it. */
static uint64_t take_number(struct text *line)
{
    uint64_t number = 0;

    while (line->size > 0 && line->data[0] >= '0' && line->data[0] <= '9') {
        /* It may wrap around. */
        number = 10 * number + (uint64_t)(line->data[0] - '0');
        line->data++;
        line->size--;
    }
    if (line->size > 0) {
        line->data++;
        line->size--;
    }
    return number;
}

static void read_cluster_line(struct hf_members *members, struct text value)
{
    char digits[2 * HF_MEMBERS_CLUSTER + 1] = "";

    if (value.size == sizeof(digits) - 1)
        memcpy(digits, value.data, value.size);
    (void)hf_hex_decode(members->cluster, sizeof(members->cluster), digits);
}

static void read_master(struct hf_members *members, struct text value)
{
    struct hf_member *member = &members->masters[members->count];

    if (members->count == HF_QUORUM_MASTERS_MAX)
        return;
    member->id = take_number(&value);
    if (value.size < sizeof(member->address))
        hf_copy(member->address, value.data, value.size);
    members->count++;
}

static void read_line(struct hf_members_file *file, struct text line)
{
    if (take_name(&line, "cluster"))
        read_cluster_line(&file->members, line);
    else if (take_name(&line, "node"))
        file->node = take_number(&line);
    else if (take_name(&line, "lease_max_ms"))
        file->members.lease_max_ms = (uint32_t)take_number(&line);
    else if (take_name(&line, "set"))
        file->members.set = take_number(&line);
    else if (take_name(&line, "master"))
        read_master(&file->members, line);
    else if (take_name(&line, "mark"))
        file->mark = take_number(&line);
}

static enum hf_err check_canonical(const struct hf_members_file *file,
                                   struct hf_bytes bytes)
{
    struct hf_buf buf = {0};
    enum hf_err err = HF_OK;

    hf_members_encode_file(file, &buf);
    if (buf.failed)
        err = HF_ENOMEM;
    else if (buf.size != bytes.size ||
             memcmp(buf.data, bytes.data, bytes.size) != 0)
        err = HF_EPROTO;
    hf_buf_fini(&buf);
    return err;
}

/* A newer version may have another checksum, so the version comes first. */
static bool is_newer_file(struct text text)
{
    struct text line = take_line(&text);
    struct text digits;

    if (!take_name(&line, "holdfast-master"))
        return false;
    digits = line;
    return take_number(&line) > HF_MEMBERS_VERSION && line.size == 0 &&
           digits.data[digits.size - 1] >= '0' &&
           digits.data[digits.size - 1] <= '9';
}

static bool is_sound(const struct hf_members_file *file)
{
    const struct hf_members *members = &file->members;

    for (size_t i = 1; i < members->count; i++) {
        if (members->masters[i - 1].id >= members->masters[i].id)
            return false;
    }
    return members->count > 0 && members->masters[0].id > 0 &&
           members->set > 0 && members->lease_max_ms > 0 &&
           hf_members_find(members, file->node);
}

enum hf_err hf_members_decode_file(struct hf_members_file *file,
                                   struct hf_bytes bytes)
{
    struct hf_members_file decoded = {0};
    struct text rest = {bytes.data, bytes.size};
    enum hf_err err;

    if (is_newer_file(rest))
        return HF_EUNSUPPORTED;
    while (rest.size > 0)
        read_line(&decoded, take_line(&rest));
    if (!is_sound(&decoded))
        return HF_EPROTO;
    err = check_canonical(&decoded, bytes);
    if (!err)
        *file = decoded;
    return err;
}
