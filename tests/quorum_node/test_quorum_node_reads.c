/* test_quorum_node_reads.c - what a master knows by itself: READ, LIST and
 * WATCH. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"
#include "quorum_node/one_node.h"

static struct one_node one;

static int set_up(void **state)
{
    (void)state;
    one_node_init(&one);
    (void)one_node_connect_mux(&one, 1);
    (void)one_node_connect_mux(&one, 3); /* of claims that wait */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    one_node_fini(&one);
    return 0;
}

static struct hf_info read_key(const char *key)
{
    struct hf_mux_reply reply = one_node_call(
        &one, 1,
        (struct hf_mux_request){.verb = HF_VERB_READ, .key = hf_key_of(key)});
    struct hf_info info;

    assert_int_equal(reply.err, HF_OK);
    assert_int_equal(reply.info_count, 1);
    assert_int_equal(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)),
                     HF_OK);
    assert_int_equal(info.index, reply.index);
    return info;
}

/* Give the vote of `count` keys to claim 1. Their names have numbers. */
static void vote_for_keys(unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        struct hf_quorum_request request = one_fast(1, 5);
        char key[32];

        (void)snprintf(key, sizeof(key), "%s-%u", i % 2 ? "odd" : "even", i);
        request.key = hf_key_of(key);
        request.lease_ms = ONE_LEASE_MAX_MS;
        assert_int_equal(one_node_ask(&one, 1, request).kind, HF_QUORUM_VOTE);
    }
}

/* ---- READ ---------------------------------------------------------------*/

static void a_vote_and_a_lease_are_read_as_held(void **state)
{
    struct hf_quorum_request request = one_fast(1, 5);
    struct hf_info info = read_key("k");

    (void)state;
    assert_false(info.held);
    request.data.owner = hf_bytes_of("owner");
    request.data.note = hf_bytes_of("note");
    (void)one_node_ask(&one, 1, request);
    one_node_advance(&one, 10);
    info = read_key("k");
    assert_true(info.held);
    assert_int_equal(info.token, 5);
    assert_int_equal(info.held_ms, 10);
    assert_int_equal(info.left_ms, ONE_LEASE_MS - 10);
    assert_string_equal(info.owner, "owner");
    assert_string_equal(info.note, "note");
    assert_memory_equal(info.value.data, "1", 1);
    (void)one_node_ask(&one, 1, one_commit(1, 5));
    (void)one_node_ask(&one, 3, one_wait(2, 6));
    info = read_key("k");
    assert_int_equal(info.token, 5);
    assert_int_equal(info.left_ms, ONE_LEASE_MS);
    assert_int_equal(info.waiters, 1);
    one_node_advance(&one, ONE_LEASE_MS);
    assert_int_equal(read_key("k").token, 6);
}

/* ---- LIST ---------------------------------------------------------------*/

/* Take the pages of a LIST. Returns the number of keys. */
static size_t take_pages(uint64_t id, unsigned *pages)
{
    struct hf_mux_reply reply = {.more = true};
    size_t count = 0;

    for (*pages = 0; reply.more; ++*pages) {
        assert_true(one_node_take(&one, 1));
        assert_int_equal(
            hf_mux_reply_decode(&reply, HF_VERB_LIST, &one.clients[1].message),
            HF_OK);
        assert_int_equal(reply.err, HF_OK);
        assert_int_equal(reply.id, id);
        count += reply.info_count;
    }
    return count;
}

static void list_keys(const char *prefix)
{
    one_node_request(&one, 1,
                     (struct hf_mux_request){.verb = HF_VERB_LIST,
                                             .key = hf_key_of(prefix)});
}

static void a_list_has_pages(void **state)
{
    unsigned pages;

    (void)state;
    vote_for_keys(0, 1300);
    list_keys("");
    assert_int_equal(take_pages(one.clients[1].id, &pages), 1300);
    assert_int_equal(pages, 3);
    list_keys("odd-");
    assert_int_equal(take_pages(one.clients[1].id, &pages), 650);
    list_keys("other");
    assert_int_equal(take_pages(one.clients[1].id, &pages), 0);
    assert_int_equal(pages, 1);
}

