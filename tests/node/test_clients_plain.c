/* test_clients_plain.c - the client port of a node, as redis-cli uses it. */
#include "lib/expect.h"
#include "lib/runner.h"
#include "node/plain_client.h"

/* ---- Commands without a lock --------------------------------------------*/

static void simple_commands_are_answered_in_order(void **state)
{
    hf_fake_call(*state, 1,
                 "PING\r\n*2\r\n$4\r\nping\r\n$2\r\nhi\r\nECHO a\r\nCOMMAND "
                 "DOCS\r\nHELLO 1\r\n",
                 "+PONG\r\n$2\r\nhi\r\n$1\r\na\r\n*0\r\n*11\r\n:1\r\n$32\r\n"
                 "636c7573746572206964656e74697479\r\n:1\r\n:1\r\n$12\r\n"
                 "127.0.0.1:11\r\n:2\r\n:1024\r\n:196608\r\n$4\r\nraft\r\n"
                 "$0\r\n\r\n:0\r\n");
}

static void quit_closes_after_its_reply(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "QUIT\r\nPING\r\n", "+OK\r\n");
    assert_true(node->conns[1].is_closed);
}

static void mistakes_are_answered_with_an_error(void **state)
{
    hf_fake_call(*state, 1, "LOCK k\r\n",
                 "-INVAL wrong number of arguments\r\n");
    hf_fake_call(*state, 1, "LOCK k 0\r\n",
                 "-INVAL a ttl has 1 to 604800000 ms\r\n");
    hf_fake_call(*state, 1, "LOCK k 604800001\r\n",
                 "-INVAL a ttl has 1 to 604800000 ms\r\n");
    hf_fake_call(*state, 1, "LOCK k 1 WAIT\r\n",
                 "-INVAL options of LOCK: WAIT, NONCE, VALUE, NOTE\r\n");
    hf_fake_call(*state, 1, "LOCK k 1 NONCE 12\r\n",
                 "-INVAL a nonce has 32 hexadecimal digits\r\n");
    hf_fake_call(*state, 1, "UNLOCK k " NONCE_A " x\r\n",
                 "-INVAL a token is a number\r\n");
    hf_fake_call(*state, 1, "*2\r\n$4\r\nREAD\r\n$0\r\n\r\n",
                 "-INVAL a key has 1 to 1024 bytes\r\n");
    hf_fake_call(*state, 1, "READ k NOW\r\n", "-INVAL READ key [LOCAL]\r\n");
    hf_fake_call(*state, 1, "HELLO 3\r\n",
                 "-UNSUPPORTED this node has version 1 of the protocol only"
                 "\r\n");
    hf_fake_call(*state, 1, "OPEN a b\r\n", "-PROTO unknown command\r\n");
}

/* Plain mode has neither the commands of nodes nor those of MUX mode. */
static void commands_of_nodes_do_not_exist(void **state)
{
    static const char *const words[] = {"EXPIRE", "CLOSE", "VERSION",
                                        "OPEN",   "DO",    "ATTACH"};
    struct hf_node *node = *state;

    for (size_t i = 0; i < HF_TEST_COUNT(words); i++) {
        struct hf_buf buf = {0};

        hf_resp_write_array(&buf, 2);
        hf_resp_write_text(&buf, words[i]);
        hf_resp_write_text(&buf, "k");
        hf_buf_u8(&buf, 0);
        hf_fake_call(node, 1, (const char *)buf.data,
                     "-PROTO unknown command\r\n");
        hf_buf_fini(&buf);
    }
    assert_int_equal(node->submitted, 0);
    assert_false(node->conns[1].is_closed);
}

/* A web page can make a browser send an HTTP request to a local port. The node
 * must not execute commands in the body of that request. */
static void a_request_of_a_browser_executes_nothing(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1,
                 "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nLOCK k 1000\r\n",
                 "-PROTO unknown command\r\n");
    assert_true(node->conns[1].is_closed);
    assert_int_equal(node->submitted, 0);
}

