/* test_clients_mux.c - the client port of a node, as the library uses it:
 * sessions and commands. */
#include "lib/expect.h"
#include "lib/runner.h"
#include "node/mux_client.h"

/* ---- Sessions -----------------------------------------------------------*/

static void a_connection_has_one_session(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_client three;
    struct hf_mux_request open = {.verb = HF_VERB_OPEN,
                                  .secret = hf_mux_secret};

    expect_err(hf_mux_call(&setup->one, open).err, HF_ESTATE);
    open.verb = HF_VERB_ATTACH;
    open.session = setup->two.session;
    expect_err(hf_mux_call(&setup->one, open).err, HF_ESTATE);
    /* A second OPEN is refused while the first is unanswered: otherwise the
     * first session would stay attached after the connection is closed. */
    hf_mux_connect(&three, &setup->node, 3);
    open.verb = HF_VERB_OPEN;
    hf_mux_send(&three, open);
    hf_mux_send(&three, open);
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&three, HF_VERB_OPEN).err, HF_ESTATE);
    expect_ok(hf_mux_take_reply(&three, HF_VERB_OPEN).err);
    hf_resp_reader_fini(&three.reader);
}

static void a_session_is_attached_again_by_its_secret(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request attach = {
        .verb = HF_VERB_ATTACH,
        .session = setup->one.session,
        .secret = hf_mux_secret,
    };
    struct hf_mux_client three;

    hf_mux_connect(&three, &setup->node, 3);
    assert_true(hf_mux_call(&three, attach).session_gone);
    attach.secret.bytes[0] = 2; /* the secret of another session */
    assert_true(hf_mux_call(&three, attach).session_gone);
    attach.secret.bytes[0] = 1;
    expect_ok(hf_mux_call(&three, attach).err);
    assert_true(setup->node.conns[3].session == setup->one.session);
    hf_resp_reader_fini(&three.reader);
}

/* A node that is behind may not know the session, so it must confirm its table
 * before it reports that the session is gone. */
static void a_missing_session_is_confirmed_first(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_client three;

    hf_mux_connect(&three, &setup->node, 3);
    setup->node.is_stuck = true;
    hf_mux_send(&three, (struct hf_mux_request){.verb = HF_VERB_ATTACH,
                                                .session = 77,
                                                .secret = hf_mux_secret});
    hf_fake_turn(&setup->node, 1000);
    assert_false(hf_mux_take(&three));
    setup->node.failure.err = HF_EUNAVAIL;
    setup->node.is_stuck = false;
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&three, HF_VERB_ATTACH).err, HF_EUNAVAIL);
    hf_resp_reader_fini(&three.reader);
}

static void detach_closes_the_session_at_once(void **state)
{
    struct hf_mux_setup *setup = *state;
    uint64_t session = setup->one.session;

    expect_ok(hf_mux_call(&setup->one,
                          (struct hf_mux_request){.verb = HF_VERB_DETACH})
                  .err);
    assert_null(hf_table_find_session(&setup->node.store.table, session));
    assert_true(setup->node.conns[1].session == 0);
    expect_err(hf_mux_call(&setup->one,
                           (struct hf_mux_request){.verb = HF_VERB_DETACH})
                   .err,
               HF_ESTATE);
}

/* The session stays open, because the client may attach it again, at any
 * node. */
static void a_closed_connection_leaves_its_session(void **state)
{
    struct hf_mux_setup *setup = *state;

    expect_err(
        hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, true)).err,
        HF_OK);
    expect_err(
        hf_mux_do(&setup->two, hf_mux_lock("k", &hf_mux_nonce_b, true)).err,
        HF_EBUSY);
    hf_clients_on_closed(setup->node.clients, 2);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(
        hf_table_find(&setup->node.store.table, hf_key_of("k"))->waiters, 1);
    assert_true(setup->node.conns[2].session == 0);
}

/* ---- Commands -----------------------------------------------------------*/

