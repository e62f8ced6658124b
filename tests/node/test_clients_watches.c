/* test_clients_watches.c - what a node pushes in MUX mode: events and the
 * leader. */
#include "lib/expect.h"
#include "lib/runner.h"
#include "node/mux_client.h"

/* ---- Watches ------------------------------------------------------------*/

static struct hf_event take_event(struct hf_mux_client *client, uint64_t watch)
{
    struct hf_mux_push push;
    struct hf_event event;

    assert_true(hf_mux_take(client));
    expect_ok(hf_mux_push_decode(&push, &client->message));
    assert_int_equal(push.kind, HF_MUX_PUSH_EVENT);
    assert_true(push.watch == watch);
    expect_ok(hf_protocol_decode_event(&event, push.event));
    return event;
}

static void watch_keys(struct hf_mux_client *client, uint64_t number,
                       const char *prefix, uint64_t from, bool exact)
{
    expect_ok(
        hf_mux_call(client, (struct hf_mux_request){.verb = HF_VERB_WATCH,
                                                    .watch = number,
                                                    .key = hf_key_of(prefix),
                                                    .from = from,
                                                    .exact = exact})
            .err);
}

static void events_are_pushed_to_watches(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_event event;

    watch_keys(&setup->two, 5, "k", 0, false);
    (void)hf_mux_do(&setup->one, hf_mux_lock("k1", &hf_mux_nonce_a, false));
    event = take_event(&setup->two, 5);
    assert_int_equal(event.kind, HF_EVENT_GRANTED);
    assert_true(event.index == 1);
    assert_string_equal(event.owner, "label");
    (void)hf_mux_do(&setup->one, hf_mux_lock("x", &hf_mux_nonce_b, false));
    assert_false(hf_mux_take(&setup->two));
    watch_keys(&setup->two, 6, "x", 1, true);
    event = take_event(&setup->two, 6);
    assert_true(event.index == 2);
    expect_ok(hf_mux_call(
                  &setup->two,
                  (struct hf_mux_request){.verb = HF_VERB_UNWATCH, .watch = 5})
                  .err);
    (void)hf_mux_do(&setup->one, hf_mux_lock("k2", &hf_mux_secret, false));
    (void)hf_mux_do(&setup->one, hf_mux_lock("xx", &hf_mux_secret, false));
    assert_false(hf_mux_take(&setup->two));
}

/* The history keeps a few hundred events; the watch falls behind by more. */
static void a_slow_watch_gets_dropped_events(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_event event;
    uint64_t next;

    watch_keys(&setup->two, 5, "", 0, false);
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    hf_mux_hold_keys(&setup->one, 3000);
    assert_false(hf_mux_take(&setup->two));
    hf_clients_on_unsent(setup->node.clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    event = take_event(&setup->two, 5);
    assert_int_equal(event.kind, HF_EVENT_DROPPED);
    next = event.index;
    assert_true(next > 1);
    for (; next <= 3000; next++)
        assert_true(take_event(&setup->two, 5).index == next);
    assert_false(hf_mux_take(&setup->two));
}

static void a_watch_continues_after_a_snapshot(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_event event;

    watch_keys(&setup->two, 5, "", 0, false);
    hf_fake_restore(&setup->node, 100);
    hf_fake_turn(&setup->node, 1000);
    event = take_event(&setup->two, 5);
    assert_int_equal(event.kind, HF_EVENT_DROPPED);
    assert_true(event.index == 101);
    assert_false(hf_mux_take(&setup->two));
}

/* A client with many watches that have to catch up does not delay another
 * one. */
static void watches_of_one_client_do_not_starve_others(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request watch = {
        .verb = HF_VERB_WATCH,
        .key = {"x", 1},
        .from = 1,
    };
    const uint64_t *full = &setup->node.clients->server.counters.turns_full;

    hf_mux_hold_keys(&setup->one, 200);
    for (; watch.watch < HF_CLIENT_WATCHES_MAX; watch.watch++)
        hf_mux_send(&setup->one, watch);
    watch.key = hf_key_of("a199");
    hf_mux_send(&setup->two, watch);
    hf_fake_step(&setup->node);
    assert_int_equal(*full, 1);
    expect_ok(hf_mux_take_reply(&setup->two, HF_VERB_WATCH).err);
    assert_true(take_event(&setup->two, watch.watch).index == 200);
    for (int i = 0; i < HF_CLIENT_WATCHES_MAX * 200 / HF_CLIENTS_WORK - 1; i++)
        hf_fake_step(&setup->node);
    assert_true(*full > 10); /* there is more to do */
    hf_fake_turn(&setup->node, 1000);
    for (int i = 0; i < HF_CLIENT_WATCHES_MAX; i++)
        expect_ok(hf_mux_take_reply(&setup->one, HF_VERB_WATCH).err);
    assert_false(hf_mux_take(&setup->one));
}

static void the_number_of_watches_is_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request watch = {.verb = HF_VERB_WATCH};

    for (watch.watch = 0; watch.watch < HF_CLIENT_WATCHES_MAX; watch.watch++)
        expect_ok(hf_mux_call(&setup->two, watch).err);
    expect_err(hf_mux_call(&setup->two, watch).err, HF_ELIMIT);
    watch.watch = 3;
    expect_err(hf_mux_call(&setup->two, watch).err, HF_EINVAL);
}

/* ---- Pushes of the leader -----------------------------------------------*/

static void a_new_leader_is_pushed(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_push push;

    setup->node.leader = 2;
    hf_clients_hooks.on_leader(setup->node.clients, 2);
    hf_fake_turn(&setup->node, 1000);
    assert_true(hf_mux_take(&setup->one));
    expect_ok(hf_mux_push_decode(&push, &setup->one.message));
    assert_int_equal(push.kind, HF_MUX_PUSH_LEADER);
    assert_true(push.leader == 2);
    assert_true(hf_bytes_equal(push.address, hf_bytes_of("127.0.0.1:12")));
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_mux_set_up, hf_mux_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(events_are_pushed_to_watches),
        CASE(a_slow_watch_gets_dropped_events),
        CASE(a_watch_continues_after_a_snapshot),
        CASE(watches_of_one_client_do_not_starve_others),
        CASE(the_number_of_watches_is_limited),
        CASE(a_new_leader_is_pushed),
    };

    return hf_test_main("clients_watches", cases, HF_TEST_COUNT(cases), 0);
}
