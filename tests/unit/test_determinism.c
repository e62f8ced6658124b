/* Tables that apply the same commands stay equal: each command has the same
 * result and the same events, and the tables encode to the same bytes. Their
 * seeds differ, and one of them is restored from its snapshot again and again,
 * as a replica that has fallen behind is. */
#include <stdlib.h>

#include "base/random.h"
#include "core/snapshot.h"
#include "lib/pair.h"
#include "lib/runner.h"

enum {
    COMMANDS = 100000,
    RESTORE_EVERY = 300, /* on average */
    CHECK_EVERY = 100,
};

struct replica {
    struct hf_table table;
    struct hf_seed seed;
    struct hf_twin_events events; /* of the last command */
};

static void on_event(void *arg, const struct hf_table_event *event)
{
    hf_twin_events_add(arg, event);
}

static void init_replica(struct replica *replica, uint8_t number)
{
    *replica = (struct replica){.seed = {{number}}};
    hf_table_init(&replica->table, &replica->seed, on_event, &replica->events);
}

static void fini_replica(struct replica *replica)
{
    hf_table_fini(&replica->table);
    hf_twin_events_fini(&replica->events);
}

static struct hf_result apply(struct replica *replica,
                              const struct hf_command *command)
{
    struct hf_result result;

    replica->events.count = 0;
    assert_int_equal(hf_table_apply(&replica->table, command, &result), HF_OK);
    return result;
}

static struct hf_buf encode(const struct replica *replica)
{
    struct hf_buf buf = {0};

    hf_snapshot_encode(&replica->table, &buf);
    assert_false(buf.failed);
    return buf;
}

/* Replace the table by its snapshot, with another seed. */
static void restore(struct replica *replica)
{
    struct hf_buf buf = encode(replica);

    hf_table_fini(&replica->table);
    replica->seed.bytes[1]++;
    hf_table_init(&replica->table, &replica->seed, on_event, &replica->events);
    assert_int_equal(hf_snapshot_decode(&replica->table, buf.data, buf.size),
                     HF_OK);
    hf_buf_fini(&buf);
}

static void expect_equal_bytes(const struct replica *a, const struct replica *b)
{
    struct hf_buf x = encode(a);
    struct hf_buf y = encode(b);

    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    hf_buf_fini(&x);
    hf_buf_fini(&y);
}

static void expect_equal(const char *difference, unsigned command)
{
    if (difference)
        fail_msg("command %u: %s", command, difference);
}

static void draw(struct hf_random *random, void *bytes, size_t size)
{
    assert_int_equal(hf_random_bytes(random, bytes, size), HF_OK);
}

static void tables_with_equal_commands_are_equal(void **state)
{
    struct replica one, other;
    struct hf_random random;

    (void)state;
    init_replica(&one, 1);
    init_replica(&other, 2);
    hf_random_init(&random, 14);
    for (unsigned i = 0; i < COMMANDS; i++) {
        uint8_t chance[24];
        struct hf_reader bytes = {.data = chance, .size = sizeof(chance)};
        struct hf_command command;
        struct hf_result x, y;

        draw(&random, chance, sizeof(chance));
        hf_pair_draw(&one.table, &command, &bytes);
        x = apply(&one, &command);
        y = apply(&other, &command);
        expect_equal(hf_twin_compare_results(&x, &y), i);
        expect_equal(hf_twin_compare_events(&one.events, &other.events), i);
        if (i % CHECK_EVERY == 0)
            expect_equal_bytes(&one, &other);
        if (hf_random_below(&random, RESTORE_EVERY) == 0) {
            restore(&other);
            expect_equal_bytes(&one, &other);
        }
    }
    expect_equal_bytes(&one, &other);
    fini_replica(&one);
    fini_replica(&other);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(tables_with_equal_commands_are_equal),
    };

    return hf_test_main("determinism", cases, HF_TEST_COUNT(cases), 0);
}