/* The client does not read, so the list waits in the middle. Meanwhile all
 * records are removed. */
static void records_may_go_while_a_list_waits(void **state)
{
    (void)state;
    vote_for_keys(0, 6000);
    one_node_connect_mux(&one, 2)->is_deaf = true;
    one_node_request(&one, 2, (struct hf_mux_request){.verb = HF_VERB_LIST});
    assert_int_equal(one.node->server.list_count, 1);
    for (hf_time left = ONE_LEASE_MAX_MS + 2 * HF_QUORUM_IDLE_MS; left > 0;
         left -= HF_CLIENT_SLOW_MS / 2) {
        one.clients[2].unsent--; /* it reads very little */
        one_node_advance(&one, HF_CLIENT_SLOW_MS / 2);
        (void)one_node_ask(&one, 1, one_read());
        one_node_request(&one, 2,
                         (struct hf_mux_request){.verb = HF_VERB_PING});
    }
    assert_int_equal(one.node->server.list_count, 1);
    assert_int_equal(one.node->master.records.count, 0);
    one.clients[2].unsent = 0;
    one.clients[2].is_deaf = false;
    hf_quorum_node_on_client_unsent(one.node, 2, 0);
    one_node_run(&one);
    assert_int_equal(one.node->server.list_count, 0);
}

static void lists_of_a_connection_are_limited(void **state)
{
    (void)state;
    vote_for_keys(0, 6000);
    one_node_connect_mux(&one, 2)->is_deaf = true;
    for (unsigned i = 0; i < 2 * HF_CLIENT_LISTS_MAX; i++)
        one_node_request(&one, 2,
                         (struct hf_mux_request){.verb = HF_VERB_LIST});
    assert_true(one.node->server.list_count <= HF_CLIENT_LISTS_MAX);
    assert_true(one.node->server.list_count > 0);
    one_node_close(&one, 2);
    assert_int_equal(one.node->server.list_count, 0);
}

static void a_plain_list_continues_after_its_cursor(void **state)
{
    int64_t cursor = 0;
    size_t count = 0;
    unsigned pages = 0;

    (void)state;
    vote_for_keys(0, 1300);
    (void)one_node_connect(&one, 2);
    do {
        char line[64];
        const struct hf_resp_message *message = &one.clients[2].message;

        (void)snprintf(line, sizeof(line), "LIST even- AFTER %lld COUNT 200",
                       (long long)cursor);
        one_node_type(&one, 2, line);
        assert_true(one_node_take(&one, 2));
        cursor = message->values[1].integer;
        count += message->values[0].size - 1;
        pages++;
    } while (cursor > 0 && pages < 10);
    assert_int_equal(count, 650);
    assert_int_equal(pages, 4);
}

/* ---- WATCH --------------------------------------------------------------*/

static void watch_from(uint64_t conn, uint64_t number, const char *prefix,
                       uint64_t from)
{
    struct hf_mux_reply reply =
        one_node_call(&one, conn,
                      (struct hf_mux_request){.verb = HF_VERB_WATCH,
                                              .watch = number,
                                              .key = hf_key_of(prefix),
                                              .from = from});

    assert_int_equal(reply.err, HF_OK);
    assert_int_equal(reply.index, one.node->index);
}

/* Take the next event of a watch at the connection 2. */
static struct hf_event take_event(enum hf_event_kind kind)
{
    struct hf_mux_push push = one_node_take_push(&one, 2, HF_MUX_PUSH_EVENT);
    struct hf_event event;

    assert_int_equal(hf_protocol_decode_event(&event, push.event), HF_OK);
    assert_string_equal(hf_event_name(event.kind), hf_event_name(kind));
    return event;
}

static void watch_all(void)
{
    (void)one_node_connect_mux(&one, 2);
    watch_from(2, 1, "", 0);
}

