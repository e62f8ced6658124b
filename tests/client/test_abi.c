/* Programs and libraries of different releases work together: public structs
 * keep their layout, and grow only as holdfast.h describes. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "holdfast.h"
#include "lib/runner.h"

/* ---- Layout -------------------------------------------------------------
 *
 * These are the offsets and sizes on machines with 64-bit pointers. The lines
 * below must never change. The hf_*_opts structs may grow: a new member adds a
 * line. In every other struct, a new member takes the place of a reserved
 * word. */

#define AT(type, member, offset)                                               \
    _Static_assert(sizeof(void *) != 8 ||                                      \
                       offsetof(struct type, member) == (offset),              \
                   #type "." #member " has moved")
#define SIZE(type, size)                                                       \
    _Static_assert(sizeof(void *) != 8 || sizeof(struct type) == (size),       \
                   #type " has another size")

SIZE(hf_error, 512);
AT(hf_error, code, 0);
AT(hf_error, text, 4);
AT(hf_error, reserved, 448);

SIZE(hf_key, 16);
SIZE(hf_bytes, 16);

SIZE(hf_info, 160);
AT(hf_info, key, 0);
AT(hf_info, held, 16);
AT(hf_info, forced, 17);
AT(hf_info, token, 24);
AT(hf_info, held_ms, 32);
AT(hf_info, left_ms, 36);
AT(hf_info, waiters, 40);
AT(hf_info, value, 48);
AT(hf_info, owner, 64);
AT(hf_info, note, 72);
AT(hf_info, index, 80);
AT(hf_info, storage, 88);
AT(hf_info, reserved, 96);

SIZE(hf_event, 120);
AT(hf_event, kind, 0);
AT(hf_event, index, 8);
AT(hf_event, key, 16);
AT(hf_event, token, 32);
AT(hf_event, owner, 40);
AT(hf_event, freed, 48);
AT(hf_event, reserved, 56);

AT(hf_client_opts, size, 0);
AT(hf_client_opts, background, 8);
AT(hf_client_opts, owner, 16);
AT(hf_client_opts, error, 24);

AT(hf_lock_opts, size, 0);
AT(hf_lock_opts, ttl_ms, 8);
AT(hf_lock_opts, wait_ms, 12);
AT(hf_lock_opts, timeout_ms, 16);
AT(hf_lock_opts, renew_ms, 20);
AT(hf_lock_opts, renew, 24);
AT(hf_lock_opts, idle, 25);
AT(hf_lock_opts, ttl_includes_wait, 26);
AT(hf_lock_opts, value, 32);
AT(hf_lock_opts, note, 48);
AT(hf_lock_opts, on_event, 56);
AT(hf_lock_opts, arg, 64);
AT(hf_lock_opts, error, 72);

AT(hf_watch_opts, size, 0);
AT(hf_watch_opts, from, 8);
AT(hf_watch_opts, kinds, 16);

/* ---- A newer program ----------------------------------------------------*/

/* Option structs of a later header, with members that this library does not
 * know. */
struct newer_client_opts {
    struct hf_client_opts known;
    uint64_t later;
};

struct newer_lock_opts {
    struct hf_lock_opts known;
    uint32_t later_ms;
    const char *latest;
};

struct newer_watch_opts {
    struct hf_watch_opts known;
    bool later;
};

static void ignore(const struct hf_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

static void expect_text(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("'%s' does not contain '%s'", text, word);
}

static struct hf_client *open_client(void)
{
    struct hf_client *client = NULL;

    assert_int_equal(hf_open("memory:abi", NULL, &client), HF_OK);
    return client;
}

static void unknown_options_are_accepted_if_zero(void **state)
{
    struct newer_client_opts client_opts;
    struct newer_lock_opts lock_opts;
    struct newer_watch_opts watch_opts;
    struct hf_client *client = NULL;
    struct hf_watch *watch = NULL;
    struct hf_lock *lock = NULL;

    (void)state;
    memset(&lock_opts, 0xff, sizeof(lock_opts));
    hf_client_opts_fill(&client_opts.known, sizeof(client_opts));
    hf_lock_opts_fill(&lock_opts.known, sizeof(lock_opts));
    hf_watch_opts_fill(&watch_opts.known, sizeof(watch_opts));
    assert_int_equal(lock_opts.later_ms, 0);
    assert_null(lock_opts.latest);
    lock_opts.known.ttl_ms = 60000;
    assert_int_equal(hf_open("memory:abi", &client_opts.known, &client), HF_OK);
    assert_int_equal(
        hf_acquire(client, hf_key_of("k"), &lock_opts.known, &lock), HF_OK);
    assert_true(hf_lock_valid_for(lock, 30000));
    assert_int_equal(hf_watch_open(client, hf_key_of(""), &watch_opts.known,
                                   ignore, NULL, &watch),
                     HF_OK);
    assert_int_equal(hf_lock_opts_set_default(&lock_opts.known), HF_OK);
    hf_watch_close(watch);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, 10000), HF_OK);
}

static void unknown_lock_options_are_refused_when_set(void **state)
{
    struct hf_client *client = open_client();
    struct newer_lock_opts opts;
    struct hf_error error;
    struct hf_lock *lock = NULL;

    (void)state;
    hf_lock_opts_fill(&opts.known, sizeof(opts));
    opts.known.error = &error;
    opts.latest = "x";
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts.known, &lock),
                     HF_EUNSUPPORTED);
    assert_null(lock);
    assert_int_equal(error.code, HF_EUNSUPPORTED);
    expect_text(error.text, "hf_lock_opts");
    expect_text(error.text, "does not know it");
    expect_text(error.text, hf_version());
    assert_int_equal(hf_lock_opts_set_default(&opts.known), HF_EUNSUPPORTED);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void unknown_client_and_watch_options_are_refused_when_set(void **state)
{
    struct hf_client *client = open_client(), *none = NULL;
    struct newer_client_opts client_opts;
    struct newer_watch_opts watch_opts;
    struct hf_watch *watch = NULL;
    struct hf_error error;

    (void)state;
    hf_client_opts_fill(&client_opts.known, sizeof(client_opts));
    client_opts.known.error = &error;
    client_opts.later = UINT64_C(1) << 63;
    assert_int_equal(hf_open("memory:abi", &client_opts.known, &none),
                     HF_EUNSUPPORTED);
    assert_null(none);
    expect_text(error.text, "hf_client_opts");
    hf_watch_opts_fill(&watch_opts.known, sizeof(watch_opts));
    watch_opts.later = true;
    assert_int_equal(hf_watch_open(client, hf_key_of(""), &watch_opts.known,
                                   ignore, NULL, &watch),
                     HF_EUNSUPPORTED);
    hf_client_error(client, &error);
    expect_text(error.text, "hf_watch_opts");
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* ---- An older program ---------------------------------------------------*/

static void missing_options_have_their_defaults(void **state)
{
    struct hf_client *client = open_client();
    struct hf_lock_opts opts;
    struct hf_lock *lock = NULL;

    (void)state;
    for (size_t size = sizeof(size_t);
         size <= offsetof(struct hf_lock_opts, value); size += 8) {
        memset(&opts, 0xff, sizeof(opts));
        hf_lock_opts_fill(&opts, size);
        assert_int_equal(((unsigned char *)&opts)[size], 0xff);
        assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock),
                         HF_OK);
        assert_true(hf_lock_valid_for(lock, 5000));
        assert_int_equal(hf_release(lock), HF_OK);
        hf_lock_free(lock);
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* An invalid size means that the struct was not initialized, so opts.error is
 * not a valid pointer either: only hf_client_error() may report the error. */
static void invalid_sizes_are_refused(void **state)
{
    const size_t sizes[] = {0, 3, sizeof(size_t) - 1, 4097, SIZE_MAX};
    struct hf_client *client = open_client();
    struct hf_lock_opts opts;
    struct hf_lock *lock = NULL;
    struct hf_error error;

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(sizes); i++) {
        memset(&opts, 0xff, sizeof(opts));
        opts.size = sizes[i];
        assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock),
                         HF_EINVAL);
        hf_client_error(client, &error);
        expect_text(error.text, "hf_lock_opts_init()");
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* ---- Reserved words -----------------------------------------------------*/

