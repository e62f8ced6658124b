/* test_clients_reads.c - READ, LOOKUP and LIST in MUX mode. */
#include <stdlib.h>

#include "lib/expect.h"
#include "lib/runner.h"
#include "node/mux_client.h"

/* ---- Reads --------------------------------------------------------------*/

static void keys_are_read(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request read = {.verb = HF_VERB_READ, .key = {"k", 1}};
    struct hf_mux_reply reply;
    struct hf_info info;
    size_t before;

    expect_ok(
        hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false)).err);
    before = setup->node.submitted;
    reply = hf_mux_call(&setup->two, read);
    assert_int_equal(reply.info_count, 1);
    assert_true(reply.index == 1);
    expect_ok(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)));
    assert_true(info.held && info.token == 1 && info.left_ms == 60000);
    assert_string_equal(info.owner, "label");
    assert_int_equal(setup->node.submitted, before);
    read.linearizable = true;
    reply = hf_mux_call(&setup->two, read);
    assert_int_equal(setup->node.submitted, before + 1);
    expect_ok(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)));
    assert_true(info.held);
    read.key = hf_key_of("free");
    reply = hf_mux_call(&setup->two, read);
    expect_ok(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)));
    assert_false(info.held);
}

/* Unsent replies take memory, so a read waits until there is room for its
 * reply. */
static void large_replies_wait_for_room(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request read = {.verb = HF_VERB_READ, .key = {"k", 1}};
    struct hf_command lock = hf_mux_lock("k", &hf_mux_nonce_a, false);
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 2);
    char *value = calloc(1, HF_VALUE_MAX);

    assert_non_null(value);
    lock.value = (struct hf_bytes){value, HF_VALUE_MAX};
    expect_ok(hf_mux_do(&setup->one, lock).err);
    free(value);
    for (int i = 0; i < 100; i++) {
        read.linearizable = i >= 50;
        hf_mux_send(&setup->two, read);
        assert_true(conn->serve.output.size <
                    HF_CLIENT_ROOM + 2 * HF_VALUE_MAX);
    }
    setup->node.is_stuck = true;
    hf_fake_turn(&setup->node, 1000);
    setup->node.is_stuck = false;
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(conn->op_count, 50);
    assert_int_equal(conn->serve.output.size, 0);
    hf_clients_on_unsent(setup->node.clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    for (int i = 0; i < 100; i++)
        expect_ok(hf_mux_take_reply(&setup->two, HF_VERB_READ).err);
    assert_int_equal(conn->op_count, 0);
    assert_false(setup->node.conns[2].is_closed);
}

static void claims_are_looked_up(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request lookup = {
        .verb = HF_VERB_LOOKUP,
        .key = {"k", 1},
        .secret = hf_mux_nonce_a,
    };
    struct hf_mux_reply reply;

    expect_ok(
        hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false)).err);
    (void)hf_mux_do(&setup->two, hf_mux_lock("k", &hf_mux_nonce_b, true));
    reply = hf_mux_call(&setup->one, lookup);
    assert_int_equal(reply.state, HF_CLAIM_HELD);
    assert_true(reply.token == 1);
    lookup.secret = hf_mux_nonce_b;
    lookup.linearizable = true;
    reply = hf_mux_call(&setup->one, lookup);
    assert_int_equal(reply.state, HF_CLAIM_QUEUED);
    assert_int_equal(reply.position, 1);
    lookup.secret = hf_mux_secret;
    assert_int_equal(hf_mux_call(&setup->one, lookup).state, HF_CLAIM_UNKNOWN);
}

/* Take the pages of a list, and count its keys. */
static size_t take_pages(struct hf_mux_client *client, size_t *pages)
{
    size_t keys = 0;
    bool more = true;

    *pages = 0;
    while (more) {
        struct hf_mux_reply reply;

        reply = hf_mux_take_reply(client, HF_VERB_LIST);
        expect_ok(reply.err);
        keys += reply.info_count;
        more = reply.more;
        (*pages)++;
    }
    return keys;
}

static void lists_have_pages(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request list = {.verb = HF_VERB_LIST};
    size_t pages;

    hf_mux_hold_keys(&setup->one, 1300);
    hf_mux_send(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 1300);
    assert_int_equal(pages, 3);
    list.linearizable = true;
    list.key = hf_key_of("a");
    hf_mux_send(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 650);
    list.key = hf_key_of("none");
    hf_mux_send(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 0);
}

