#include "core/command.h"

#include "base/limits.h"
#include "base/random.h"
#include "lib/commands.h"
#include "lib/death.h"
#include "lib/runner.h"

static uint8_t block[HF_VALUE_MAX + 1];

static uint64_t draw_u64(struct hf_random *random)
{
    uint64_t x = 0;

    assert_int_equal(hf_random_bytes(random, &x, sizeof(x)), HF_OK);
    return x;
}

static struct hf_bytes draw_bytes(struct hf_random *random, uint32_t max)
{
    uint32_t size = hf_random_below(random, 4) ? max / 50 : max;

    size = hf_random_below(random, size + 1);
    return (struct hf_bytes){block, size};
}

/* Return a random valid command of `kind`. */
static struct hf_command draw_command(struct hf_random *random,
                                      enum hf_command_kind kind)
{
    struct hf_command command = {
        .kind = kind,
        .queue = kind == HF_COMMAND_LOCK && hf_random_below(random, 2),
        .now = kind == HF_COMMAND_FORCE && hf_random_below(random, 2),
        .version = kind == HF_COMMAND_VERSION ? HF_VERSION_NEWEST : 0,
        .lease_ms = 1 + hf_random_below(random, HF_LEASE_MAX_MS),
        .generation = (uint32_t)draw_u64(random),
        .session = draw_u64(random),
        .sequence = draw_u64(random),
        .done = draw_u64(random),
        .token = draw_u64(random),
        .key = {block, 1 + hf_random_below(random, HF_KEY_MAX)},
        .value = draw_bytes(random, HF_VALUE_MAX),
        .expected = draw_bytes(random, HF_VALUE_MAX),
        .note = draw_bytes(random, HF_NOTE_MAX),
    };

    assert_int_equal(
        hf_random_bytes(random, &command.nonce, sizeof(command.nonce)), HF_OK);
    command.has_expected =
        kind == HF_COMMAND_UPDATE && hf_random_below(random, 2);
    return command;
}

/* Compare the fields that a command of this kind has. */
static void assert_same(const struct hf_command *a, const struct hf_command *b)
{
    enum hf_command_kind kind = a->kind;
    bool has_session = hf_command_is_kept(kind) || kind == HF_COMMAND_CLOSE;
    bool has_key = hf_command_is_kept(kind) || kind == HF_COMMAND_EXPIRE;
    bool has_nonce = (hf_command_is_kept(kind) && kind != HF_COMMAND_FORCE) ||
                     kind == HF_COMMAND_OPEN;

    assert_int_equal(b->kind, kind);
    if (has_session) {
        assert_true(a->session == b->session && a->sequence == b->sequence &&
                    a->done == b->done);
    }
    if (has_key)
        assert_true(hf_key_equal(a->key, b->key));
    if (has_nonce)
        assert_true(hf_nonce_equal(&a->nonce, &b->nonce));
    if (has_key && kind != HF_COMMAND_LOCK && kind != HF_COMMAND_CANCEL)
        assert_true(a->token == b->token);
    if (kind == HF_COMMAND_EXPIRE)
        assert_int_equal(a->generation, b->generation);
    if (kind == HF_COMMAND_LOCK || kind == HF_COMMAND_RENEW)
        assert_int_equal(a->lease_ms, b->lease_ms);
    if (kind == HF_COMMAND_LOCK || kind == HF_COMMAND_UPDATE)
        assert_true(hf_bytes_equal(a->value, b->value));
    if (kind == HF_COMMAND_LOCK || kind == HF_COMMAND_OPEN)
        assert_true(hf_bytes_equal(a->note, b->note));
    if (kind == HF_COMMAND_VERSION)
        assert_int_equal(a->version, b->version);
    if (a->has_expected)
        assert_true(hf_bytes_equal(a->expected, b->expected));
    assert_true(a->queue == b->queue && a->now == b->now &&
                a->has_expected == b->has_expected);
}

static void check_round_trip(const struct hf_command *command)
{
    struct hf_buf first = {0};
    struct hf_buf second = {0};
    struct hf_command decoded;

    assert_true(hf_command_is_valid(command));
    hf_command_encode(command, HF_VERSION_NEWEST, &first);
    assert_int_equal(hf_command_decode(&decoded, first.data, first.size),
                     HF_OK);
    assert_same(command, &decoded);
    hf_command_encode(&decoded, HF_VERSION_NEWEST, &second);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    hf_buf_fini(&first);
    hf_buf_fini(&second);
}

static void commands_of_every_kind_survive_a_round_trip(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 1);
    assert_int_equal(hf_random_bytes(&random, block, sizeof(block)), HF_OK);
    for (int i = 0; i < 200; i++) {
        for (int kind = 1; kind < HF_COMMAND_KINDS; kind++) {
            struct hf_command command =
                draw_command(&random, (enum hf_command_kind)kind);

            check_round_trip(&command);
        }
    }
}