static void replies_come_in_any_order(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_reply reply;

    setup->node.is_stuck = true;
    hf_mux_send_command(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    reply =
        hf_mux_call(&setup->one, (struct hf_mux_request){.verb = HF_VERB_PING});
    expect_ok(reply.err);
    assert_false(hf_mux_take(&setup->one));
    setup->node.is_stuck = false;
    hf_fake_turn(&setup->node, 1000);
    reply = hf_mux_take_reply(&setup->one, HF_VERB_DO);
    assert_true(reply.id == setup->one.id - 1);
}

static void output_is_sent_once_per_turn(void **state)
{
    struct hf_mux_setup *setup = *state;
    size_t before = setup->node.conns[1].sends;

    for (int i = 0; i < 100; i++)
        hf_mux_send(&setup->one, (struct hf_mux_request){.verb = HF_VERB_PING});
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(setup->node.conns[1].sends, before + 1);
}

static void grants_are_pushed(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_result result;
    struct hf_mux_push push;
    struct hf_command unlock = {
        .kind = HF_COMMAND_UNLOCK,
        .key = {"k", 1},
        .nonce = hf_mux_nonce_a,
    };

    result = hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    unlock.token = result.token;
    result = hf_mux_do(&setup->two, hf_mux_lock("k", &hf_mux_nonce_b, true));
    expect_err(result.err, HF_EBUSY);
    assert_int_equal(result.position, 1);
    setup->node.age_ms = 42;
    expect_ok(hf_mux_do(&setup->one, unlock).err);
    assert_true(hf_mux_take(&setup->two));
    expect_ok(hf_mux_push_decode(&push, &setup->two.message));
    assert_int_equal(push.kind, HF_MUX_PUSH_GRANT);
    assert_true(hf_nonce_equal(&push.nonce, &hf_mux_nonce_b));
    assert_true(push.token == unlock.token + 1 && push.age_ms == 42);
}

static void commands_of_nodes_are_refused(void **state)
{
    static const enum hf_command_kind kinds[] = {
        HF_COMMAND_OPEN, HF_COMMAND_CLOSE, HF_COMMAND_EXPIRE,
        HF_COMMAND_VERSION};
    struct hf_mux_setup *setup = *state;
    size_t before;

    expect_ok(
        hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false)).err);
    before = setup->node.submitted;
    for (size_t i = 0; i < HF_TEST_COUNT(kinds); i++) {
        hf_mux_send_command(&setup->one,
                            (struct hf_command){.kind = kinds[i],
                                                .key = {"k", 1},
                                                .nonce = hf_mux_nonce_b,
                                                .version = 1,
                                                .token = 1});
        hf_fake_turn(&setup->node, 1000);
        expect_err(hf_mux_take_reply(&setup->one, HF_VERB_DO).err, HF_EDENIED);
    }
    assert_int_equal(setup->node.submitted, before);
}

static void commands_of_other_sessions_are_refused(void **state)
{
    struct hf_mux_setup *setup = *state;

    setup->one.session = setup->two.session;
    hf_mux_send_command(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&setup->one, HF_VERB_DO).err, HF_ESTATE);
    assert_int_equal(setup->node.store.table.holds.count, 0);
}

static void malformed_commands_are_refused(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_request request = {
        .verb = HF_VERB_DO,
        .command = {"\1x", 2},
    };

    expect_err(hf_mux_call(&setup->one, request).err, HF_EPROTO);
    request.command = hf_bytes_of("\377"); /* a command of a newer version */
    expect_err(hf_mux_call(&setup->one, request).err, HF_EUNSUPPORTED);
}

static void outcomes_without_a_result_are_errors(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_mux_reply reply;

    setup->node.failure =
        (struct hf_node_outcome){.err = HF_ELIMIT, .no_space = true};
    hf_mux_send_command(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    hf_fake_turn(&setup->node, 1000);
    reply = hf_mux_take_reply(&setup->one, HF_VERB_DO);
    expect_err(reply.err, HF_ELIMIT);
    assert_true(reply.no_space);
    setup->node.failure = (struct hf_node_outcome){.err = HF_EINDOUBT};
    hf_mux_send_command(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&setup->one, HF_VERB_DO).err, HF_EINDOUBT);
}

static void requests_without_an_id_close_the_connection(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_fake_call(&setup->node, 1, "1 NONSENSE\r\n",
                 "*2\r\n:1\r\n-PROTO unknown command\r\n");
    assert_false(setup->node.conns[1].is_closed);
    hf_fake_call(&setup->node, 1, "PING\r\n",
                 "-PROTO a request begins with an id from 1 to 2^63 - 1\r\n");
    assert_true(setup->node.conns[1].is_closed);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_mux_set_up, hf_mux_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_connection_has_one_session),
        CASE(a_session_is_attached_again_by_its_secret),
        CASE(a_missing_session_is_confirmed_first),
        CASE(detach_closes_the_session_at_once),
        CASE(a_closed_connection_leaves_its_session),
        CASE(replies_come_in_any_order),
        CASE(output_is_sent_once_per_turn),
        CASE(grants_are_pushed),
        CASE(commands_of_nodes_are_refused),
        CASE(commands_of_other_sessions_are_refused),
        CASE(malformed_commands_are_refused),
        CASE(outcomes_without_a_result_are_errors),
        CASE(requests_without_an_id_close_the_connection),
    };

    return hf_test_main("clients_mux", cases, HF_TEST_COUNT(cases), 0);
}
