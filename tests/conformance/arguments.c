/* arguments.c - keys and values of any bytes, limits, and errors that name the
 * invalid argument. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <stdio.h>
#include <stdlib.h>

#define WEEK_MS (7u * 24 * 3600 * 1000)

/* ---- Bytes --------------------------------------------------------------*/

static void expect_normal_key(struct hf_client *client, struct hf_key key)
{
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;

    expect_ok(recorded_acquire(client, key, &once, &lock));
    expect_err(recorded_acquire(client, key, &once, &none), HF_EBUSY);
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.held);
    assert_int_equal(info.key.size, key.size);
    assert_memory_equal(info.key.data, key.data, key.size);
    hf_info_fini(&info);
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
}

/* LK-27 */
static void a_key_may_be_any_bytes(void)
{
    static const struct hf_key keys[] = {
        {"_", 1},    {"not_found", 9},   {"", 1}, /* a NUL */
        {"\0\0", 2}, {"a\0b", 3},        {"*", 1},        {"%00", 3}, {" ", 1},
        {"\n", 1},   {"\r\n$-1\r\n", 7}, {"\xff\xfe", 2}, {"nil", 3},
    };
    struct hf_client *client = suite_open();

    for (size_t i = 0; i < HF_TEST_COUNT(keys); i++)
        expect_normal_key(client, keys[i]);
    suite_close(client);
}

/* LK-27 */
static void bytes_after_a_nul_are_part_of_the_key(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key keys[] = {{"n\0a", 3}, {"n\0b", 3}, {"n", 1}, {"n\0", 2}};
    struct hf_lock *locks[4] = {0};

    for (size_t i = 0; i < 4; i++)
        expect_ok(recorded_acquire(client, keys[i], &once, &locks[i]));

    for (size_t i = 0; i < 4; i++) {
        expect_ok(recorded_release(client, locks[i]));
        hf_lock_free(locks[i]);
    }
    suite_close(client);
}

/* LK-27 */
static void a_key_may_contain_every_byte(void)
{
    struct hf_client *client = suite_open();
    unsigned char bytes[257];

    for (size_t i = 0; i < 256; i++)
        bytes[i] = (unsigned char)i;
    bytes[256] = 'x';
    expect_normal_key(client, (struct hf_key){bytes, 256});
    expect_normal_key(client, (struct hf_key){bytes, 257});
    suite_close(client);
}

/* LK-27 */
static void a_key_has_up_to_a_kibibyte(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *none = NULL;
    struct hf_error error;
    char bytes[HF_KEY_MAX + 1];

    memset(bytes, 'k', sizeof(bytes));
    expect_normal_key(client, (struct hf_key){bytes, HF_KEY_MAX});

    expect_err(
        hf_acquire(client, (struct hf_key){bytes, HF_KEY_MAX + 1}, NULL, &none),
        HF_EINVAL);
    hf_client_error(client, &error);
    expect_err(error.code, HF_EINVAL);
    expect_error_text(error.text, "key");
    assert_null(none);
    suite_close(client);
}

/* LK-27, LK-01 */
static void a_value_may_be_any_bytes(void)
{
    static const struct hf_bytes values[] = {
        {"", 0}, {"", 1}, {"not_found", 9}, {"_", 1}, {"a\0b\xff", 4},
    };
    struct hf_client *client = suite_open();

    for (unsigned i = 0; i < HF_TEST_COUNT(values); i++) {
        struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
        struct hf_key key = suite_key_number("k", i);
        struct hf_lock *lock = NULL;

        opts.value = values[i];
        expect_ok(recorded_acquire(client, key, &opts, &lock));
        suite_expect_value(client, key, values[i]);
        hf_lock_free(lock);
    }
    suite_close(client);
}

/* LK-27 */
static void a_value_has_up_to_64_kibibytes(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_error error;
    unsigned char *bytes = malloc(HF_VALUE_MAX + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i <= HF_VALUE_MAX; i++)
        bytes[i] = (unsigned char)(i * 7);
    opts.value = (struct hf_bytes){bytes, HF_VALUE_MAX};
    expect_ok(recorded_acquire(client, key, &opts, &lock));
    suite_expect_value(client, key, opts.value);
    expect_ok(recorded_update(client, lock, &opts.value, hf_bytes_of("small")));
    expect_ok(recorded_update(client, lock, NULL, opts.value));
    suite_expect_value(client, key, opts.value);

    opts.value.size++;
    opts.error = &error;
    expect_err(hf_acquire(client, suite_key("more"), &opts, &none), HF_EINVAL);
    expect_error_text(error.text, "value");
    expect_err(hf_update(lock, NULL, opts.value), HF_EINVAL);
    hf_client_error(client, &error);
    expect_error_text(error.text, "value");
    free(bytes);
    hf_lock_free(lock);
    suite_close(client);
}