/* A small command of `kind` in which all fields are set. */
static struct hf_command example(int kind)
{
    return (struct hf_command){
        .kind = (enum hf_command_kind)kind,
        .queue = kind == HF_COMMAND_LOCK,
        .now = kind == HF_COMMAND_FORCE,
        .has_expected = kind == HF_COMMAND_UPDATE,
        .version = kind == HF_COMMAND_VERSION ? HF_VERSION_NEWEST : 0,
        .lease_ms = 1000,
        .generation = 3,
        .session = 4,
        .sequence = 5,
        .done = 2,
        .token = 6,
        .nonce = hf_test_nonce(7),
        .key = hf_key_of("key"),
        .value = hf_bytes_of("value"),
        .expected = hf_bytes_of("old"),
        .note = hf_bytes_of("note"),
    };
}

static void truncated_commands_are_rejected(void **state)
{
    (void)state;
    for (int kind = 1; kind < HF_COMMAND_KINDS; kind++) {
        struct hf_command command = example(kind);
        struct hf_command decoded = {.token = 77};
        struct hf_buf buf = {0};

        hf_command_encode(&command, HF_VERSION_NEWEST, &buf);
        for (size_t size = 0; size < buf.size; size++)
            assert_int_equal(hf_command_decode(&decoded, buf.data, size),
                             HF_EPROTO);
        hf_buf_u8(&buf, 0);
        assert_int_equal(hf_command_decode(&decoded, buf.data, buf.size),
                         HF_EPROTO);
        assert_int_equal(decoded.token, 77);
        hf_buf_fini(&buf);
    }
}

static void check_corrupt(const struct hf_buf *buf)
{
    struct hf_command decoded;
    struct hf_buf again = {0};

    if (hf_command_decode(&decoded, buf->data, buf->size))
        return;
    assert_true(hf_command_is_valid(&decoded));
    hf_command_encode(&decoded, HF_VERSION_NEWEST, &again);
    assert_int_equal(again.size, buf->size);
    assert_memory_equal(again.data, buf->data, buf->size);
    hf_buf_fini(&again);
}

static void corrupt_commands_are_rejected_or_valid(void **state)
{
    (void)state;
    for (int kind = 1; kind < HF_COMMAND_KINDS; kind++) {
        struct hf_command command = example(kind);
        struct hf_buf buf = {0};

        hf_command_encode(&command, HF_VERSION_NEWEST, &buf);
        for (size_t i = 0; i < buf.size; i++) {
            for (int flip = 1; flip < 256; flip++) {
                buf.data[i] ^= (uint8_t)flip;
                check_corrupt(&buf);
                buf.data[i] ^= (uint8_t)flip;
            }
        }
        hf_buf_fini(&buf);
    }
}

static enum hf_err encode_and_decode(const struct hf_command *command)
{
    struct hf_command decoded;
    struct hf_buf buf = {0};
    enum hf_err err;

    hf_command_encode(command, HF_VERSION_NEWEST, &buf);
    err = hf_command_decode(&decoded, buf.data, buf.size);
    hf_buf_fini(&buf);
    return err;
}

static void expect_valid(const struct hf_command *command, bool valid)
{
    assert_int_equal(hf_command_is_valid(command), valid);
    assert_int_equal(encode_and_decode(command), valid ? HF_OK : HF_EPROTO);
}

/* LK-27: keys have up to 1 KiB, values up to 64 KiB. */
static void limits_are_enforced_exactly(void **state)
{
    struct hf_command command = example(HF_COMMAND_LOCK);

    (void)state;
    command.key = (struct hf_key){block, 0};
    expect_valid(&command, false);
    command.key.size = 1;
    expect_valid(&command, true);
    command.key.size = HF_KEY_MAX;
    expect_valid(&command, true);
    command.key.size = HF_KEY_MAX + 1;
    expect_valid(&command, false);

    command = example(HF_COMMAND_LOCK);
    command.value = (struct hf_bytes){block, HF_VALUE_MAX};
    expect_valid(&command, true);
    command.value.size++;
    expect_valid(&command, false);

    command = example(HF_COMMAND_LOCK);
    command.note = (struct hf_bytes){block, HF_NOTE_MAX};
    expect_valid(&command, true);
    command.note.size++;
    expect_valid(&command, false);

    command = example(HF_COMMAND_UPDATE);
    command.expected = (struct hf_bytes){block, HF_VALUE_MAX};
    expect_valid(&command, true);
    command.expected.size++;
    expect_valid(&command, false);

    command = example(HF_COMMAND_RENEW);
    command.lease_ms = HF_LEASE_MAX_MS;
    expect_valid(&command, true);
    command.lease_ms++;
    expect_valid(&command, false);
    command.lease_ms = 1;
    expect_valid(&command, true);
    command.lease_ms = 0;
    expect_valid(&command, false);
}

static void flag_of_another_kind_is_rejected(void **state)
{
    struct hf_command command = example(HF_COMMAND_LOCK);

    (void)state;
    command.now = true;
    expect_valid(&command, false);
    command = example(HF_COMMAND_FORCE);
    command.queue = true;
    expect_valid(&command, false);
    command = example(HF_COMMAND_UPDATE);
    command.queue = true;
    expect_valid(&command, false);
}

