#include "base/url.h"

#include <stdio.h>

#include "lib/alloc.h"
#include "lib/runner.h"

struct good {
    const char *text;
    const char *scheme, *user, *password, *hosts, *path;
    size_t params;
};

static const struct good good[] = {
    {"memory:jobs", "memory", NULL, NULL, NULL, "jobs", 0},
    {"memory:", "memory", NULL, NULL, NULL, "", 0},
    {"memory:a%2fb%3F", "memory", NULL, NULL, NULL, "a/b?", 0},
    {"memory:a:b/c", "memory", NULL, NULL, NULL, "a:b/c", 0},
    {"file:/var/locks", "file", NULL, NULL, NULL, "/var/locks", 0},
    {"file:///var/locks", "file", NULL, NULL, "", "/var/locks", 0},
    {"file:///a@b", "file", NULL, NULL, "", "/a@b", 0},
    {"redis://h", "redis", NULL, NULL, "h", "", 0},
    {"redis://h/", "redis", NULL, NULL, "h", "/", 0},
    {"redis://h:1,i:2/3", "redis", NULL, NULL, "h:1,i:2", "/3", 0},
    {"redis://u@h", "redis", "u", NULL, "h", "", 0},
    {"redis://u:p@h/0", "redis", "u", "p", "h", "/0", 0},
    {"redis://:p@h", "redis", "", "p", "h", "", 0},
    {"redis://u:@h", "redis", "u", "", "h", "", 0},
    {"redis://u%40:p%3a%2F%3f@h", "redis", "u@", "p:/?", "h", "", 0},
    {"redis://u:p:q@h", "redis", "u", "p:q", "h", "", 0},
    {"redis://u:p@q@h", "redis", "u", "p@q", "h", "", 0},
    {"raft://[::1]:7000,[::2]:7000", "raft", NULL, NULL,
     "[::1]:7000,[::2]:7000", "", 0},
    {"redis+tls-2://h?a=1&b=%20&c=", "redis+tls-2", NULL, NULL, "h", "", 3},
    {"memory:x?a=b=c", "memory", NULL, NULL, NULL, "x", 1},
};

static void assert_same_text(const char *a, const char *b)
{
    if (b)
        assert_string_equal(a, b);
    else
        assert_null(a);
}

static void valid_urls_are_parsed(void **state)
{
    long blocks = hf_alloc_blocks();

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(good); i++) {
        struct hf_url url;

        assert_int_equal(hf_url_parse(&url, good[i].text, NULL), HF_OK);
        assert_string_equal(url.scheme, good[i].scheme);
        assert_same_text(url.user, good[i].user);
        assert_same_text(url.password, good[i].password);
        assert_same_text(url.hosts, good[i].hosts);
        assert_string_equal(url.path, good[i].path);
        assert_int_equal(url.param_count, good[i].params);
        hf_url_fini(&url);
    }
    assert_int_equal(hf_alloc_blocks(), blocks);
}

struct bad {
    const char *text;
    const char *cause; /* expected in the error text */
};

/* GO-29, MM-01. Every password contains "secret", and no error text may. */
static const struct bad bad[] = {
    {NULL, "missing"},
    {"", "scheme"},
    {"memory", "scheme"},
    {":x", "scheme"},
    {"Memory:x", "scheme"},
    {"1a:x", "scheme"},
    {"-a:x", "scheme"},
    {"a_b:x", "scheme"},
    {"memory:a b", "byte 9"},
    {"memory:a\tb", "byte 9"},
    {"memory:a\177", "byte 9"},
    {"memory:\303\251", "byte 8"},
    {"memory:x#y", "#"},
    {"memory:%", "after 'memory:'"},
    {"memory:%4", "after 'memory:'"},
    {"memory:%4g", "after 'memory:'"},
    {"memory:%g4", "after 'memory:'"},
    {"memory:a%00b", "after 'memory:'"},
    {"redis:u:secret%zz", "after 'redis:'"},
    {"redis://h%zz", "host"},
    {"redis://h/%zz", "path"},
    {"redis://u:secret%zz@h", "password"},
    {"redis://u%zz:secret@h", "user"},
    {"redis://u:secret@h/%", "path"},
    {"redis://u:secret@h?wait", "'wait'"},
    {"redis://u:secret@h?wait=%zz", "'wait'"},
    {"redis://u:secret@h?w%zz=1", "'w%zz'"},
    {"redis://u:secret@h?=1", "''"},
    {"redis://u:secret@h?", "''"},
    {"redis://u:secret@h?a=1&", "''"},
    {"redis://u:secret@h?a=1&b=2&a=3", "'a'"},
    {"redis://u:?secret@h", "?"},
    {"redis://u:x?secret=@h", "?"},
    {"redis://u:secret#@h", "#"},
    {"redis://u:/secret@h", "'/' before"},
    {"redis://:secret/x@h:1/0", "'/' before"},
    {"redis://u:x@x/secret@h", "'/' before"},
};