/* ---- Limits -------------------------------------------------------------*/

/* GO-29 */
static void a_ttl_is_a_millisecond_to_a_week(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(WEEK_MS, 0);
    struct hf_error error = {.code = HF_OK};
    struct hf_lock *lock = NULL, *short_lock = NULL, *none = NULL;
    enum hf_err err;

    expect_ok(recorded_acquire(client, suite_key("week"), &opts, &lock));
    assert_true(hf_lock_valid_for(lock, WEEK_MS - SUITE_LONG_TTL_MS));
    opts.ttl_ms = 1;
    err = recorded_acquire(client, suite_key("short"), &opts, &short_lock);
    if (!suite_lease_was_too_short(err))
        expect_ok(err);

    opts.ttl_ms = WEEK_MS + 1;
    opts.error = &error;
    expect_err(hf_acquire(client, suite_key("more"), &opts, &none), HF_EINVAL);
    expect_error_text(error.text, "ttl_ms");
    expect_err(hf_renew(lock, WEEK_MS + 1), HF_EINVAL);
    hf_client_error(client, &error);
    expect_error_text(error.text, "ttl_ms");
    hf_lock_free(lock);
    hf_lock_free(short_lock);
    suite_close(client);
}

static void a_note_and_an_owner_have_up_to_255_bytes(void)
{
    struct hf_client_opts client_opts;
    struct hf_client *client = NULL, *none = NULL;
    struct hf_error error = {.code = HF_OK};
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *no_lock = NULL;
    struct hf_info info;
    char text[HF_NOTE_MAX + 2];

    memset(text, 'n', sizeof(text));
    text[HF_NOTE_MAX + 1] = '\0';
    hf_client_opts_init(&client_opts);
    client_opts.owner = text + 1;
    expect_ok(hf_open(suite_url(), &client_opts, &client));
    opts.note = text + 1;
    expect_ok(recorded_acquire(client, suite_key("k"), &opts, &lock));
    expect_ok(recorded_read(client, suite_key("k"), &info));
    assert_string_equal(info.owner, text + 1);
    assert_string_equal(info.note, text + 1);
    hf_info_fini(&info);

    opts.note = text;
    opts.error = &error;
    expect_err(hf_acquire(client, suite_key("more"), &opts, &no_lock),
               HF_EINVAL);
    expect_error_text(error.text, "note");
    client_opts.owner = text;
    client_opts.error = &error;
    expect_err(hf_open(suite_url(), &client_opts, &none), HF_EINVAL);
    expect_error_text(error.text, "owner");
    assert_null(none);
    hf_lock_free(lock);
    suite_close(client);
}

/* ---- Errors -------------------------------------------------------------*/

/* GO-29, MM-01, MS-09 */
static void an_option_out_of_range_is_named(void)
{
    struct hf_client *client = suite_open();
    struct hf_error error = {.code = HF_OK};
    struct hf_lock *none = NULL;
    struct {
        const char *name;
        struct hf_lock_opts opts;
    } wrong[] = {
        {"ttl_ms", suite_opts(UINT32_MAX, 0)},
        {"timeout_ms", suite_opts(1000, 0)},
        {"renew_ms", suite_opts(1000, 0)}, /* MS-09: must be below the ttl */
        {"value", suite_opts(1000, 0)},
        {"ttl_includes_wait", suite_opts(1000, 0)},
        {"size", suite_opts(1000, 0)},
    };

    wrong[1].opts.timeout_ms = UINT32_MAX;
    wrong[2].opts.renew_ms = 1000;
    wrong[3].opts.value = (struct hf_bytes){NULL, 1};
    wrong[4].opts.ttl_includes_wait = true;
    wrong[4].opts.renew = true;
    wrong[5].opts.size = 3;
    for (size_t i = 0; i < HF_TEST_COUNT(wrong); i++) {
        struct hf_error words;

        wrong[i].opts.error = &error;
        expect_err(hf_acquire(client, suite_key("k"), &wrong[i].opts, &none),
                   HF_EINVAL);
        hf_client_error(client, &words);
        expect_err(words.code, HF_EINVAL);
        expect_error_text(words.text, wrong[i].name);
        if (wrong[i].opts.size > 3)
            assert_string_equal(error.text, words.text);
        expect_err(hf_acquire_start(client, suite_key("k"), &wrong[i].opts,
                                    &none, NULL, NULL, NULL),
                   HF_EINVAL);
        expect_err(hf_lock_new(client, suite_key("k"), &wrong[i].opts, &none),
                   HF_EINVAL);
        assert_null(none);
    }
    suite_close(client);
}

