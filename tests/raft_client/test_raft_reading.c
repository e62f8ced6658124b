/* Reads, lists, lookups and watches of raft:, over lost connections. */
#include <stdio.h>

#include "raft_client/script.h"

/* ---- Reads and lists ----------------------------------------------------*/

static struct hf_info info_of(const char *key, uint64_t token)
{
    return (struct hf_info){
        .key = hf_key_of(key),
        .held = true,
        .token = token,
        .held_ms = 5,
        .left_ms = 6,
        .value = hf_bytes_of("value"),
        .owner = "owner",
        .note = "note",
        .index = 9,
    };
}

static void reply_with_infos(const struct script_request *request, bool more,
                             const char *const *keys, unsigned count)
{
    struct hf_mux_reply reply = {
        .id = request->mux.id, .index = 9, .more = more};
    struct hf_buf bytes = {0}, info = {0};

    hf_mux_reply_encode_infos(&reply, request->mux.verb, count, &bytes);
    for (unsigned i = 0; i < count; i++) {
        struct hf_info held = info_of(keys[i], i + 1);

        info.size = 0;
        hf_protocol_encode_info(&held, &info);
        hf_resp_write_bulk(&bytes, info.data, info.size);
    }
    script_bytes(request->stream, bytes.data, bytes.size);
    hf_buf_fini(&bytes);
    hf_buf_fini(&info);
}

static void a_read_is_repeated_until_it_is_answered(void **state)
{
    static const char *const key[] = {"a"};
    struct hf_future *future;
    struct hf_info info;
    struct script_request first, second;

    (void)state;
    assert_int_equal(hf_read_start(script.client, hf_key_of("a"),
                                   HF_LINEARIZABLE, &info, NULL, NULL, &future),
                     HF_OK);
    first = *script_take(HF_VERB_READ);
    assert_true(first.mux.linearizable);
    script_kill(0);
    second = *script_take(HF_VERB_READ);
    assert_int_not_equal(second.stream, first.stream);
    reply_with_infos(&second, false, key, 1);
    assert_int_equal(script_wait(future), HF_OK);
    assert_true(info.held);
    assert_int_equal(info.token, 1);
    assert_string_equal(info.owner, "owner");
    assert_memory_equal(info.value.data, "value", 5);
    hf_info_fini(&info);
}

static void a_local_read_may_be_old(void **state)
{
    static const char *const key[] = {"a"};
    struct hf_future *future;
    struct hf_info info;
    const struct script_request *request;

    (void)state;
    assert_int_equal(hf_read_start(script.client, hf_key_of("a"), HF_LOCAL,
                                   &info, NULL, NULL, &future),
                     HF_OK);
    request = script_take(HF_VERB_READ);
    assert_false(request->mux.linearizable);
    reply_with_infos(request, false, key, 1);
    assert_int_equal(script_wait(future), HF_OK);
    hf_info_fini(&info);
}

static char listed[64];

static bool on_listed(const struct hf_info *info, void *arg)
{
    (void)arg;
    (void)strncat(listed, info->key.data, info->key.size);
    return true;
}

static struct hf_future *start_list(void)
{
    struct hf_future *future;

    listed[0] = '\0';
    assert_int_equal(hf_list_start(script.client, hf_key_of(""), on_listed,
                                   NULL, NULL, NULL, &future),
                     HF_OK);
    return future;
}

static void a_list_has_pages(void **state)
{
    static const char *const keys[] = {"c", "a", "b"};
    struct hf_future *future = start_list();
    struct script_request request = *script_take(HF_VERB_LIST);

    (void)state;
    reply_with_infos(&request, true, keys, 2);
    script_run(100);
    assert_string_equal(listed, "");
    reply_with_infos(&request, true, keys, 0);
    reply_with_infos(&request, false, keys + 2, 1);
    assert_int_equal(script_wait(future), HF_OK);
    assert_string_equal(listed, "abc");
}

static void a_list_starts_again_on_another_node(void **state)
{
    static const char *const keys[] = {"a", "b"};
    struct hf_future *future = start_list();
    struct script_request request = *script_take(HF_VERB_LIST);

    (void)state;
    reply_with_infos(&request, true, keys, 1);
    script_run(100);
    script_kill(0);
    request = *script_take(HF_VERB_LIST);
    reply_with_infos(&request, false, keys + 1, 1);
    assert_int_equal(script_wait(future), HF_OK);
    assert_string_equal(listed, "b");
}