static bool all_zero(const uint64_t words[8])
{
    for (int i = 0; i < 8; i++) {
        if (words[i] != 0)
            return false;
    }
    return true;
}

static bool check_listed(const struct hf_info *info, void *arg)
{
    *(bool *)arg = all_zero(info->reserved);
    return true;
}

enum {
    UNSEEN,
    ZERO,
    NOT_ZERO
};

static void check_event(const struct hf_event *event, void *arg)
{
    atomic_store((atomic_int *)arg,
                 all_zero(event->reserved) ? ZERO : NOT_ZERO);
}

static void reserved_words_are_zero(void **state)
{
    struct hf_client *client = open_client();
    atomic_int seen = UNSEEN;
    bool listed = false;
    struct hf_watch *watch = NULL;
    struct hf_lock *lock = NULL;
    struct hf_error error;
    struct hf_info info;

    (void)state;
    assert_int_equal(
        hf_watch_open(client, hf_key_of(""), NULL, check_event, &seen, &watch),
        HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    while (atomic_load(&seen) == UNSEEN)
        (void)usleep(1000);
    assert_int_equal(atomic_load(&seen), ZERO);
    memset(&info, 0xff, sizeof(info));
    assert_int_equal(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info),
                     HF_OK);
    assert_true(all_zero(info.reserved));
    hf_info_fini(&info);
    memset(&info, 0xff, sizeof(info));
    assert_int_equal(hf_wait_held(client, hf_key_of("k"), 0, &info), HF_OK);
    assert_true(all_zero(info.reserved));
    hf_info_fini(&info);
    assert_int_equal(hf_list(client, hf_key_of(""), check_listed, &listed),
                     HF_OK);
    assert_true(listed);
    memset(&error, 0xff, sizeof(error));
    assert_int_equal(hf_renew(lock, UINT32_MAX), HF_EINVAL);
    hf_lock_error(lock, &error);
    assert_true(all_zero(error.reserved));
    hf_lock_free(lock);
    hf_watch_close(watch);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(unknown_options_are_accepted_if_zero),
        cmocka_unit_test(unknown_lock_options_are_refused_when_set),
        cmocka_unit_test(unknown_client_and_watch_options_are_refused_when_set),
        cmocka_unit_test(missing_options_have_their_defaults),
        cmocka_unit_test(invalid_sizes_are_refused),
        cmocka_unit_test(reserved_words_are_zero),
    };

    return hf_test_main("abi", cases, HF_TEST_COUNT(cases), 0);
}
