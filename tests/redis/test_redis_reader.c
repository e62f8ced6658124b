/* The limit on arrays in the replies of a server. */
#include "strategy/redis/reader.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "lib/runner.h"

static redisReader *reader;
static struct hf_redis_reader limited;

static int set_up(void **state)
{
    (void)state;
    reader = redisReaderCreate();
    if (!reader)
        return -1;
    hf_redis_reader_init(&limited, reader);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    redisReaderFree(reader);
    return 0;
}

static void feed(const char *bytes)
{
    assert_int_equal(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
}

static void feed_array_length(long long count)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "*%lld\r\n", count);
    feed(text);
}

static void expect_refused(void)
{
    void *reply = NULL;

    assert_int_equal(hf_redis_reader_next(&limited, &reply), REDIS_ERR);
    assert_null(reply);
    assert_string_not_equal(hf_redis_reader_error(&limited), "");
}

static void an_array_as_long_as_the_limit_is_read(void **state)
{
    void *got = NULL;
    redisReply *reply;

    (void)state;
    feed_array_length(HF_REDIS_ELEMENTS_MAX);
    for (unsigned i = 0; i < HF_REDIS_ELEMENTS_MAX; i++) {
        assert_int_equal(hf_redis_reader_next(&limited, &got), REDIS_OK);
        assert_null(got);
        feed(":7\r\n");
    }
    assert_int_equal(hf_redis_reader_next(&limited, &got), REDIS_OK);
    reply = got;
    assert_int_equal(reply->elements, HF_REDIS_ELEMENTS_MAX);
    assert_int_equal(reply->element[HF_REDIS_ELEMENTS_MAX - 1]->integer, 7);
    freeReplyObject(reply);
}

static void a_longer_array_is_refused(void **state)
{
    (void)state;
    feed_array_length(HF_REDIS_ELEMENTS_MAX + 1);
    expect_refused();
}

static void the_longest_array_is_refused(void **state)
{
    (void)state;
    feed_array_length(INT32_MAX);
    expect_refused();
}

static void a_long_array_inside_an_array_is_refused(void **state)
{
    (void)state;
    feed_array_length(2);
    feed(":1\r\n");
    feed_array_length(HF_REDIS_ELEMENTS_MAX + 1);
    expect_refused();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(an_array_as_long_as_the_limit_is_read),
        CASE(a_longer_array_is_refused),
        CASE(the_longest_array_is_refused),
        CASE(a_long_array_inside_an_array_is_refused),
    };

    return hf_test_main("redis reader", cases, HF_TEST_COUNT(cases), 0);
}