/* GO-29 */
static void zero_means_the_default(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock = NULL;
    int64_t before = 0;

    suite_restore_defaults();
    opts = suite_opts(0, 0);
    opts.timeout_ms = 0;
    opts.renew_ms = 0;
    before = suite_now_ms();
    expect_ok(recorded_acquire(client, suite_key("k"), &opts, &lock));

    assert_in_range(hf_lock_deadline(lock), before + 10000,
                    suite_now_ms() + 10000);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-29, MM-01 */
static void an_empty_key_is_refused(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(1000, 0);
    struct hf_error error = {.code = HF_OK};
    struct hf_lock *none = NULL;
    struct hf_info info;

    opts.error = &error;
    expect_err(hf_acquire(client, hf_key_of(""), &opts, &none), HF_EINVAL);
    expect_error_text(error.text, "key");
    expect_err(hf_acquire(client, hf_key_of(NULL), &opts, &none), HF_EINVAL);
    expect_err(hf_acquire(client, (struct hf_key){NULL, 3}, &opts, &none),
               HF_EINVAL);
    expect_error_text(error.text, "key");
    expect_err(hf_lock_new(client, hf_key_of(""), &opts, &none), HF_EINVAL);
    expect_err(hf_read(client, hf_key_of(""), HF_LINEARIZABLE, &info),
               HF_EINVAL);
    expect_err(hf_wait_held(client, hf_key_of(""), 0, NULL), HF_EINVAL);
    expect_err(hf_wait_free(client, hf_key_of(""), 0, NULL), HF_EINVAL);
    expect_err(hf_force(client, hf_key_of(""), 1, false), HF_EINVAL);
    hf_client_error(client, &error);
    expect_error_text(error.text, "key");
    assert_null(none);
    suite_close(client);
}

/* MM-01 */
static void a_null_client_is_refused(void)
{
    struct hf_key key = suite_key("k");
    struct hf_lock *none = NULL;
    struct hf_info info;

    expect_err(hf_acquire(NULL, key, NULL, &none), HF_EINVAL);
    expect_err(hf_acquire_start(NULL, key, NULL, &none, NULL, NULL, NULL),
               HF_EINVAL);
    expect_err(hf_lock_new(NULL, key, NULL, &none), HF_EINVAL);
    expect_err(hf_read(NULL, key, HF_LINEARIZABLE, &info), HF_EINVAL);
    expect_err(hf_wait_held(NULL, key, 0, NULL), HF_EINVAL);
    expect_err(hf_wait_free(NULL, key, 0, NULL), HF_EINVAL);
    expect_err(hf_force(NULL, key, 1, false), HF_EINVAL);
    expect_err(hf_process(NULL), HF_EINVAL);
    expect_err(hf_open(suite_url(), NULL, NULL), HF_EINVAL);
    assert_null(none);
}

static void expect_bad_url(const char *url, enum hf_err wanted,
                           const char *word)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_client *none = NULL;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = &error;
    expect_err(hf_open(url, &opts, &none), wanted);
    expect_err(error.code, wanted);
    expect_error_text(error.text, word);
    assert_null(none);
    expect_err(hf_open(url, NULL, &none), wanted);
}

/* Return the URL of this case with one more option. */
static const char *with_option(const char *option)
{
    static char url[1024];

    (void)snprintf(url, sizeof(url), "%s%c%s", suite_url(),
                   strchr(suite_url(), '?') ? '&' : '?', option);
    return url;
}

/* GO-29, MM-01 */
static void an_invalid_url_is_refused_with_the_cause(void)
{
    expect_bad_url(NULL, HF_EINVAL, "url");
    expect_bad_url("", HF_EINVAL, "url");
    expect_bad_url("no scheme", HF_EINVAL, "url");
    expect_bad_url("nonesuch:jobs", HF_EUNSUPPORTED, "nonesuch");
    expect_bad_url(with_option("nonesuch=1"), HF_EINVAL, "nonesuch");
    expect_bad_url(with_option("nonesuch"), HF_EINVAL, "nonesuch");
    expect_bad_url(with_option("require=fence,magic"), HF_EINVAL, "magic");
}

