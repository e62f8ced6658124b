/* test_entries.c - the log in memory (entries.h), and which part of it is
 * durable (writes.h). */
#include <stdlib.h>

#include "base/limits.h"
#include "base/random.h"
#include "lib/runner.h"
#include "raft/entries.h"
#include "raft/writes.h"

/* ---- entries.c ----------------------------------------------------------*/

static void append(struct hf_entries *log, uint64_t term, size_t count)
{
    struct hf_entry entries[64];

    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++)
        entries[i] =
            (struct hf_entry){term, HF_ENTRY_COMMAND, {"data", 1 + i % 4}};
    assert_int_equal(hf_entries_append(log, entries, count), HF_OK);
}

static void entries_are_found_by_index(void **state)
{
    struct hf_entries log = {0};

    (void)state;
    append(&log, 1, 3);
    append(&log, 2, 1);
    append(&log, 3, 5);
    assert_int_equal(log.last, 9);
    assert_null(hf_entries_find(&log, 0));
    assert_null(hf_entries_find(&log, 10));
    assert_int_equal(hf_entries_term(&log, 3), 1);
    assert_int_equal(hf_entries_term(&log, 4), 2);
    assert_int_equal(hf_entries_term(&log, 9), 3);
    assert_int_equal(hf_entries_find(&log, 7)->data.size, 3);
    assert_memory_equal(hf_entries_find(&log, 7)->data.data, "dat", 3);
    hf_entries_fini(&log);
}

static void a_cut_log_continues_with_other_entries(void **state)
{
    struct hf_entries log = {0};

    (void)state;
    append(&log, 1, 5);
    append(&log, 2, 5);
    hf_entries_cut(&log, 4);
    assert_int_equal(log.last, 3);
    assert_int_equal(hf_entries_term(&log, 4), 0);
    append(&log, 3, 2);
    assert_int_equal(hf_entries_term(&log, 3), 1);
    assert_int_equal(hf_entries_term(&log, 4), 3);
    assert_int_equal(log.last, 5);
    hf_entries_cut(&log, 9); /* nothing to cut */
    assert_int_equal(log.last, 5);
    hf_entries_fini(&log);
}

static void a_compacted_log_knows_the_term_of_its_base(void **state)
{
    struct hf_entries log = {0};

    (void)state;
    append(&log, 1, 5);
    append(&log, 2, 5);
    hf_entries_compact(&log, 7);
    assert_null(hf_entries_find(&log, 7));
    assert_int_equal(hf_entries_term(&log, 7), 2);
    assert_int_equal(hf_entries_term(&log, 6), 0);
    assert_int_equal(hf_entries_term(&log, 8), 2);
    hf_entries_compact(&log, 3);  /* before the base */
    hf_entries_compact(&log, 11); /* after the last entry */
    assert_int_equal(log.base_index, 7);
    hf_entries_compact(&log, 10);
    assert_int_equal(log.bytes, 0);
    append(&log, 3, 1);
    assert_int_equal(log.last, 11);
    hf_entries_fini(&log);
}

static void memory_of_forgotten_batches_is_freed(void **state)
{
    struct hf_entries log = {0};

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        append(&log, 1, 10);
        if (log.last > 50)
            hf_entries_compact(&log, log.last - 50);
    }
    assert_true(log.slices.capacity <= 16);
    assert_int_equal(log.last, 10000);
    hf_entries_fini(&log);
}

static void a_part_of_a_batch_is_attached(void **state)
{
    struct hf_entry entries[3] = {{1, HF_ENTRY_COMMAND, {"a", 1}},
                                  {1, HF_ENTRY_COMMAND, {"b", 1}},
                                  {1, HF_ENTRY_COMMAND, {"c", 1}}};
    struct hf_entries log = {0};
    struct hf_batch *batch = hf_batch_new(entries, 3);

    (void)state;
    append(&log, 1, 1);
    assert_int_equal(hf_entries_reserve(&log), HF_OK);
    hf_entries_attach(&log, batch, 1);
    assert_int_equal(log.last, 3);
    assert_memory_equal(hf_entries_find(&log, 2)->data.data, "b", 1);
    assert_memory_equal(hf_entries_find(&log, 3)->data.data, "c", 1);
    hf_entries_fini(&log);
}

