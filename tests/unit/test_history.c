#include "core/history.h"

#include "lib/alloc.h"
#include "lib/death.h"
#include "lib/runner.h"

static uint8_t bytes[HF_KEY_MAX];

static struct hf_history new_history(uint64_t index)
{
    struct hf_history history;

    assert_int_equal(hf_history_init(&history, HF_HISTORY_BYTES, index), HF_OK);
    return history;
}

/* Return an event that differs from its neighbours in every field. */
static struct hf_event event_of(uint64_t index)
{
    static const char owners[] = "abcdefghijklmnop";

    return (struct hf_event){
        .kind = index % 2 ? HF_EVENT_GRANTED : HF_EVENT_WITHDRAWN,
        .index = index,
        .key = {bytes, 1 + index * 37 % HF_KEY_MAX},
        .token = index * 3,
        .owner = owners + index % 16,
    };
}

static void add_event(struct hf_history *history, uint64_t index)
{
    struct hf_event event = event_of(index);

    hf_history_add(history, &event);
}

static void expect_event(const struct hf_history *history,
                         struct hf_history_cursor *cursor, uint64_t index)
{
    struct hf_event expected = event_of(index);
    struct hf_event event;

    assert_true(hf_history_read(history, cursor, &event));
    assert_int_equal(event.kind, expected.kind);
    assert_true(event.index == index);
    assert_true(event.token == expected.token);
    assert_int_equal(event.key.size, expected.key.size);
    assert_memory_equal(event.key.data, bytes, event.key.size);
    assert_string_equal(event.owner, expected.owner);
}

static void expect_none(const struct hf_history *history,
                        struct hf_history_cursor *cursor)
{
    struct hf_event event;

    assert_false(hf_history_read(history, cursor, &event));
}

static void expect_dropped(const struct hf_history *history,
                           struct hf_history_cursor *cursor)
{
    struct hf_event event;

    assert_true(hf_history_read(history, cursor, &event));
    assert_int_equal(event.kind, HF_EVENT_DROPPED);
    assert_true(event.index == history->first);
    assert_int_equal(event.key.size, 0);
    assert_string_equal(event.owner, "");
}

static void fill_bytes(void)
{
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
}

static void events_are_read_in_order(void **state)
{
    struct hf_history history = new_history(10);
    struct hf_history_cursor cursor = hf_history_seek(&history, 10);

    (void)state;
    fill_bytes();
    expect_none(&history, &cursor);
    for (uint64_t i = 10; i < 20; i++)
        add_event(&history, i);
    for (uint64_t i = 10; i < 20; i++)
        expect_event(&history, &cursor, i);
    expect_none(&history, &cursor);
    add_event(&history, 20);
    expect_event(&history, &cursor, 20);
    hf_history_fini(&history);
}

/* The ring wraps around many times, with records of all sizes. */
static void reader_that_keeps_up_misses_nothing(void **state)
{
    struct hf_history history = new_history(1);
    struct hf_history_cursor cursor = hf_history_seek(&history, 1);
    struct hf_history_cursor slow = cursor;

    (void)state;
    fill_bytes();
    for (uint64_t i = 1; i < 100000; i++) {
        add_event(&history, i);
        expect_event(&history, &cursor, i);
        if (i % 50 == 0) {
            for (uint64_t j = i - 49; j <= i; j++)
                expect_event(&history, &slow, j);
        }
    }
    hf_history_fini(&history);
}

static void slow_reader_gets_a_dropped_event(void **state)
{
    struct hf_history history = new_history(1);
    struct hf_history_cursor cursor = hf_history_seek(&history, 1);

    (void)state;
    fill_bytes();
    for (uint64_t i = 1; i <= 5000; i++)
        add_event(&history, i);
    assert_true(history.first > 1);
    expect_dropped(&history, &cursor);
    for (uint64_t i = history.first; i <= 5000; i++)
        expect_event(&history, &cursor, i);
    expect_none(&history, &cursor);
    hf_history_fini(&history);
}

static void cursor_can_start_at_any_index(void **state)
{
    struct hf_history history = new_history(1);
    struct hf_history_cursor cursor;

    (void)state;
    fill_bytes();
    for (uint64_t i = 1; i <= 5000; i++)
        add_event(&history, i);
    for (uint64_t i = history.first; i <= 5000; i++) {
        cursor = hf_history_seek(&history, i);
        expect_event(&history, &cursor, i);
    }
    cursor = hf_history_seek(&history, history.first - 1);
    expect_dropped(&history, &cursor);
    expect_event(&history, &cursor, history.first);
    hf_history_fini(&history);
}

static void events_before_the_history_are_dropped(void **state)
{
    struct hf_history history = new_history(10);
    struct hf_history_cursor cursor = hf_history_seek(&history, 3);

    (void)state;
    expect_dropped(&history, &cursor);
    expect_none(&history, &cursor);
    add_event(&history, 10);
    expect_event(&history, &cursor, 10);
    hf_history_fini(&history);
}

static void cursor_waits_for_a_future_index(void **state)
{
    struct hf_history history = new_history(1);
    struct hf_history_cursor cursor = hf_history_seek(&history, 4000);

    (void)state;
    fill_bytes();
    for (uint64_t i = 1; i < 4000; i++)
        add_event(&history, i);
    expect_none(&history, &cursor);
    add_event(&history, 4000);
    add_event(&history, 4001);
    expect_event(&history, &cursor, 4000);
    expect_event(&history, &cursor, 4001);
    hf_history_fini(&history);
}

