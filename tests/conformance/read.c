/* read.c - the results of hf_read() and hf_list(), which contain no secrets. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <stdlib.h>

/* LK-01, MN-04 */
static void read_returns_the_state_of_a_key(void)
{
    struct hf_client_opts client_opts;
    struct hf_client *holder = NULL, *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    hf_client_opts_init(&client_opts);
    client_opts.owner = "the owner";
    expect_ok(hf_open(suite_url(), &client_opts, &holder));
    opts.note = "nightly report";
    opts.value = hf_bytes_of("v");
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    expect_ok(recorded_read(other, key, &info));
    /* A server that executes the LOCK later than another counts from then. */
    while (info.held && info.held_ms < 30) {
        hf_info_fini(&info);
        suite_sleep(30);
        expect_ok(recorded_read(other, key, &info));
    }

    assert_true(info.held);
    assert_false(info.forced);
    assert_int_equal(info.key.size, key.size);
    assert_memory_equal(info.key.data, key.data, key.size);
    assert_int_equal(info.token, hf_lock_token(lock));
    assert_string_equal(info.owner, "the owner");
    assert_string_equal(info.note, "nightly report");
    assert_int_equal(info.value.size, 1);
    assert_memory_equal(info.value.data, "v", 1);
    assert_int_equal(info.waiters, 0);
    assert_in_range(info.held_ms, 30, SUITE_LONG_TTL_MS);
    assert_in_range(info.left_ms, hf_lock_remaining_ms(lock),
                    suite_lease_ms(SUITE_LONG_TTL_MS));
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* MN-04 */
static void read_of_a_free_key_is_no_error(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_read(client, key, &info));

    assert_false(info.held);
    assert_int_equal(info.token, 0);
    assert_int_equal(info.value.size, 0);
    assert_string_equal(info.owner, "");
    assert_string_equal(info.note, "");
    hf_info_fini(&info);
    suite_close(client);
}

/* LK-17 */
static void a_local_read_returns_the_state_of_one_server(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;
    int64_t until = 0;
    bool held = false;

    opts.value = hf_bytes_of("v");
    expect_ok(recorded_acquire(client, key, &opts, &lock));
    until = suite_now_ms() + SUITE_TIMEOUT_MS;
    while (!held && suite_now_ms() < until) {
        expect_ok(hf_read(client, key, HF_LOCAL, &info));
        held = info.held && info.token == hf_lock_token(lock) &&
               info.value.size == 1;
        hf_info_fini(&info);
    }

    assert_true(held);
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.held);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

/* LK-18 */
static void a_linearizable_read_is_never_stale(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_key key = suite_key("k");

    for (unsigned i = 0; i < 200; i++) {
        struct hf_lock *lock = NULL;
        struct hf_info info;

        expect_ok(recorded_acquire(one, key, NULL, &lock));
        expect_ok(recorded_read(two, key, &info));
        assert_true(info.held);
        assert_int_equal(info.token, hf_lock_token(lock));
        hf_info_fini(&info);
        expect_ok(recorded_release(one, lock));
        expect_ok(recorded_read(two, key, &info));
        assert_false(info.held);
        hf_info_fini(&info);
        hf_lock_free(lock);
    }
    suite_close(one);
    suite_close(two);
}

/* ---- Lists --------------------------------------------------------------*/

#define LISTED 5

struct list {
    char keys[LISTED + 1][160];
    uint64_t tokens[LISTED + 1];
    unsigned count;
    unsigned stop_after; /* keys; 0: never */
};

static bool note_key(const struct hf_info *info, void *arg)
{
    struct list *list = arg;

    if (list->count <= LISTED && info->key.size < sizeof(list->keys[0])) {
        memcpy(list->keys[list->count], info->key.data, info->key.size);
        list->tokens[list->count] = info->held ? info->token : 0;
    }
    list->count++;
    return list->count != list->stop_after;
}

/* MN-04, MM-08 */
static void list_shows_held_keys_once_and_in_order(void)
{
    static const char *const names[LISTED] = {"d", "b", "a", "c/1", "c"};
    static const char *const sorted[LISTED] = {"a", "b", "c", "c/1", "d"};
    struct hf_client *client = suite_open();
    struct hf_lock *locks[LISTED] = {0}, *released = NULL;
    struct list list = {.count = 0};

    for (unsigned i = 0; i < LISTED; i++)
        expect_ok(
            recorded_acquire(client, suite_key(names[i]), NULL, &locks[i]));
    expect_ok(recorded_acquire(client, suite_key("released"), NULL, &released));
    expect_ok(recorded_release(client, released));
    expect_ok(hf_list(client, suite_key(""), note_key, &list));

    assert_int_equal(list.count, LISTED);
    for (unsigned i = 0; i < LISTED; i++) {
        struct hf_key key = suite_key(sorted[i]);

        assert_string_equal(list.keys[i], (const char *)key.data);
        assert_true(list.tokens[i] > 0);
        hf_lock_free(locks[i]);
    }
    hf_lock_free(released);
    suite_close(client);
}