static void unknown_kinds_are_rejected(void **state)
{
    struct hf_command command = {.key = hf_key_of("k"), .lease_ms = 1};
    struct hf_command decoded;
    uint8_t bytes[] = {HF_VERSION_FIRST, 0};

    (void)state;
    assert_false(hf_command_is_valid(&command));
    command.kind = HF_COMMAND_KINDS;
    assert_false(hf_command_is_valid(&command));
    assert_int_equal(hf_command_decode(&decoded, bytes, 2), HF_EPROTO);
    bytes[1] = HF_COMMAND_KINDS;
    assert_int_equal(hf_command_decode(&decoded, bytes, 2), HF_EPROTO);
    assert_int_equal(hf_command_decode(&decoded, NULL, 0), HF_EPROTO);
}

/* A node that gets a command of a newer version, or a VERSION command that
 * names one, stops, because it cannot apply the command. */
static void newer_versions_are_unsupported(void **state)
{
    struct hf_command decoded = {.token = 77};
    uint8_t unknown[] = {HF_VERSION_NEWEST + 1, 255, 1, 2, 3};
    uint8_t raise[] = {HF_VERSION_NEWEST, HF_COMMAND_VERSION,
                       HF_VERSION_NEWEST + 1};
    uint8_t zero[] = {HF_VERSION_NEWEST, HF_COMMAND_VERSION, 0};

    (void)state;
    assert_int_equal(hf_command_decode(&decoded, unknown, sizeof(unknown)),
                     HF_EUNSUPPORTED);
    unknown[0] = 0;
    assert_int_equal(hf_command_decode(&decoded, unknown, sizeof(unknown)),
                     HF_EPROTO);
    assert_int_equal(hf_command_decode(&decoded, raise, sizeof(raise)),
                     HF_EUNSUPPORTED);
    assert_int_equal(hf_command_decode(&decoded, raise, sizeof(raise) - 1),
                     HF_EPROTO);
    assert_int_equal(hf_command_decode(&decoded, zero, sizeof(zero)),
                     HF_EPROTO);
    assert_int_equal(decoded.token, 77);
}

static void encode_unknown_version(void *arg)
{
    struct hf_command command = example(HF_COMMAND_LOCK);

    hf_command_encode(&command, HF_VERSION_NEWEST + 1, arg);
}

static void unknown_version_is_never_written(void **state)
{
    struct hf_buf buf = {0};

    (void)state;
    assert_true(hf_test_dies(encode_unknown_version, &buf));
    hf_buf_fini(&buf);
}

static void results_survive_a_round_trip(void **state)
{
    static const enum hf_err codes[] = {
#define CODE(name, value, text) HF_##name,
        HF_ERRORS(CODE)
#undef CODE
            HF_OK};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct hf_result result = {codes[i], 1, UINT32_MAX, UINT64_MAX, 5};
        struct hf_result decoded;
        struct hf_buf buf = {0};

        hf_command_encode_result(&result, &buf);
        assert_int_equal(hf_command_decode_result(&decoded, buf.data, buf.size),
                         HF_OK);
        assert_true(decoded.err == result.err && decoded.position == 1 &&
                    decoded.generation == UINT32_MAX &&
                    decoded.token == UINT64_MAX && decoded.session == 5);
        hf_buf_fini(&buf);
    }
}

static void malformed_results_are_rejected(void **state)
{
    struct hf_result result = {.err = HF_EBUSY};
    struct hf_result decoded = {.token = 77};
    struct hf_buf buf = {0};

    (void)state;
    hf_command_encode_result(&result, &buf);
    for (size_t size = 0; size < buf.size; size++)
        assert_int_equal(hf_command_decode_result(&decoded, buf.data, size),
                         HF_EPROTO);
    buf.data[0] = UINT8_MAX; /* not an error code */
    assert_int_equal(hf_command_decode_result(&decoded, buf.data, buf.size),
                     HF_EPROTO);
    buf.data[0] = 0;
    hf_buf_u8(&buf, 0);
    assert_int_equal(hf_command_decode_result(&decoded, buf.data, buf.size),
                     HF_EPROTO);
    assert_int_equal(decoded.token, 77);
    hf_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(commands_of_every_kind_survive_a_round_trip),
        cmocka_unit_test(truncated_commands_are_rejected),
        cmocka_unit_test(corrupt_commands_are_rejected_or_valid),
        cmocka_unit_test(limits_are_enforced_exactly),
        cmocka_unit_test(flag_of_another_kind_is_rejected),
        cmocka_unit_test(unknown_kinds_are_rejected),
        cmocka_unit_test(newer_versions_are_unsupported),
        cmocka_unit_test(unknown_version_is_never_written),
        cmocka_unit_test(results_survive_a_round_trip),
        cmocka_unit_test(malformed_results_are_rejected),
    };

    return hf_test_main("command", cases, HF_TEST_COUNT(cases), 0);
}