/* ---- Locks --------------------------------------------------------------*/

static void a_lock_is_granted_and_released(void **state)
{
    hf_plain_hold_key(*state);
    hf_fake_call(*state, 2, "LOCK k 1000\r\n",
                 "-BUSY held by another claim\r\n");
    hf_fake_call(*state, 2, "UNLOCK k " NONCE_B " 1\r\n",
                 "-NOTOWNER held by another claim\r\n");
    /* Nonce and token suffice to unlock, over any connection. */
    hf_fake_call(*state, 2, "UNLOCK k " NONCE_A " 1\r\n", "+OK\r\n");
    hf_fake_call(*state, 1, "UNLOCK k " NONCE_A " 1\r\n",
                 "-NOTHELD not held\r\n");
    hf_fake_call(*state, 2, "LOCK k 1000 NONCE " NONCE_B "\r\n",
                 GRANTED(NONCE_B, "2", "0"));
}

static void the_lease_is_longer_than_the_ttl(void **state)
{
    struct hf_node *node = *state;
    const struct hf_hold *hold;

    hf_fake_call(node, 1, "LOCK k 1600 NONCE " NONCE_A "\r\n",
                 GRANTED(NONCE_A, "1", "0"));
    hold = hf_table_find(&node->store.table, hf_key_of("k"));
    assert_int_equal(hold->lease_ms, 1600 + 100 + 50);
    hf_fake_call(node, 1, "RENEW k " NONCE_A " 1 3200\r\n", "+OK\r\n");
    assert_int_equal(hold->lease_ms, 3200 + 200 + 50);
}

static void nonces_are_drawn_and_never_repeat(void **state)
{
    struct hf_node *node = *state;
    char first[32];

    hf_fake_send(node, 1, "LOCK a 1000\r\n");
    hf_fake_turn(node, 1000);
    memcpy(first, node->conns[1].output.data + 9, 32);
    hf_fake_expect(node, 1, "*3\r\n$32\r\n~");
    hf_fake_send(node, 1, "LOCK b 1000\r\n");
    hf_fake_turn(node, 1000);
    assert_memory_not_equal(first, node->conns[1].output.data + 9, 32);
}

static void a_value_is_updated_if_it_is_expected(void **state)
{
    hf_fake_call(*state, 1,
                 "LOCK k 60000 NONCE " NONCE_A " VALUE one NOTE text\r\n",
                 GRANTED(NONCE_A, "1", "0"));
    hf_fake_call(*state, 1, "UPDATE k " NONCE_A " 1 two IF none\r\n",
                 "-MISMATCH the value is not the expected one\r\n");
    hf_fake_call(*state, 1, "UPDATE k " NONCE_A " 1 two IF one\r\n", "+OK\r\n");
    hf_fake_call(*state, 2, "READ k\r\n",
                 "*22\r\n$3\r\nkey\r\n$1\r\nk\r\n$4\r\nheld\r\n:1\r\n"
                 "$5\r\nindex\r\n:2\r\n$5\r\ntoken\r\n:1\r\n"
                 "$7\r\nheld_ms\r\n:0\r\n$7\r\nleft_ms\r\n:63800\r\n"
                 "$7\r\nwaiters\r\n:0\r\n$6\r\nforced\r\n:0\r\n"
                 "$5\r\nowner\r\n$12\r\nplain client\r\n"
                 "$4\r\nnote\r\n$4\r\ntext\r\n$5\r\nvalue\r\n$3\r\ntwo\r\n");
}

static void a_lock_is_forced(void **state)
{
    hf_plain_hold_key(*state);
    hf_fake_call(*state, 2, "FORCE k 1\r\n", "+OK\r\n");
    hf_fake_call(*state, 1, "RENEW k " NONCE_A " 1 1000\r\n",
                 "-FORCED an operator broke the lock; it cannot be "
                 "renewed\r\n");
    hf_fake_call(*state, 2, "FORCE k 1 NOW\r\n", "+OK\r\n");
    hf_fake_call(*state, 2, "READ k LOCAL\r\n",
                 "*6\r\n$3\r\nkey\r\n$1\r\nk\r\n$4\r\nheld\r\n:0\r\n"
                 "$5\r\nindex\r\n:3\r\n");
}