static void list_returns_only_its_prefix(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *in = NULL, *out = NULL, *itself = NULL;
    struct list list = {.count = 0};

    expect_ok(recorded_acquire(client, suite_key("p/1"), NULL, &in));
    expect_ok(recorded_acquire(client, suite_key("p"), NULL, &itself));
    expect_ok(recorded_acquire(client, suite_key("o/1"), NULL, &out));
    expect_ok(hf_list(client, suite_key("p"), note_key, &list));
    assert_int_equal(list.count, 2);
    list.count = 0;
    expect_ok(hf_list(client, suite_key("p/"), note_key, &list));

    assert_int_equal(list.count, 1);
    assert_int_equal(list.tokens[0], hf_lock_token(in));
    hf_lock_free(in);
    hf_lock_free(itself);
    hf_lock_free(out);
    suite_close(client);
}

static void list_stops_when_the_callback_returns_false(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *locks[LISTED] = {0};
    struct list list = {.stop_after = 2};

    for (unsigned i = 0; i < LISTED; i++)
        expect_ok(recorded_acquire(client, suite_key_number("k", i), NULL,
                                   &locks[i]));
    expect_ok(hf_list(client, suite_key(""), note_key, &list));

    assert_int_equal(list.count, 2);
    for (unsigned i = 0; i < LISTED; i++)
        hf_lock_free(locks[i]);
    suite_close(client);
}

static void list_of_an_unused_prefix_is_empty(void)
{
    struct hf_client *client = suite_open();
    struct list list = {.count = 0};

    expect_ok(hf_list(client, suite_key(""), note_key, &list));

    assert_int_equal(list.count, 0);
    suite_close(client);
}

/* ---- Secrets ------------------------------------------------------------*/

static bool contains(const void *bytes, size_t size, const uint8_t *nonce)
{
    return bytes && size >= HF_NONCE_SIZE &&
           memmem(bytes, size, nonce, HF_NONCE_SIZE) != NULL;
}

static bool shows(const struct hf_info *info, const uint8_t *nonce)
{
    return contains(info, sizeof(*info), nonce) ||
           contains(info->key.data, info->key.size, nonce) ||
           contains(info->value.data, info->value.size, nonce) ||
           contains(info->owner, strlen(info->owner), nonce) ||
           contains(info->note, strlen(info->note), nonce);
}

struct search {
    uint8_t nonce[HF_NONCE_SIZE];
    unsigned seen, shown;
};

static bool search_info(const struct hf_info *info, void *arg)
{
    struct search *search = arg;

    search->seen++;
    search->shown += shows(info, search->nonce);
    return true;
}

static void search_event(const struct hf_event *event, void *arg)
{
    struct search *search = arg;

    search->seen++;
    search->shown +=
        contains(event, sizeof(*event), search->nonce) ||
        contains(event->key.data, event->key.size, search->nonce) ||
        contains(event->owner, strlen(event->owner), search->nonce);
}

static void no_output_contains_a_nonce(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct search search = {.seen = 0};
    struct hf_watch *watch = NULL;
    struct hf_lock *lock = NULL;
    struct hf_info info;

    (void)hf_fd(other); /* after hf_fd(), a client starts no threads */
    if (suite_has(HF_CAP_WATCH))
        expect_ok(
            hf_watch_open(other, key, NULL, search_event, &search, &watch));
    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    hf_lock_nonce(lock, search.nonce);
    expect_ok(recorded_read(other, key, &info));
    assert_false(shows(&info, search.nonce));
    hf_info_fini(&info);
    expect_ok(hf_list(other, key, search_info, &search));
    expect_ok(hf_wait_held(other, key, SUITE_TIMEOUT_MS, &info));
    assert_false(shows(&info, search.nonce));
    hf_info_fini(&info);
    expect_ok(hf_process(other));

    assert_true(search.seen >= 1);
    assert_int_equal(search.shown, 0);
    hf_watch_close(watch);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

static const struct promise promises[] = {
    PROMISE(read_returns_the_state_of_a_key, HF_CAP_VALUE),
    PROMISE(read_of_a_free_key_is_no_error, 0),
    PROMISE(a_local_read_returns_the_state_of_one_server, HF_CAP_VALUE),
    PROMISE(a_linearizable_read_is_never_stale, HF_CAP_LINEARIZABLE_READ),
    PROMISE(list_shows_held_keys_once_and_in_order, 0),
    PROMISE(list_returns_only_its_prefix, 0),
    PROMISE(list_stops_when_the_callback_returns_false, 0),
    PROMISE(list_of_an_unused_prefix_is_empty, 0),
    PROMISE(no_output_contains_a_nonce, 0),
};

const struct chapter chapter_read = CHAPTER(promises);
