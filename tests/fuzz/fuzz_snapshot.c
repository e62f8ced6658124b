/* fuzz_snapshot.c - decode arbitrary bytes as a snapshot. If that succeeds, the
 * table must be consistent, survive encoding and decoding, and allow all of its
 * locks and sessions to be ended.
 *
 * Each input is tried twice: unchanged, and with its checksum corrected. Almost
 * no random input has a valid checksum, so the decoder would reject it at
 * once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/snapshot.h"
#include "lib/twin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct hf_seed seed, other_seed = {"another"};

static void on_event(void *arg, const struct hf_table_event *event)
{
    uint64_t *last = arg;

    if (*last != 0 && event->index != *last + 1)
        abort();
    *last = event->index;
}

static void check_table(const struct hf_table *table)
{
    const char *wrong = hf_table_check(table);

    if (wrong) {
        (void)fprintf(stderr, "%s\n", wrong);
        abort();
    }
}

static void check_round_trip(const struct hf_table *table)
{
    struct hf_buf buf = {0}, again = {0};
    struct hf_table copy;
    uint64_t last = 0;

    hf_snapshot_encode(table, &buf);
    hf_table_init(&copy, &other_seed, on_event, &last);
    if (hf_snapshot_decode(&copy, buf.data, buf.size))
        abort();
    check_table(&copy);
    hf_snapshot_encode(&copy, &again);
    if (again.size != buf.size || memcmp(again.data, buf.data, buf.size) != 0)
        abort();
    hf_buf_fini(&again);
    if (copy.holds.count != table->holds.count ||
        copy.sessions.count != table->sessions.count ||
        copy.waiting.count != table->waiting.count)
        abort();
    hf_table_fini(&copy);
    hf_buf_fini(&buf);
}

static void apply_command(struct hf_table *table,
                          const struct hf_command *command)
{
    struct hf_result result;

    if (hf_table_apply(table, command, &result) || result.err)
        abort();
}

/* Expire every lock, which grants it to the next waiter, until none is left;
 * then close every session. */
static void empty_table(struct hf_table *table)
{
    const struct hf_hold *hold;
    const struct hf_session *session;

    while ((hold = hf_table_next_hold(table, NULL))) {
        struct hf_command expire = {
            .kind = HF_COMMAND_EXPIRE,
            .key = hf_hold_key(hold),
            .token = hold->token,
            .generation = hold->generation,
        };

        apply_command(table, &expire);
    }
    while ((session = hf_table_next_session(table, NULL))) {
        struct hf_command close = {
            .kind = HF_COMMAND_CLOSE,
            .session = session->id,
            .sequence = UINT64_MAX,
        };

        apply_command(table, &close);
    }
    check_table(table);
}

static void try_snapshot(const uint8_t *data, size_t size)
{
    struct hf_table table;
    uint64_t last = 0;

    hf_table_init(&table, &seed, on_event, &last);
    if (hf_snapshot_decode(&table, data, size)) {
        if (table.token != 0 || table.sessions.count + table.holds.count > 0)
            abort();
    } else {
        check_table(&table);
        check_round_trip(&table);
        empty_table(&table);
    }
    hf_table_fini(&table);
}

static void fix_checksum(uint8_t *data, size_t size)
{
    static const struct hf_seed zero;
    uint64_t sum = hf_siphash(&zero, data, size - 8);

    for (size_t i = 0; i < 8; i++)
        data[size - 8 + i] = (uint8_t)(sum >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    try_snapshot(data, size);
    if (size < 8)
        return 0;
    copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    fix_checksum(copy, size);
    try_snapshot(copy, size);
    free(copy);
    return 0;
}
