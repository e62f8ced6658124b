#include "core/command.h"

#include "base/assert.h"
#include "base/limits.h"

/* The fields that a kind of command carries, in the order of their encoding. */
enum {
    HAS_SESSION = 1,
    HAS_KEY = 2,
    HAS_NONCE = 4,
    HAS_TOKEN = 8,
    HAS_GENERATION = 16,
    HAS_LEASE = 32,
    HAS_FLAGS = 64,
    HAS_VALUE = 128,
    HAS_EXPECTED = 256,
    HAS_NOTE = 512,
    HAS_VERSION = 1024,
};

static const unsigned fields[HF_COMMAND_KINDS] = {
    [HF_COMMAND_OPEN] = HAS_NONCE | HAS_NOTE,
    [HF_COMMAND_CLOSE] = HAS_SESSION,
    [HF_COMMAND_LOCK] = HAS_SESSION | HAS_KEY | HAS_NONCE | HAS_LEASE |
                        HAS_FLAGS | HAS_VALUE | HAS_NOTE,
    [HF_COMMAND_UNLOCK] = HAS_SESSION | HAS_KEY | HAS_NONCE | HAS_TOKEN,
    [HF_COMMAND_RENEW] =
        HAS_SESSION | HAS_KEY | HAS_NONCE | HAS_TOKEN | HAS_LEASE,
    [HF_COMMAND_UPDATE] = HAS_SESSION | HAS_KEY | HAS_NONCE | HAS_TOKEN |
                          HAS_FLAGS | HAS_VALUE | HAS_EXPECTED,
    [HF_COMMAND_EXPIRE] = HAS_KEY | HAS_TOKEN | HAS_GENERATION,
    [HF_COMMAND_CANCEL] = HAS_SESSION | HAS_KEY | HAS_NONCE,
    [HF_COMMAND_FORCE] = HAS_SESSION | HAS_KEY | HAS_TOKEN | HAS_FLAGS,
    [HF_COMMAND_VERSION] = HAS_VERSION,
};

enum {
    FLAG_QUEUE = 1,
    FLAG_NOW = 2,
    FLAG_EXPECTED = 4
};

static const uint8_t flags[HF_COMMAND_KINDS] = {
    [HF_COMMAND_LOCK] = FLAG_QUEUE,
    [HF_COMMAND_UPDATE] = FLAG_EXPECTED,
    [HF_COMMAND_FORCE] = FLAG_NOW,
};

static uint8_t flags_of(const struct hf_command *command)
{
    return (uint8_t)((command->queue ? FLAG_QUEUE : 0) |
                     (command->now ? FLAG_NOW : 0) |
                     (command->has_expected ? FLAG_EXPECTED : 0));
}

static bool is_known_version(uint8_t version)
{
    return version >= HF_VERSION_FIRST && version <= HF_VERSION_NEWEST;
}

bool hf_command_is_kept(enum hf_command_kind kind)
{
    return kind > 0 && kind < HF_COMMAND_KINDS &&
           (fields[kind] & HAS_SESSION) && kind != HF_COMMAND_CLOSE;
}

bool hf_command_is_valid(const struct hf_command *command)
{
    unsigned has;

    if (command->kind <= 0 || command->kind >= HF_COMMAND_KINDS)
        return false;
    has = fields[command->kind];
    if ((has & HAS_KEY) &&
        (command->key.size < 1 || command->key.size > HF_KEY_MAX))
        return false;
    if ((has & HAS_LEASE) &&
        (command->lease_ms < 1 || command->lease_ms > HF_LEASE_MAX_MS))
        return false;
    if ((has & HAS_VERSION) && !is_known_version(command->version))
        return false;
    return command->value.size <= HF_VALUE_MAX &&
           command->expected.size <= HF_VALUE_MAX &&
           command->note.size <= HF_NOTE_MAX &&
           (flags_of(command) & ~flags[command->kind]) == 0;
}

_Static_assert(HF_FITS(HF_COMMAND_KINDS, uint8_t), "a kind is one byte");
_Static_assert(HF_FITS(HF_VERSION_NEWEST, uint8_t), "a version is one byte");

void hf_command_encode(const struct hf_command *command, uint8_t version,
                       struct hf_buf *buf)
{
    unsigned has = fields[command->kind];

    HF_ASSERT(is_known_version(version));
    hf_buf_u8(buf, version);
    hf_buf_u8(buf, (uint8_t)command->kind);
    if (has & HAS_SESSION) {
        hf_buf_u64(buf, command->session);
        hf_buf_u64(buf, command->sequence);
        hf_buf_u64(buf, command->done);
    }
    if (has & HAS_KEY)
        hf_buf_bytes(buf, command->key.data, command->key.size);
    if (has & HAS_NONCE)
        hf_buf_raw(buf, command->nonce.bytes, sizeof(command->nonce.bytes));
    if (has & HAS_TOKEN)
        hf_buf_u64(buf, command->token);
    if (has & HAS_GENERATION)
        hf_buf_u32(buf, command->generation);
    if (has & HAS_LEASE)
        hf_buf_u32(buf, command->lease_ms);
    if (has & HAS_FLAGS)
        hf_buf_u8(buf, flags_of(command));
    if (has & HAS_VALUE)
        hf_buf_bytes(buf, command->value.data, command->value.size);
    if ((has & HAS_EXPECTED) && command->has_expected)
        hf_buf_bytes(buf, command->expected.data, command->expected.size);
    if (has & HAS_NOTE)
        hf_buf_bytes(buf, command->note.data, command->note.size);
    if (has & HAS_VERSION)
        hf_buf_u8(buf, command->version);
}