static void reads_are_limited_by_count_and_bytes(void **state)
{
    struct hf_entry out[8];
    struct hf_entries log = {0};

    (void)state;
    append(&log, 1, 8); /* 1, 2, 3, 4, 1, 2, 3, 4 bytes */
    assert_int_equal(hf_entries_read(&log, 1, 8, 1000, out), 8);
    assert_int_equal(hf_entries_read(&log, 1, 2, 1000, out), 2);
    assert_int_equal(hf_entries_read(&log, 1, 8, 6, out), 3);
    assert_int_equal(hf_entries_read(&log, 4, 8, 1, out), 1); /* at least one */
    assert_int_equal(hf_entries_read(&log, 9, 8, 1000, out), 0);
    hf_entries_fini(&log);
}

static void the_log_has_a_limit(void **state)
{
    struct hf_entry entry = {1, HF_ENTRY_COMMAND, {NULL, 0}};
    struct hf_entries log = {.bytes_max = 1000};
    struct hf_batch *batch = hf_batch_new(&entry, 1);

    (void)state;
    while (hf_entries_has_room(&log, batch)) {
        append(&log, 1, 1);
        assert_true(log.last < 1000);
    }
    assert_true(log.bytes <= 1000);
    append(&log, 1, 1); /* a follower stores what its leader has accepted */
    assert_false(hf_entries_has_room(&log, batch));
    hf_entries_compact(&log, log.last);
    assert_true(hf_entries_has_room(&log, batch));
    hf_batch_free(batch);
    hf_entries_fini(&log);
}

static void the_last_entries_are_counted_by_number_and_bytes(void **state)
{
    struct hf_entry entry = {1, HF_ENTRY_COMMAND, {"0123456789", 10}};
    size_t size = sizeof(entry) + entry.data.size;
    struct hf_entries log = {0};

    (void)state;
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(hf_entries_append(&log, &entry, 1), HF_OK);
    hf_entries_compact(&log, 5);
    assert_int_equal(hf_entries_count_last(&log, 15, 4, SIZE_MAX), 4);
    assert_int_equal(hf_entries_count_last(&log, 15, 4, 3 * size), 3);
    assert_int_equal(hf_entries_count_last(&log, 15, 4, 3 * size - 1), 2);
    assert_int_equal(hf_entries_count_last(&log, 15, 4, 0), 0);
    assert_int_equal(hf_entries_count_last(&log, 15, 100, SIZE_MAX), 10);
    assert_int_equal(hf_entries_count_last(&log, 5, 4, SIZE_MAX), 0);
    assert_int_equal(hf_entries_count_last(&log, 21, 4, SIZE_MAX), 0);
    hf_entries_fini(&log);
}

/* Freeing a long log takes long, so it is done a little at a time. */
static void compacted_entries_are_freed_a_few_at_a_time(void **state)
{
    struct hf_entries log = {0};

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        append(&log, 1, 1);
    hf_entries_compact(&log, 90);
    assert_int_equal(log.dead, 90);
    assert_int_equal(hf_entries_count_last(&log, 100, 100, SIZE_MAX), 10);
    hf_entries_collect(&log, 30);
    assert_int_equal(log.dead, 60);
    append(&log, 2, 1);
    hf_entries_cut(&log, 95);
    append(&log, 3, 2);
    assert_int_equal(hf_entries_term(&log, 94), 1);
    assert_int_equal(hf_entries_term(&log, 95), 3);
    hf_entries_reset(&log, 50, 3); /* to an index before those of the batches */
    assert_int_equal(log.bytes, 0);
    append(&log, 4, 3);
    assert_int_equal(hf_entries_term(&log, 50), 3);
    assert_int_equal(hf_entries_term(&log, 51), 4);
    assert_int_equal(hf_entries_term(&log, 53), 4);
    hf_entries_collect(&log, SIZE_MAX);
    assert_int_equal(log.dead, 0);
    assert_int_equal(log.slices.count, 1);
    assert_int_equal(hf_entries_term(&log, 52), 4);
    hf_entries_fini(&log);
}