static void claims_are_looked_up_by_their_nonce(void **state)
{
    hf_plain_hold_key(*state);
    hf_plain_wait_for_key(*state);
    hf_fake_call(*state, 3, "LOOKUP k " NONCE_A "\r\n",
                 "*3\r\n$4\r\nheld\r\n:1\r\n:0\r\n");
    hf_fake_call(*state, 3, "LOOKUP k " NONCE_B "\r\n",
                 "*3\r\n$6\r\nqueued\r\n:0\r\n:1\r\n");
    hf_fake_call(*state, 3, "LOOKUP k 11111111111111111111111111111111\r\n",
                 "*3\r\n$7\r\nunknown\r\n:0\r\n:0\r\n");
}

/* A LOCK is answered when its outcome is known, not from this node's table. */
static void a_lock_is_not_answered_before_its_outcome(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "CANCEL k " NONCE_A "\r\n", "-NOTHELD not held\r\n");
    node->is_stuck = true;
    hf_fake_call(node, 1, "LOCK k 1000 NONCE " NONCE_A "\r\n", "");
    hf_fake_turn(node, 5000);
    hf_fake_expect(node, 1, "");
    node->is_stuck = false;
    hf_fake_turn(node, 5001);
    hf_fake_expect(node, 1, GRANTED(NONCE_A, "1", "0"));
}

static void outcomes_without_a_result_are_errors(void **state)
{
    struct hf_node *node = *state;

    hf_plain_hold_key(node);
    node->failure.err = HF_EUNAVAIL;
    hf_fake_call(node, 1, "RENEW k " NONCE_A " 1 1000\r\n",
                 "-UNAVAIL no leader answered in time; nothing was changed"
                 "\r\n");
    node->failure.err = HF_EINDOUBT;
    hf_fake_call(node, 1, "RENEW k " NONCE_A " 1 1000\r\n",
                 "-INDOUBT no leader answered in time; the change may have "
                 "been made\r\n");
    hf_fake_call(node, 1, "LOCK other 1000 NONCE " NONCE_B "\r\n",
                 "-INDOUBT the answer was lost; CANCEL this nonce: " NONCE_B
                 "\r\n");
    node->failure =
        (struct hf_node_outcome){.err = HF_ELIMIT, .no_space = true};
    hf_fake_call(node, 1, "LOCK other 1000\r\n",
                 "-NOSPACE the disk of a node is full: free space on it; open "
                 "sessions can unlock and renew\r\n");
    node->failure.err = HF_OK;
    hf_fake_call(node, 1, "PING\r\n", "+PONG\r\n");
}

/* ---- Lists and watches --------------------------------------------------*/

static void lists_have_a_cursor(void **state)
{
    struct hf_node *node = *state;

    for (int i = 0; i < 3; i++) {
        const char *const text[] = {"LOCK ab 60000\r\n", "LOCK x 60000\r\n",
                                    "LOCK ac 60000\r\n"};

        hf_fake_call(node, 1, text[i], "*3\r\n~");
    }
    hf_fake_call(node, 2, "LIST a COUNT 1\r\n",
                 "*2\r\n:1\r\n*22\r\n$3\r\nkey\r\n$2\r\nab\r\n~");
    hf_fake_call(node, 2, "LIST a AFTER 1 COUNT 1\r\n",
                 "*2\r\n:3\r\n*22\r\n$3\r\nkey\r\n$2\r\nac\r\n~");
    hf_fake_call(node, 2, "LIST a AFTER 3\r\n", "*1\r\n:0\r\n");
    hf_fake_call(node, 2, "LIST\r\n", "*4\r\n:0\r\n~");
    hf_fake_call(node, 2, "LIST a COUNT 0\r\n",
                 "-INVAL COUNT needs a number up to 500\r\n");
    hf_fake_call(node, 2, "LIST a COUNT\r\n",
                 "-INVAL LIST [prefix] [AFTER cursor] [COUNT n]\r\n");
}