static void read_flags(struct hf_command *command, struct hf_reader *reader)
{
    uint8_t x = hf_reader_u8(reader);

    command->queue = (x & FLAG_QUEUE) != 0;
    command->now = (x & FLAG_NOW) != 0;
    command->has_expected = (x & FLAG_EXPECTED) != 0;
    if ((x & ~flags[command->kind]) != 0)
        reader->failed = true;
}

static void read_fields(struct hf_command *command, struct hf_reader *reader)
{
    unsigned has = fields[command->kind];

    if (has & HAS_SESSION) {
        command->session = hf_reader_u64(reader);
        command->sequence = hf_reader_u64(reader);
        command->done = hf_reader_u64(reader);
    }
    if (has & HAS_KEY) {
        struct hf_bytes key = hf_reader_bytes(reader, HF_KEY_MAX);

        command->key = (struct hf_key){key.data, key.size};
    }
    if (has & HAS_NONCE)
        hf_reader_raw(reader, command->nonce.bytes,
                      sizeof(command->nonce.bytes));
    if (has & HAS_TOKEN)
        command->token = hf_reader_u64(reader);
    if (has & HAS_GENERATION)
        command->generation = hf_reader_u32(reader);
    if (has & HAS_LEASE)
        command->lease_ms = hf_reader_u32(reader);
    if (has & HAS_FLAGS)
        read_flags(command, reader);
    if (has & HAS_VALUE)
        command->value = hf_reader_bytes(reader, HF_VALUE_MAX);
    if ((has & HAS_EXPECTED) && command->has_expected)
        command->expected = hf_reader_bytes(reader, HF_VALUE_MAX);
    if (has & HAS_NOTE)
        command->note = hf_reader_bytes(reader, HF_NOTE_MAX);
    if (has & HAS_VERSION)
        command->version = hf_reader_u8(reader);
}

uint8_t hf_command_version(const void *data, size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    uint8_t version = hf_reader_u8(&reader);
    struct hf_command read = {.kind = hf_reader_u8(&reader)};

    if (version > HF_VERSION_NEWEST || read.kind != HF_COMMAND_VERSION)
        return version;
    read_fields(&read, &reader);
    return !reader.failed && read.version > version ? read.version : version;
}

enum hf_err hf_command_decode(struct hf_command *command, const void *data,
                              size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    uint8_t version = hf_reader_u8(&reader);
    struct hf_command read = {.kind = hf_reader_u8(&reader)};

    if (version > HF_VERSION_NEWEST)
        return HF_EUNSUPPORTED;
    if (version < HF_VERSION_FIRST || read.kind <= 0 ||
        read.kind >= HF_COMMAND_KINDS)
        return HF_EPROTO;
    read_fields(&read, &reader);
    if (reader.failed || reader.size > 0)
        return HF_EPROTO;
    if (read.version > HF_VERSION_NEWEST)
        return HF_EUNSUPPORTED;
    if (!hf_command_is_valid(&read))
        return HF_EPROTO;
    *command = read;
    return HF_OK;
}

#define CHECK_SIZE(name, value, text)                                          \
    _Static_assert((value) < 0 && HF_FITS(-(value), uint8_t),                  \
                   #name " is encoded as one byte");
HF_ERRORS(CHECK_SIZE)
#undef CHECK_SIZE

void hf_command_encode_result(const struct hf_result *result,
                              struct hf_buf *buf)
{
    hf_buf_u8(buf, (uint8_t)(-(int)result->err));
    hf_buf_u32(buf, result->position);
    hf_buf_u32(buf, result->generation);
    hf_buf_u64(buf, result->token);
    hf_buf_u64(buf, result->session);
}

void hf_command_read_result(struct hf_result *result, struct hf_reader *reader)
{
    result->err = (enum hf_err)(-(int)hf_reader_u8(reader));
    result->position = hf_reader_u32(reader);
    result->generation = hf_reader_u32(reader);
    result->token = hf_reader_u64(reader);
    result->session = hf_reader_u64(reader);
    if (!hf_err_is_known(result->err))
        reader->failed = true;
}

enum hf_err hf_command_decode_result(struct hf_result *result, const void *data,
                                     size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_result read;

    hf_command_read_result(&read, &reader);
    if (reader.failed || reader.size > 0)
        return HF_EPROTO;
    *result = read;
    return HF_OK;
}