static void invalid_urls_are_rejected_with_the_cause(void **state)
{
    long blocks = hf_alloc_blocks();

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(bad); i++) {
        struct hf_error error = {.code = HF_OK};
        struct hf_url url;

        assert_int_equal(hf_url_parse(&url, bad[i].text, &error), HF_EINVAL);
        assert_int_equal(error.code, HF_EINVAL);
        if (!strstr(error.text, bad[i].cause))
            fail_msg("%s: \"%s\" does not contain \"%s\"", bad[i].text,
                     error.text, bad[i].cause);
        assert_null(strstr(error.text, "secret"));
        assert_null(url.storage);
        hf_url_fini(&url);
    }
    assert_int_equal(hf_alloc_blocks(), blocks);
}

static void url_above_the_size_limit_is_rejected(void **state)
{
    char text[HF_URL_MAX + 2];
    struct hf_error error;
    struct hf_url url;

    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text, "memory:", 7);
    text[HF_URL_MAX + 1] = '\0';
    assert_int_equal(hf_url_parse(&url, text, &error), HF_EINVAL);
    assert_non_null(strstr(error.text, "4096"));
    text[HF_URL_MAX] = '\0';
    assert_int_equal(hf_url_parse(&url, text, &error), HF_OK);
    hf_url_fini(&url);
}

static void too_many_options_are_rejected(void **state)
{
    char text[1000] = "memory:x?a0=1";
    struct hf_error error;
    struct hf_url url;

    (void)state;
    for (int i = 1; i < HF_URL_PARAMS_MAX; i++)
        (void)sprintf(text + strlen(text), "&a%d=1", i);
    assert_int_equal(hf_url_parse(&url, text, &error), HF_OK);
    assert_int_equal(url.param_count, HF_URL_PARAMS_MAX);
    hf_url_fini(&url);
    (void)sprintf(text + strlen(text), "&b=1");
    assert_int_equal(hf_url_parse(&url, text, &error), HF_EINVAL);
    assert_non_null(strstr(error.text, "32"));
}

static void unused_option_is_named(void **state)
{
    struct hf_error error;
    struct hf_url url;

    (void)state;
    assert_int_equal(hf_url_parse(&url, "memory:x?a=1&b%31=2", NULL), HF_OK);
    assert_string_equal(hf_url_param(&url, "a"), "1");
    assert_null(hf_url_param(&url, "c"));
    assert_int_equal(hf_url_check_used(&url, &error), HF_EINVAL);
    assert_non_null(strstr(error.text, "'b1'"));
    assert_string_equal(hf_url_param(&url, "b1"), "2");
    assert_int_equal(hf_url_check_used(&url, &error), HF_OK);
    hf_url_fini(&url);
}

static void out_of_memory_is_reported(void **state)
{
    struct hf_error error;
    struct hf_url url;

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_url_parse(&url, "memory:x", &error), HF_ENOMEM);
    assert_int_equal(error.code, HF_ENOMEM);
    assert_true(hf_alloc_failed());
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(valid_urls_are_parsed),
        cmocka_unit_test(invalid_urls_are_rejected_with_the_cause),
        cmocka_unit_test(url_above_the_size_limit_is_rejected),
        cmocka_unit_test(too_many_options_are_rejected),
        cmocka_unit_test(unused_option_is_named),
        cmocka_unit_test(out_of_memory_is_reported),
    };

    return hf_test_main("url", cases, HF_TEST_COUNT(cases), 0);
}