/* A plain array of terms is the model that the log is compared with. */
static void random_changes_agree_with_an_array(void **state)
{
    static uint64_t terms[5000];
    struct hf_entries log = {0};
    struct hf_random random;
    uint64_t term = 1;

    (void)state;
    hf_random_init(&random, 7);
    for (unsigned i = 0; i < 3000 && log.last < 4900; i++) {
        uint64_t size = log.last - log.base_index;
        uint64_t count = 1 + hf_random_below(&random, 8);

        switch (hf_random_below(&random, 5)) {
        case 0:
            if (size > 0)
                hf_entries_cut(
                    &log, log.last - hf_random_below(&random, (uint32_t)size));
            break;
        case 1:
            hf_entries_compact(&log,
                               log.base_index + hf_random_below(&random, 5));
            break;
        default:
            term += hf_random_below(&random, 2);
            append(&log, term, count);
            for (uint64_t j = log.last - count + 1; j <= log.last; j++)
                terms[j] = term;
        }
        hf_entries_collect(&log, hf_random_below(&random, 2));
        for (uint64_t j = log.base_index + 1; j <= log.last; j++)
            assert_int_equal(hf_entries_term(&log, j), terms[j]);
    }
    hf_entries_fini(&log);
}

/* ---- writes.c -----------------------------------------------------------*/

static void push(struct hf_writes *writes, uint64_t number, uint64_t first,
                 uint64_t last)
{
    struct hf_write write = {number, last, false};

    assert_int_equal(hf_writes_reserve(writes), HF_OK);
    hf_writes_push(writes, &write, first);
}

static uint64_t take(struct hf_writes *writes, uint64_t number)
{
    bool installed = false;
    uint64_t last = hf_writes_take(writes, number, &installed);

    assert_false(installed);
    return last;
}

static void one_flush_makes_many_writes_durable(void **state)
{
    struct hf_writes writes = {0};

    (void)state;
    push(&writes, 1, 5, 7);
    push(&writes, 2, 8, 8);
    push(&writes, 3, 0, 0); /* hard state only */
    push(&writes, 4, 9, 12);
    assert_int_equal(take(&writes, 0), 0);
    assert_int_equal(take(&writes, 3), 8);
    assert_int_equal(take(&writes, 4), 12);
    assert_int_equal(take(&writes, 4), 0);
    hf_writes_fini(&writes);
}

static void replaced_entries_are_not_durable(void **state)
{
    struct hf_writes writes = {0};

    (void)state;
    push(&writes, 1, 5, 10);
    push(&writes, 2, 11, 12);
    push(&writes, 3, 8, 9);
    push(&writes, 4, 6, 6);
    assert_int_equal(take(&writes, 1), 5);
    assert_int_equal(take(&writes, 3), 5);
    assert_int_equal(take(&writes, 4), 6);
    hf_writes_fini(&writes);
}

static void an_installation_replaces_everything(void **state)
{
    struct hf_write install = {2, 0, true};
    struct hf_writes writes = {0};
    bool installed = false;

    (void)state;
    push(&writes, 1, 5, 10);
    assert_int_equal(hf_writes_reserve(&writes), HF_OK);
    hf_writes_push(&writes, &install, 1);
    assert_int_equal(hf_writes_take(&writes, 2, &installed), 0);
    assert_true(installed);
    hf_writes_fini(&writes);
}

static void waiting_writes_have_a_limit(void **state)
{
    struct hf_writes writes = {0};

    (void)state;
    for (uint64_t i = 1; i <= HF_RAFT_WRITES_MAX; i++)
        push(&writes, i, i, i);
    assert_int_equal(hf_writes_reserve(&writes), HF_ELIMIT);
    assert_int_equal(take(&writes, 1), 1);
    assert_int_equal(hf_writes_reserve(&writes), HF_OK);
    hf_writes_fini(&writes);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(entries_are_found_by_index),
        cmocka_unit_test(a_cut_log_continues_with_other_entries),
        cmocka_unit_test(a_compacted_log_knows_the_term_of_its_base),
        cmocka_unit_test(memory_of_forgotten_batches_is_freed),
        cmocka_unit_test(a_part_of_a_batch_is_attached),
        cmocka_unit_test(reads_are_limited_by_count_and_bytes),
        cmocka_unit_test(compacted_entries_are_freed_a_few_at_a_time),
        cmocka_unit_test(the_log_has_a_limit),
        cmocka_unit_test(the_last_entries_are_counted_by_number_and_bytes),
        cmocka_unit_test(random_changes_agree_with_an_array),
        cmocka_unit_test(one_flush_makes_many_writes_durable),
        cmocka_unit_test(replaced_entries_are_not_durable),
        cmocka_unit_test(an_installation_replaces_everything),
        cmocka_unit_test(waiting_writes_have_a_limit),
    };

    return hf_test_main("entries", cases, HF_TEST_COUNT(cases), 0);
}