static void a_list_that_never_ends_reaches_the_limit(void **state)
{
    enum {
        PAGE = 1000
    };
    static const char *keys[PAGE];
    struct hf_future *future = start_list();
    struct script_request request = *script_take(HF_VERB_LIST);
    enum hf_err err = HF_OK;
    unsigned pages = 0;

    (void)state;
    for (unsigned i = 0; i < PAGE; i++)
        keys[i] = "k";
    while (!hf_future_done(future, &err) && pages++ < 2 * HF_LIST_MAX / PAGE) {
        reply_with_infos(&request, true, keys, PAGE);
        script_run(0);
    }
    assert_int_equal(script_wait(future), HF_ELIMIT);
}

/* ---- Watches ------------------------------------------------------------*/

static struct hf_watch *watch;
static uint64_t seen[512];
static unsigned seen_count, dropped;

static void on_watched(const struct hf_event *event, void *arg)
{
    (void)arg;
    if (event->kind == HF_EVENT_DROPPED)
        dropped++;
    else
        seen[seen_count++] = event->index;
}

static struct hf_future *start_watch(uint64_t from)
{
    struct hf_watch_opts opts;
    struct hf_future *future;

    hf_watch_opts_init(&opts);
    opts.from = from;
    assert_int_equal(hf_watch_open_start(script.client, hf_key_of("k"), &opts,
                                         on_watched, NULL, &watch, NULL, NULL,
                                         &future),
                     HF_OK);
    return future;
}

static void reply_to_watch(const struct script_request *request, uint64_t index)
{
    const struct hf_mux_reply reply = {.index = index};

    script_reply(request, &reply);
}

static void push_event(uint64_t number, enum hf_event_kind kind, uint64_t index)
{
    const struct hf_event event = {
        .kind = kind, .index = index, .key = hf_key_of("k1"), .owner = "o"};
    struct hf_mux_push push = {.kind = HF_MUX_PUSH_EVENT, .watch = number};
    struct hf_buf bytes = {0};

    hf_protocol_encode_event(&event, &bytes);
    push.event = (struct hf_bytes){bytes.data, bytes.size};
    script_push(script_stream(), &push);
    hf_buf_fini(&bytes);
    script_run(0);
}

static struct script_request open_watch(uint64_t from, uint64_t index)
{
    struct hf_future *future = start_watch(from);
    struct script_request request = *script_take(HF_VERB_WATCH);

    assert_int_equal(request.mux.from, from);
    reply_to_watch(&request, index);
    assert_int_equal(script_wait(future), HF_OK);
    return request;
}

static struct script_request resume_watch(void)
{
    struct script_request request;

    script_kill(script.streams[script_stream()].node);
    request = *script_take(HF_VERB_WATCH);
    reply_to_watch(&request, 1000);
    script_run(0);
    return request;
}

static void a_watch_continues_after_its_last_event(void **state)
{
    struct script_request request = open_watch(0, 10);
    uint64_t number = request.mux.watch;

    (void)state;
    push_event(number, HF_EVENT_GRANTED, 12);
    push_event(number, HF_EVENT_RELEASED, 15);
    request = resume_watch();
    assert_int_equal(request.mux.watch, number);
    assert_int_equal(request.mux.from, 16);
    assert_memory_equal(request.mux.key.data, "k", 1);
    push_event(number, HF_EVENT_RELEASED, 15); /* sent twice */
    push_event(number, HF_EVENT_GRANTED, 17);
    assert_int_equal(seen_count, 3);
    assert_int_equal(seen[2], 17);
    hf_watch_close(watch);
}

static void a_watch_without_events_continues_where_it_began(void **state)
{
    (void)state;
    (void)open_watch(0, 10);
    assert_int_equal(resume_watch().mux.from, 11);
    hf_watch_close(watch);
}

/* A node closes the connection of a client that sends nothing, even if the
 * client receives events all the time. */
static void a_client_that_only_receives_sends_pings(void **state)
{
    struct script_request request = open_watch(0, 10);

    (void)state;
    for (uint64_t i = 0; i < 99; i++) {
        push_event(request.mux.watch, HF_EVENT_GRANTED, 11 + i);
        script_run(100);
    }
    assert_int_equal(script.pings, 0);
    for (uint64_t i = 0; i < 250; i++) {
        push_event(request.mux.watch, HF_EVENT_GRANTED, 110 + i);
        script_run(100);
    }
    assert_int_equal(script.pings, 3);
    assert_int_equal(script_stream(), request.stream);
    hf_watch_close(watch);
}

static void a_watch_of_the_past_continues_there(void **state)
{
    (void)state;
    (void)open_watch(3, 10);
    assert_int_equal(resume_watch().mux.from, 3);
    hf_watch_close(watch);
}