/* The pages of a LIST are made only as fast as the client reads them. */
static void a_list_waits_for_its_reader(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 2);
    size_t pages;

    hf_mux_hold_keys(&setup->one, 1300);
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    hf_mux_send(&setup->two, (struct hf_mux_request){.verb = HF_VERB_LIST});
    hf_fake_turn(&setup->node, 1000);
    assert_false(hf_mux_take(&setup->two));
    assert_int_equal(conn->serve.list_count, 1);
    hf_clients_on_unsent(setup->node.clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 1300);
    assert_int_equal(conn->serve.list_count, 0);
}

/* The lists of one client do not delay those of another: connections take
 * turns, and the work in one turn of the node is limited. */
static void lists_of_one_client_do_not_starve_others(void **state)
{
    struct hf_mux_setup *setup = *state;
    const struct hf_mux_request list = {.verb = HF_VERB_LIST, .key = {"x", 1}};
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 1);
    size_t steps = 0;
    size_t pages;

    hf_mux_hold_keys(&setup->one, 4000);
    for (int i = 0; i < HF_CLIENT_LISTS_MAX; i++)
        hf_mux_send(&setup->one, list);
    hf_mux_send(&setup->two, list);
    hf_fake_step(&setup->node);
    assert_int_equal(setup->node.clients->server.counters.turns_full, 1);
    assert_int_equal(take_pages(&setup->two, &pages), 0);
    assert_int_equal(conn->serve.list_count, HF_CLIENT_LISTS_MAX);
    for (; conn->serve.list_count > 0; steps++)
        hf_fake_step(&setup->node);
    assert_in_range(steps, HF_CLIENT_LISTS_MAX * 4000 / HF_CLIENTS_WORK, 10);
    for (int i = 0; i < HF_CLIENT_LISTS_MAX; i++)
        assert_int_equal(take_pages(&setup->one, &pages), 0);
}

/* Every list makes releasing a lock slower. If there are many, each client may
 * still have one. */
static void lists_of_all_clients_are_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_clients *clients = setup->node.clients;
    const struct hf_mux_request list = {.verb = HF_VERB_LIST};

    hf_mux_hold_keys(&setup->one, 10);
    hf_clients_on_unsent(clients, 2, HF_CLIENT_ROOM);
    clients->server.list_count = HF_LISTS_MAX;
    hf_mux_send(&setup->two, list);
    hf_mux_send(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&setup->two, HF_VERB_LIST).err, HF_ELIMIT);
    assert_int_equal(clients->server.list_count, HF_LISTS_MAX + 1);
    hf_clients_on_unsent(clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(hf_mux_take_reply(&setup->two, HF_VERB_LIST).info_count,
                     10);
    assert_int_equal(clients->server.list_count, HF_LISTS_MAX);
    clients->server.list_count = 0;
}

static void lists_end_when_a_snapshot_is_loaded(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_mux_hold_keys(&setup->one, 600);
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    for (int i = 0; i <= HF_CLIENT_LISTS_MAX; i++)
        hf_mux_send(&setup->two, (struct hf_mux_request){.verb = HF_VERB_LIST});
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&setup->two, HF_VERB_LIST).err, HF_ELIMIT);
    hf_fake_restore(&setup->node, 1000);
    hf_fake_turn(&setup->node, 1000);
    for (int i = 0; i < HF_CLIENT_LISTS_MAX; i++)
        expect_err(hf_mux_take_reply(&setup->two, HF_VERB_LIST).err,
                   HF_EUNAVAIL);
    assert_false(hf_mux_take(&setup->two));
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_mux_set_up, hf_mux_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(keys_are_read),
        CASE(large_replies_wait_for_room),
        CASE(claims_are_looked_up),
        CASE(lists_have_pages),
        CASE(a_list_waits_for_its_reader),
        CASE(lists_of_one_client_do_not_starve_others),
        CASE(lists_of_all_clients_are_limited),
        CASE(lists_end_when_a_snapshot_is_loaded),
    };

    return hf_test_main("clients_reads", cases, HF_TEST_COUNT(cases), 0);
}