static void require_accepts_available_capabilities(void)
{
    struct hf_client *client = NULL;
    char option[256] = "require=";

    for (uint32_t bit = 0; bit < 32; bit++) {
        enum hf_cap cap = (enum hf_cap)(UINT32_C(1) << bit);

        if (!suite_has((uint32_t)cap))
            continue;
        if (option[strlen(option) - 1] != '=')
            strncat(option, ",", sizeof(option) - strlen(option) - 1);
        strncat(option, hf_cap_name(cap), sizeof(option) - strlen(option) - 1);
    }
    expect_ok(hf_open(with_option(option), NULL, &client));
    suite_close(client);
}

static void require_refuses_missing_capabilities(void)
{
    bool missing = false;

#define TRY(cap, text, bit)                                                    \
    if (!suite_has(HF_CAP_##cap)) {                                            \
        missing = true;                                                        \
        expect_bad_url(with_option("require=" text), HF_EUNSUPPORTED, text);   \
    }
    HF_CAPS(TRY)
#undef TRY
    if (!missing)
        hf_test_skip("this strategy has all capabilities");
}

static void errors_and_capabilities_have_names(void)
{
#define CHECK_ERROR(name, value, text)                                         \
    assert_string_equal(hf_err_name(HF_##name), "HF_" #name);                  \
    assert_string_equal(hf_err_text(HF_##name), text);
    HF_ERRORS(CHECK_ERROR)
#undef CHECK_ERROR
#define CHECK_CAP(name, text, bit)                                             \
    assert_string_equal(hf_cap_name(HF_CAP_##name), text);
    HF_CAPS(CHECK_CAP)
#undef CHECK_CAP
    assert_non_null(hf_err_name((enum hf_err)12345));
    assert_non_null(hf_err_text((enum hf_err)12345));
#define CHECK_EVENT(name, text, bit)                                           \
    assert_string_equal(hf_event_name(HF_EVENT_##name), text);
    HF_EVENTS(CHECK_EVENT)
#undef CHECK_EVENT
    assert_non_null(hf_cap_name((enum hf_cap)0));
    assert_string_equal(hf_event_name(HF_EVENT_ANY), "?");
    assert_string_equal(hf_event_name((enum hf_event_kind)0), "?");
    assert_string_equal(hf_version(), HF_VERSION);
}

/* The caller may change its arguments when the call has returned, so the
 * library must copy them. */
static void arguments_are_copied(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    char key_text[] = "copied-key", value[] = "value", note[] = "note";
    struct hf_lock *lock = NULL;
    struct hf_info info;

    opts.idle = true;
    opts.value = hf_bytes_of(value);
    opts.note = note;
    expect_ok(recorded_lock_new(client, hf_key_of(key_text), &opts, &lock));
    memset(key_text, 'x', strlen(key_text));
    memset(value, 'x', strlen(value));
    memset(note, 'x', strlen(note));
    expect_ok(recorded_lock_acquire(client, lock));

    expect_ok(recorded_read(client, hf_key_of("copied-key"), &info));
    assert_true(info.held);
    assert_memory_equal(info.value.data, "value", 5);
    assert_string_equal(info.note, "note");
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

static const struct promise promises[] = {
    PROMISE(a_key_may_be_any_bytes, 0),
    PROMISE(bytes_after_a_nul_are_part_of_the_key, 0),
    PROMISE(a_key_may_contain_every_byte, 0),
    PROMISE(a_key_has_up_to_a_kibibyte, 0),
    PROMISE(a_value_may_be_any_bytes, HF_CAP_VALUE),
    PROMISE(a_value_has_up_to_64_kibibytes, HF_CAP_VALUE),
    PROMISE(a_ttl_is_a_millisecond_to_a_week, 0),
    PROMISE(a_note_and_an_owner_have_up_to_255_bytes, 0),
    PROMISE(an_option_out_of_range_is_named, 0),
    PROMISE(zero_means_the_default, 0),
    PROMISE(an_empty_key_is_refused, 0),
    PROMISE(a_null_client_is_refused, 0),
    PROMISE(an_invalid_url_is_refused_with_the_cause, 0),
    PROMISE(require_accepts_available_capabilities, 0),
    PROMISE(require_refuses_missing_capabilities, 0),
    PROMISE(errors_and_capabilities_have_names, 0),
    PROMISE(arguments_are_copied, HF_CAP_VALUE),
};

const struct chapter chapter_arguments = CHAPTER(promises);
