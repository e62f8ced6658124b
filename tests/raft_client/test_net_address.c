#include <stdio.h>
#include <string.h>

#include "lib/runner.h"
#include "strategy/net/address.h"

static struct hf_net_addresses addresses;
static struct hf_error error;

static enum hf_err parse(const char *text)
{
    struct hf_url url;
    enum hf_err err;

    assert_int_equal(hf_url_parse(&url, text, &error), HF_OK);
    err =
        hf_net_addresses_parse(&addresses, &url, HF_NET_ADDRESSES_MAX, &error);
    hf_url_fini(&url);
    return err;
}

static void lists_the_nodes_in_order(void **state)
{
    (void)state;
    assert_int_equal(parse("raft://a:1,10.0.0.2:65535,[::1]:7003/"), HF_OK);
    assert_int_equal(addresses.count, 3);
    assert_string_equal(addresses.list[0].host, "a");
    assert_int_equal(addresses.list[0].port, 1);
    assert_string_equal(addresses.list[1].name, "10.0.0.2:65535");
    assert_string_equal(addresses.list[2].host, "::1");
    assert_string_equal(addresses.list[2].name, "[::1]:7003");
}

static void names_what_is_no_address(void **state)
{
    static const char *const wrong[] = {
        "raft://a",        "raft://a:",        "raft://:1",
        "raft://a:0",      "raft://a:65536",   "raft://a:1x",
        "raft://a:1,",     "raft://,a:1",      "raft://a:1,,b:2",
        "raft://::1:7001", "raft://[::1:7001", "raft://[]:7001",
        "raft://a:000001",
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(wrong); i++) {
        if (parse(wrong[i]) != HF_EINVAL)
            fail_msg("%s was accepted", wrong[i]);
        assert_non_null(strstr(error.text, "is not a host:port"));
    }
}

static void refuses_other_parts_of_a_url(void **state)
{
    static const char *const wrong[] = {
        "raft:",
        "raft://",
        "raft:a:1",
        "raft://a:1/path",
        "raft://user:secret@a:1",
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(wrong); i++) {
        if (parse(wrong[i]) != HF_EINVAL)
            fail_msg("%s was accepted", wrong[i]);
        assert_null(strstr(error.text, "secret"));
    }
}

static void append(char *text, size_t size, const char *more)
{
    size_t length = strlen(text);

    (void)snprintf(text + length, size - length, "%s", more);
}

static void limits_the_number_of_nodes(void **state)
{
    char text[1024] = "raft://a:1";

    (void)state;
    for (unsigned i = 1; i < HF_NET_ADDRESSES_MAX; i++)
        append(text, sizeof(text), ",a:1");
    assert_int_equal(parse(text), HF_OK);
    append(text, sizeof(text), ",a:1");
    assert_int_equal(parse(text), HF_EINVAL);
}

static void limits_the_length_of_a_host(void **state)
{
    char text[400] = "";

    (void)state;
    (void)memset(text, 'a', HF_NET_HOST_MAX);
    append(text, sizeof(text), ":65535");
    assert_true(hf_net_address_parse(&addresses.list[0], text, strlen(text)));
    assert_string_equal(addresses.list[0].name, text);
    (void)memmove(text + 1, text, strlen(text) + 1);
    assert_false(hf_net_address_parse(&addresses.list[0], text, strlen(text)));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(lists_the_nodes_in_order),
        cmocka_unit_test(names_what_is_no_address),
        cmocka_unit_test(refuses_other_parts_of_a_url),
        cmocka_unit_test(limits_the_number_of_nodes),
        cmocka_unit_test(limits_the_length_of_a_host),
    };

    return hf_test_main("net_address", cases, HF_TEST_COUNT(cases), 0);
}