static void a_watch_turns_the_connection_into_a_stream(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 2, "WATCH k\r\n", ":0\r\n");
    hf_plain_hold_key(node);
    hf_fake_expect(node, 2,
                   "*7\r\n$5\r\nevent\r\n:1\r\n$7\r\ngranted\r\n$1\r\nk\r\n"
                   ":1\r\n$12\r\nplain client\r\n:0\r\n");
    hf_fake_call(node, 1, "LOCK other 1000\r\n", "*3\r\n~");
    hf_fake_call(node, 2, "LOCK k 1\r\n", "-STATE UNWATCH first\r\n");
    hf_fake_call(node, 2, "PING\r\nUNWATCH\r\n", "+PONG\r\n+OK\r\n");
    hf_plain_release_key(node);
    hf_fake_expect(node, 2, "");
    hf_fake_call(node, 2, "WATCH k FROM 3\r\n",
                 ":3\r\n*7\r\n$5\r\nevent\r\n:3\r\n$8\r\nreleased\r\n~");
}

/* ---- Reports ------------------------------------------------------------*/

static bool contains(const struct hf_buf *output, const char *text)
{
    return memmem(output->data, output->size, text, strlen(text)) != NULL;
}

static void a_node_reports_about_itself(void **state)
{
    struct hf_node *node = *state;

    hf_fake_send(node, 1, "INFO\r\n");
    hf_fake_turn(node, 1000);
    assert_true(contains(&node->conns[1].output, "# Raft\r\nrole:leader\r\n"));
    assert_true(contains(&node->conns[1].output, "connected_clients:3\r\n"));
    assert_true(contains(&node->conns[1].output, "connections_slow:0\r\n"));
    hf_fake_call(
        node, 2, "STATUS\r\n",
        "$387\r\n{\"cluster\":\"636c7573746572206964656e74697479\",\"id\":1,"
        "\"role\":\"leader\",\"leader\":1,\"term\":3,\"commit\":8,"
        "\"applied\":7,\"first\":0,\"last\":0,"
        "\"uncommitted_earlier_term\":false,"
        "\"held\":0,\"sessions\":0,\"clients\":3,\"nodes\":["
        "{\"id\":1,\"address\":\"127.0.0.1:11\",\"peer_address\":"
        "\"127.0.0.1:1\",\"lag\":0,\"role\":\"leader\"},"
        "{\"id\":2,\"address\":\"127.0.0.1:12\",\"peer_address\":"
        "\"127.0.0.1:2\",\"lag\":5,\"role\":\"unreachable\"}]}\r\n");
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_plain_set_up, hf_plain_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(simple_commands_are_answered_in_order),
        CASE(quit_closes_after_its_reply),
        CASE(mistakes_are_answered_with_an_error),
        CASE(commands_of_nodes_do_not_exist),
        CASE(a_request_of_a_browser_executes_nothing),
        CASE(a_lock_is_granted_and_released),
        CASE(the_lease_is_longer_than_the_ttl),
        CASE(nonces_are_drawn_and_never_repeat),
        CASE(a_value_is_updated_if_it_is_expected),
        CASE(a_lock_is_forced),
        CASE(claims_are_looked_up_by_their_nonce),
        CASE(a_lock_is_not_answered_before_its_outcome),
        CASE(outcomes_without_a_result_are_errors),
        CASE(lists_have_a_cursor),
        CASE(a_watch_turns_the_connection_into_a_stream),
        CASE(a_node_reports_about_itself),
    };

    return hf_test_main("clients_plain", cases, HF_TEST_COUNT(cases), 0);
}