static void a_gap_ends_before_its_index(void **state)
{
    struct script_request request = open_watch(3, 10);
    uint64_t number = request.mux.watch;

    (void)state;
    push_event(number, HF_EVENT_DROPPED, 8);
    assert_int_equal(dropped, 1);
    assert_int_equal(resume_watch().mux.from, 8);
    script.nodes[0].refuses = false;
    push_event(number, HF_EVENT_GRANTED, 8);
    assert_int_equal(seen_count, 1);
    assert_int_equal(resume_watch().mux.from, 9);
    hf_watch_close(watch);
}

static void a_watch_that_was_not_answered_is_repeated(void **state)
{
    struct hf_future *future = start_watch(0);
    struct script_request request = *script_take(HF_VERB_WATCH);

    (void)state;
    script_kill(0);
    request = *script_take(HF_VERB_WATCH);
    assert_int_equal(request.mux.from, 0);
    reply_to_watch(&request, 20);
    assert_int_equal(script_wait(future), HF_OK);
    push_event(request.mux.watch, HF_EVENT_GRANTED, 21);
    assert_int_equal(seen_count, 1);
    hf_watch_close(watch);
}

static void a_closed_watch_is_not_resumed(void **state)
{
    struct script_request request = open_watch(0, 10);

    (void)state;
    hf_watch_close(watch);
    script_run(0);
    assert_int_equal(script.unwatches, 1);
    /* An event that the node sent before it received the UNWATCH: */
    push_event(request.mux.watch, HF_EVENT_GRANTED, 11);
    script_kill(0);
    script_run(100);
    assert_int_equal(script.attaches, 1);
    script_expect_nothing();
    assert_int_equal(seen_count, 0);
}

static void a_watch_that_is_given_up_is_stopped(void **state)
{
    struct hf_future *future = start_watch(0);

    (void)state;
    (void)script_take(HF_VERB_WATCH);
    assert_int_equal(script_wait(future), HF_EUNAVAIL);
    script_run(0);
    assert_true(script.unwatches > 0);
}

/* The client must not connect to one node after the other without a pause. */
static void nodes_that_all_refuse_to_resume_are_not_flooded(void **state)
{
    struct script_request request = open_watch(0, 10);
    hf_time until = script.now + 10000;
    unsigned refused = 0;

    (void)state;
    script_kill(0);
    script.nodes[0].refuses = false;
    while (script.now < until && refused < 200) {
        request = *script_take(HF_VERB_WATCH);
        script_error(&request, HF_ELIMIT, "too many watches");
        refused++;
    }
    assert_in_range(refused, 5, 50);
    request = *script_take(HF_VERB_WATCH);
    reply_to_watch(&request, 20);
    script_run(0);
    hf_watch_close(watch);
}

static void a_node_that_refuses_to_resume_is_left(void **state)
{
    struct script_request request = open_watch(0, 10);

    (void)state;
    script_kill(0);
    request = *script_take(HF_VERB_WATCH);
    script_error(&request, HF_ELIMIT, "too many watches");
    script.nodes[0].refuses = false;
    request = *script_take(HF_VERB_WATCH);
    assert_int_equal(request.mux.from, 11);
    reply_to_watch(&request, 20);
    script_run(0);
    hf_watch_close(watch);
}

#define OPEN_CASE(name)                                                        \
    cmocka_unit_test_setup_teardown(name, script_set_up_open, script_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        OPEN_CASE(a_read_is_repeated_until_it_is_answered),
        OPEN_CASE(a_local_read_may_be_old),
        OPEN_CASE(a_list_has_pages),
        OPEN_CASE(a_list_starts_again_on_another_node),
        OPEN_CASE(a_list_that_never_ends_reaches_the_limit),
        OPEN_CASE(a_watch_continues_after_its_last_event),
        OPEN_CASE(a_watch_without_events_continues_where_it_began),
        OPEN_CASE(a_client_that_only_receives_sends_pings),
        OPEN_CASE(a_watch_of_the_past_continues_there),
        OPEN_CASE(a_gap_ends_before_its_index),
        OPEN_CASE(a_watch_that_was_not_answered_is_repeated),
        OPEN_CASE(a_closed_watch_is_not_resumed),
        OPEN_CASE(a_watch_that_is_given_up_is_stopped),
        OPEN_CASE(a_node_that_refuses_to_resume_is_left),
        OPEN_CASE(nodes_that_all_refuse_to_resume_are_not_flooded),
    };

    return hf_test_main("raft_reading", cases, HF_TEST_COUNT(cases), 0);
}