static void events_follow_a_lock(void **state)
{
    struct hf_quorum_request request = one_fast(1, 5);
    struct hf_event event;
    uint64_t index;

    (void)state;
    watch_all();
    request.data.owner = hf_bytes_of("owner");
    (void)one_node_ask(&one, 1, request);
    event = take_event(HF_EVENT_GRANTED);
    index = event.index;
    assert_int_equal(event.token, 5);
    assert_string_equal(event.owner, "owner");
    assert_false(event.freed);
    request = one_commit(1, 5); /* confirms the vote: no event */
    request.data.owner = hf_bytes_of("owner");
    (void)one_node_ask(&one, 1, request);
    (void)one_node_ask(&one, 1, one_renew(1, 5));
    assert_int_equal(take_event(HF_EVENT_RENEWED).index, index + 1);
    request = one_repair(1, 6, 5);
    request.keeps_deadline = true;
    request.data.owner = hf_bytes_of("owner");
    (void)one_node_ask(&one, 1, request);
    (void)take_event(HF_EVENT_UPDATED);
    (void)one_node_ask(&one, 1, one_end(1, 6, 6));
    event = take_event(HF_EVENT_RELEASED);
    assert_int_equal(event.token, 5);
    assert_string_equal(event.owner, "owner");
    assert_true(event.freed);
    assert_int_equal(event.index, index + 3);
    assert_false(one_node_take(&one, 2));
}

static void a_hand_over_is_two_events(void **state)
{
    (void)state;
    watch_all();
    (void)one_node_ask(&one, 1, one_fast(1, 5));
    (void)one_node_ask(&one, 3, one_wait(2, 6));
    (void)take_event(HF_EVENT_GRANTED);
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_int_equal(take_event(HF_EVENT_RELEASED).token, 5);
    assert_int_equal(take_event(HF_EVENT_GRANTED).token, 6);
    assert_false(one_node_take(&one, 2));
}

static void votes_and_leases_that_end_are_events(void **state)
{
    (void)state;
    watch_all();
    (void)one_node_ask(&one, 1, one_ask(1, 5));
    (void)take_event(HF_EVENT_GRANTED);
    (void)one_node_ask(&one, 1, one_end(1, 5, 0)); /* it was not granted */
    assert_int_equal(take_event(HF_EVENT_WITHDRAWN).token, 0);
    (void)one_node_ask(&one, 1, one_ask(2, 6));
    (void)take_event(HF_EVENT_GRANTED);
    (void)one_node_ask(&one, 1, one_commit(3, 7)); /* it takes the vote */
    assert_false(take_event(HF_EVENT_WITHDRAWN).freed);
    assert_int_equal(take_event(HF_EVENT_GRANTED).token, 7);
    one_node_advance(&one, ONE_LEASE_MS);
    assert_int_equal(take_event(HF_EVENT_EXPIRED).token, 7);
    assert_false(one_node_take(&one, 2));
}

/* A lease that is due when a request arrives has expired; the request has not
 * ended it. */
static void an_expired_lease_is_not_blamed_on_a_request(void **state)
{
    (void)state;
    watch_all();
    (void)one_node_ask(&one, 1, one_commit(1, 5));
    (void)take_event(HF_EVENT_GRANTED);
    one.now += ONE_LEASE_MS;
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_int_equal(take_event(HF_EVENT_EXPIRED).token, 5);
    assert_false(one_node_take(&one, 2));
}

static void a_broken_lock_is_an_event(void **state)
{
    (void)state;
    watch_all();
    (void)one_node_ask(&one, 1, one_commit(1, 5));
    (void)take_event(HF_EVENT_GRANTED);
    (void)one_node_ask(&one, 1, one_force(5, false));
    assert_false(take_event(HF_EVENT_FORCED).freed);
    (void)one_node_ask(&one, 1, one_force(5, true));
    assert_true(take_event(HF_EVENT_FORCED).freed);
    assert_false(one_node_take(&one, 2));
}