/* A cursor that has read all events may point to a filler; overwriting the
 * filler must not show as a DROPPED event. */
static void overwritten_filler_is_not_a_gap(void **state)
{
    struct hf_event event = event_of(1);
    struct hf_history history = new_history(1);
    struct hf_history_cursor cursor = hf_history_seek(&history, 1);
    uint64_t wraps = 0;

    (void)state;
    event.key = (struct hf_key){bytes, HF_KEY_MAX};
    event.owner = "o";
    for (event.index = 1; wraps < 5; event.index++) {
        uint64_t before = history.newest % history.size;
        struct hf_event read;

        hf_history_add(&history, &event);
        wraps += history.newest % history.size < before;
        if (event.index % 200 != 0)
            continue;
        while (cursor.index <= event.index) {
            assert_true(hf_history_read(&history, &cursor, &read));
            assert_int_equal(read.kind, event.kind);
        }
    }
    hf_history_fini(&history);
}

/* Every ring keeps as many events as it has room for; the smallest one has room
 * for the largest event. */
static void size_of_the_ring_is_a_setting(void **state)
{
    static const size_t sizes[] = {0, HF_HISTORY_MIN, 5000, 1 << 16, 1 << 20};
    static const uint64_t rounded[] = {4096, 4096, 8192, 1 << 16, 1 << 20};
    uint64_t kept = 0;

    (void)state;
    fill_bytes();
    for (size_t i = 0; i < HF_TEST_COUNT(sizes); i++) {
        struct hf_history history;
        struct hf_history_cursor cursor;
        uint64_t before = kept;

        assert_int_equal(hf_history_init(&history, sizes[i], 1), HF_OK);
        assert_true(history.size == rounded[i]);
        for (uint64_t j = 1; j <= 5000; j++)
            add_event(&history, j);
        kept = history.next - history.first;
        assert_true(history.newest - history.oldest <= history.size);
        assert_true(kept >= history.size / 2048 && kept >= before);
        cursor = hf_history_seek(&history, history.first);
        for (uint64_t j = history.first; j <= 5000; j++)
            expect_event(&history, &cursor, j);
        hf_history_fini(&history);
    }
    assert_true(kept > 1000);
}

/* A restarted history continues at any index, and keeps its memory. */
static void restarted_history_forgets_its_events(void **state)
{
    struct hf_history history = new_history(1);
    struct hf_history_cursor behind = hf_history_seek(&history, 1);
    struct hf_history_cursor ahead = hf_history_seek(&history, 102);
    const uint8_t *ring = history.bytes;

    (void)state;
    fill_bytes();
    for (uint64_t i = 1; i <= 50; i++)
        add_event(&history, i);
    hf_history_restart(&history, 100);
    expect_dropped(&history, &behind);
    expect_none(&history, &behind);
    for (uint64_t i = 100; i <= 102; i++)
        add_event(&history, i);
    for (uint64_t i = 100; i <= 102; i++)
        expect_event(&history, &behind, i);
    expect_event(&history, &ahead, 102);
    assert_ptr_equal(history.bytes, ring);
    hf_history_fini(&history);
}

static void skip_an_index(void *arg)
{
    struct hf_event event = event_of(7);

    hf_history_add(arg, &event);
}

static void skipped_index_aborts(void **state)
{
    struct hf_history history = new_history(1);

    (void)state;
    assert_true(hf_test_dies(skip_an_index, &history));
    hf_history_fini(&history);
}

static void seek_all(const struct hf_history *history)
{
    for (uint64_t index = history->first; index < history->next; index++) {
        struct hf_history_cursor cursor = hf_history_seek(history, index);

        expect_event(history, &cursor, index);
    }
}

/* The blocks of the ring begin and end at all places within records. */
static void every_event_is_found_in_every_state_of_the_ring(void **state)
{
    static const size_t sizes[] = {HF_HISTORY_MIN, 4UL * HF_HISTORY_MIN, 65536};
    uint64_t index;

    (void)state;
    fill_bytes();
    for (size_t i = 0; i < HF_TEST_COUNT(sizes); i++) {
        struct hf_history history;

        assert_int_equal(hf_history_init(&history, sizes[i], 1), HF_OK);
        for (index = 1; index <= 400; index++) {
            add_event(&history, index);
            seek_all(&history);
        }
        hf_history_restart(&history, 7);
        for (index = 7; index <= 300; index++) {
            add_event(&history, index);
            seek_all(&history);
        }
        hf_history_fini(&history);
    }
}

static void out_of_memory_is_reported(void **state)
{
    struct hf_history history;

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_history_init(&history, HF_HISTORY_MIN, 1), HF_ENOMEM);
    assert_null(history.bytes);
    hf_history_fini(&history);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(events_are_read_in_order),
        cmocka_unit_test(reader_that_keeps_up_misses_nothing),
        cmocka_unit_test(slow_reader_gets_a_dropped_event),
        cmocka_unit_test(cursor_can_start_at_any_index),
        cmocka_unit_test(events_before_the_history_are_dropped),
        cmocka_unit_test(cursor_waits_for_a_future_index),
        cmocka_unit_test(overwritten_filler_is_not_a_gap),
        cmocka_unit_test(size_of_the_ring_is_a_setting),
        cmocka_unit_test(restarted_history_forgets_its_events),
        cmocka_unit_test(skipped_index_aborts),
        cmocka_unit_test(every_event_is_found_in_every_state_of_the_ring),
        cmocka_unit_test(out_of_memory_is_reported),
    };

    return hf_test_main("history", cases, HF_TEST_COUNT(cases), 0);
}