static void a_watch_that_missed_events_is_told_so(void **state)
{
    uint64_t first = one.node->index + 1;

    (void)state;
    vote_for_keys(0, 500); /* more than HF_HISTORY_MIN keeps */
    (void)one_node_connect_mux(&one, 2);
    watch_from(2, 1, "", first);
    assert_true(take_event(HF_EVENT_DROPPED).index > first);
    (void)take_event(HF_EVENT_GRANTED);
}

static void indexes_rise_over_restarts(void **state)
{
    struct one_node again;

    (void)state;
    vote_for_keys(0, 10);
    assert_int_equal(one_node_init_with(&again, one.node->master.mark, 0),
                     HF_OK);
    assert_true(again.node->index > one.node->index);
    one_node_fini(&again);
}

static void a_slow_watch_takes_little_memory(void **state)
{
    (void)state;
    watch_all();
    one.clients[2].is_deaf = true;
    for (unsigned round = 0; round < 5; round++) {
        vote_for_keys(round * 3000, 3000);
        assert_true(one.clients[2].unsent < HF_CLIENT_OUTPUT_MAX);
    }
    assert_false(one.clients[2].is_closed);
    one_node_advance(&one, 2 * HF_CLIENT_SLOW_MS);
    assert_true(one.clients[2].is_closed);
}

static void watches_of_a_connection_are_limited(void **state)
{
    struct hf_mux_request request = {.verb = HF_VERB_WATCH,
                                     .key = hf_key_of("none")};

    (void)state;
    (void)one_node_connect_mux(&one, 2);
    for (uint64_t i = 1; i <= HF_CLIENT_WATCHES_MAX; i++)
        watch_from(2, i, "none", 0);
    request.watch = HF_CLIENT_WATCHES_MAX + 1;
    assert_int_equal(one_node_call(&one, 2, request).err, HF_ELIMIT);
    request.watch = 7;
    assert_int_equal(one_node_call(&one, 2, request).err, HF_EINVAL);
    request.verb = HF_VERB_UNWATCH;
    assert_int_equal(one_node_call(&one, 2, request).err, HF_OK);
    watch_from(2, 7, "none", 0);
    one_node_close(&one, 2);
    assert_int_equal(one.node->server.watch_bytes, 0);
}

static void a_plain_watch_streams(void **state)
{
    const struct hf_resp_message *message = &one.clients[2].message;

    (void)state;
    (void)one_node_connect(&one, 2);
    one_node_type(&one, 2, "WATCH k");
    assert_true(one_node_take(&one, 2));
    (void)one_node_ask(&one, 1, one_fast(1, 5));
    assert_true(one_node_take(&one, 2));
    assert_int_equal(message->values[0].size, 7);
    assert_int_equal(message->values[3].size, strlen("granted"));
    assert_memory_equal(message->values[3].data, "granted", strlen("granted"));
    one_node_type(&one, 2, "UNWATCH");
    assert_true(one_node_take(&one, 2));
    (void)one_node_ask(&one, 1, one_end(1, 5, 5));
    assert_false(one_node_take(&one, 2));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(a_vote_and_a_lease_are_read_as_held),
        CASE(a_list_has_pages),
        CASE(records_may_go_while_a_list_waits),
        CASE(lists_of_a_connection_are_limited),
        CASE(a_plain_list_continues_after_its_cursor),
        CASE(events_follow_a_lock),
        CASE(a_hand_over_is_two_events),
        CASE(votes_and_leases_that_end_are_events),
        CASE(an_expired_lease_is_not_blamed_on_a_request),
        CASE(a_broken_lock_is_an_event),
        CASE(a_watch_that_missed_events_is_told_so),
        CASE(indexes_rise_over_restarts),
        CASE(a_slow_watch_takes_little_memory),
        CASE(watches_of_a_connection_are_limited),
        CASE(a_plain_watch_streams),
    };

    return hf_test_main("quorum node reads", cases, HF_TEST_COUNT(cases), 0);
}
