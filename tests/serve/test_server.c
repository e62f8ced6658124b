/* test_server.c - connections of clients, over two small services.
 *
 * The first has no optional function. The second uses each of them: a LOCK is
 * answered when the test says so, a LIST streams as many integers as its prefix
 * says, and a connection whose LOCK was answered may not switch to MUX mode.
 * The limits of a server are tested with the clients of a raft node, in
 * tests/node. */
#include <string.h>

#include "lib/runner.h"
#include "serve/reply.h"
#include "serve/text.h"

#define HELLO_MUX "HELLO 1 MUX\r\n"
#define HELLO_REPLY                                                            \
    "*11\r\n:1\r\n$5\r\nsmall\r\n:7\r\n:0\r\n$0\r\n\r\n:3\r\n:1024\r\n"        \
    ":196608\r\n$4\r\ntest\r\n$0\r\n\r\n:0\r\n"

struct client {
    struct hf_buf output; /* not yet taken by the test */
    bool is_closed;
    bool is_paused;
};

struct setup {
    struct hf_server server;
    struct client clients[4];
    size_t begun, ended; /* connections of the second service */
};

/* ---- The shell ----------------------------------------------------------*/

static void send_bytes(void *arg, uint64_t conn, const void *bytes, size_t size)
{
    struct setup *setup = arg;

    hf_buf_raw(&setup->clients[conn].output, bytes, size);
}

static void close_conn(void *arg, uint64_t conn)
{
    struct setup *setup = arg;

    setup->clients[conn].is_closed = true;
}

static void pause_conn(void *arg, uint64_t conn, bool stop_reading)
{
    struct setup *setup = arg;

    setup->clients[conn].is_paused = stop_reading;
}

static void send_text(struct setup *setup, uint64_t conn, const char *text)
{
    hf_server_on_data(&setup->server, setup->server.now, conn, text,
                      strlen(text));
}

/* Run turns at `now` until none is due. */
static void run_turns(struct setup *setup, hf_time now)
{
    do
        hf_server_turn(&setup->server, now);
    while (hf_server_deadline(&setup->server, now) <= now);
}

static void expect_output(struct setup *setup, uint64_t conn,
                          const char *wanted)
{
    struct hf_buf *output = &setup->clients[conn].output;

    hf_buf_raw(output, "", 1);
    assert_string_equal((const char *)output->data, wanted);
    output->size = 0;
}

static void call_text(struct setup *setup, uint64_t conn, const char *text,
                      const char *wanted)
{
    send_text(setup, conn, text);
    run_turns(setup, setup->server.now);
    expect_output(setup, conn, wanted);
}

/* ---- The first service --------------------------------------------------*/

static void execute_plain(struct hf_serve_conn *conn, enum hf_verb verb,
                          struct hf_arguments *args)
{
    struct hf_key key;

    if (verb != HF_VERB_READ) {
        hf_serve_reply_error(conn, HF_EUNSUPPORTED, "only READ");
        return;
    }
    key = hf_arguments_key(args, false);
    if (args->cause)
        hf_serve_reply_error(conn, HF_EINVAL, args->cause);
    else
        hf_serve_reply_bulk(conn, (struct hf_bytes){key.data, key.size});
}

static void execute_mux(struct hf_serve_conn *conn,
                        const struct hf_mux_request *request)
{
    const struct hf_mux_reply reply = {
        .id = request->id,
        .result = request->command,
    };

    if (request->verb == HF_VERB_DO)
        hf_serve_reply_mux(conn, &reply, HF_VERB_DO);
    else
        hf_serve_reply_mux_error(conn, request->id, HF_EUNSUPPORTED, "only DO");
}

static void fill_hello(struct hf_server *server, struct hf_mux_hello *hello)
{
    (void)server;
    hello->cluster = hf_bytes_of("small");
    hello->node = 7;
    hello->table_version = 3;
    hello->mode = hf_bytes_of("test");
}

static void add_info(struct hf_server *server, struct hf_buf *text)
{
    hf_text_section(text, "Server");
    hf_text_line(text, "kind", "small");
    hf_server_add_connections(server, text);
    hf_server_add_bytes(server, text);
    hf_server_add_counters(server, text);
}

static void add_status(struct hf_server *server, struct hf_buf *text)
{
    hf_text_add(text, "{");
    hf_text_json_string(text, "kind", "small");
    hf_text_json_bool(text, "ready", true);
    hf_text_json_number(text, "clients", server->count);
    hf_text_add(text, "}");
}

static const struct hf_service_ops small_ops = {
    .conn_size = sizeof(struct hf_serve_conn),
    .execute_plain = execute_plain,
    .execute_mux = execute_mux,
    .fill_hello = fill_hello,
    .add_info = add_info,
    .add_status = add_status,
};

/* ---- The second service -------------------------------------------------*/

struct conn {
    struct hf_serve_conn serve;
    bool is_waiting;  /* a LOCK is unanswered */
    bool is_answered; /* the test has answered it: reply */
    bool was_locked;
    uint64_t left; /* integers to stream */
};

static struct conn *conn_of(const struct hf_serve_conn *serve)
{
    return HF_CONTAINER(serve, struct conn, serve);
}

static struct conn *find_conn(const struct setup *setup, uint64_t number)
{
    return conn_of(hf_server_find(&setup->server, number));
}

static void init_conn(struct hf_serve_conn *serve)
{
    HF_CONTAINER(serve->server, struct setup, server)->begun++;
}

static void fini_conn(struct hf_serve_conn *serve)
{
    HF_CONTAINER(serve->server, struct setup, server)->ended++;
}

static void execute_slowly(struct hf_serve_conn *serve, enum hf_verb verb,
                           struct hf_arguments *args)
{
    if (verb == HF_VERB_LOCK) {
        conn_of(serve)->is_waiting = true;
        return;
    }
    conn_of(serve)->left = hf_arguments_number(args, UINT32_MAX, "a number");
    hf_serve_conn_set_streaming(serve);
}

static bool is_busy(const struct hf_serve_conn *serve)
{
    return conn_of(serve)->is_waiting || conn_of(serve)->left > 0;
}

static bool may_be_silent(const struct hf_serve_conn *serve)
{
    return conn_of(serve)->is_waiting;
}

static void answer_lock(struct setup *setup, uint64_t number)
{
    find_conn(setup, number)->is_answered = true;
    hf_serve_conn_set_ready(&find_conn(setup, number)->serve);
}

static void on_ready(struct hf_serve_conn *serve)
{
    struct conn *conn = conn_of(serve);

    if (!conn->is_answered)
        return;
    conn->is_answered = false;
    conn->is_waiting = false;
    conn->was_locked = true;
    hf_serve_reply_ok(serve);
}

static unsigned stream(struct hf_serve_conn *serve)
{
    struct conn *conn = conn_of(serve);
    unsigned work = 0;

    for (; conn->left > 0 && work < HF_CLIENT_WORK &&
           hf_serve_conn_has_room(serve);
         work++, conn->left--)
        hf_resp_write_integer(&serve->output, (int64_t)conn->left);
    hf_serve_conn_wrote(serve);
    if (conn->left > 0)
        hf_serve_conn_set_streaming(serve);
    return work;
}

static bool accept_mux(struct hf_serve_conn *serve)
{
    if (conn_of(serve)->was_locked)
        hf_serve_reply_error(serve, HF_ESTATE, "too late");
    return !conn_of(serve)->was_locked;
}

static const struct hf_service_ops slow_ops = {
    .conn_size = sizeof(struct conn),
    .init_conn = init_conn,
    .fini_conn = fini_conn,
    .execute_plain = execute_slowly,
    .execute_mux = execute_mux,
    .is_busy = is_busy,
    .may_be_silent = may_be_silent,
    .on_ready = on_ready,
    .stream = stream,
    .accept_mux = accept_mux,
    .fill_hello = fill_hello,
    .add_info = add_info,
    .add_status = add_status,
};

/* ---- Fixtures -----------------------------------------------------------*/

static void init_setup(void **state, const struct hf_service_ops *ops)
{
    static struct setup setup;
    const struct hf_server_opts opts = {
        .ops = ops,
        .shell = {send_bytes, close_conn, pause_conn, &setup},
        .max = 3,
    };

    hf_server_init(&setup.server, &opts);
    hf_server_on_open(&setup.server, 1000, 1);
    hf_server_on_open(&setup.server, 1000, 2);
    *state = &setup;
}

static int set_up_small(void **state)
{
    init_setup(state, &small_ops);
    return 0;
}

static int set_up_slow(void **state)
{
    init_setup(state, &slow_ops);
    return 0;
}

static int tear_down(void **state)
{
    struct setup *setup = *state;

    hf_server_fini(&setup->server);
    for (size_t i = 0; i < HF_TEST_COUNT(setup->clients); i++)
        hf_buf_fini(&setup->clients[i].output);
    return 0;
}

/* ---- Cases --------------------------------------------------------------*/

static void a_small_service_has_plain_mode(void **state)
{
    struct setup *setup = *state;

    call_text(setup, 1, "PING\r\nREAD a\r\nPING b\r\n",
              "+PONG\r\n$1\r\na\r\n$1\r\nb\r\n");
    call_text(setup, 1, "LOCK a 1\r\n", "-UNSUPPORTED only READ\r\n");
    call_text(setup, 1, "READ\r\n", "-INVAL wrong number of arguments\r\n");
    call_text(setup, 1, "HELLO 1\r\n", HELLO_REPLY);
    call_text(setup, 1, "HELLO 2\r\n",
              "-UNSUPPORTED this node has version 1 of the protocol only\r\n");
    call_text(setup, 1, "STATUS\r\n",
              "$41\r\n{\"kind\":\"small\",\"ready\":true,\"clients\":2}\r\n");
    call_text(setup, 1, "QUIT\r\n", "+OK\r\n");
    assert_true(setup->clients[1].is_closed);
    assert_false(setup->clients[2].is_closed);
}

static void a_small_service_has_mux_mode(void **state)
{
    struct setup *setup = *state;

    call_text(setup, 1, HELLO_MUX, HELLO_REPLY);
    call_text(setup, 1, "1 PING\r\n2 DO 0 abc\r\n",
              "*2\r\n:1\r\n+OK\r\n*4\r\n:2\r\n$3\r\nabc\r\n:0\r\n:0\r\n");
    call_text(setup, 1, "3 DETACH\r\n4 HELLO\r\n",
              "*2\r\n:3\r\n-UNSUPPORTED only DO\r\n"
              "*2\r\n:4\r\n-PROTO unknown command\r\n");
    call_text(setup, 1, "5 STATUS\r\n",
              "*2\r\n:5\r\n$41\r\n"
              "{\"kind\":\"small\",\"ready\":true,\"clients\":2}\r\n");
    assert_int_equal(setup->server.mux_count, 1);
    call_text(setup, 1, "PING\r\n",
              "-PROTO a request begins with an id from 1 to 2^63 - 1\r\n");
    assert_true(setup->clients[1].is_closed);
    assert_int_equal(setup->server.mux_count, 0);
}

static void info_has_a_section_about_connections(void **state)
{
    struct setup *setup = *state;
    const char *text;

    send_text(setup, 1, "INFO\r\n");
    run_turns(setup, 1000);
    hf_buf_raw(&setup->clients[1].output, "", 1);
    text = (const char *)setup->clients[1].output.data;
    assert_non_null(strstr(text, "# Server\r\nkind:small\r\n\r\n# Clients\r\n"
                                 "connected_clients:2\r\nmux_clients:0\r\n"
                                 "maxclients:3\r\n"));
    assert_non_null(strstr(text, "\r\nrequests:1\r\n"));
}

static void connections_beyond_the_limit_are_refused(void **state)
{
    struct setup *setup = *state;

    hf_server_on_open(&setup->server, 1000, 3);
    hf_server_on_closed(&setup->server, 2);
    hf_server_on_open(&setup->server, 1000, 2);
    hf_server_on_open(&setup->server, 1000, 0);
    expect_output(setup, 0, HF_SERVER_REFUSAL);
    assert_true(setup->clients[0].is_closed);
    assert_int_equal(setup->server.counters.connections_refused, 1);
    assert_int_equal(setup->server.count, 3);
}

static void pushes_are_for_clients_in_mux_mode(void **state)
{
    struct setup *setup = *state;
    const struct hf_mux_push push = {.kind = HF_MUX_PUSH_FULL};
    struct hf_buf *scratch = hf_server_scratch(&setup->server);

    call_text(setup, 1, HELLO_MUX, HELLO_REPLY);
    hf_mux_push_encode(&push, scratch);
    hf_server_push_all(&setup->server, scratch);
    run_turns(setup, 1000);
    expect_output(setup, 1, "*2\r\n:0\r\n$4\r\nFULL\r\n");
    expect_output(setup, 2, "");
}

static void an_idle_client_is_closed(void **state)
{
    struct setup *setup = *state;

    send_text(setup, 1, "LOCK a 1\r\n");
    run_turns(setup, 1000 + HF_CLIENT_IDLE_MS - 1);
    assert_false(setup->clients[2].is_closed);
    run_turns(setup, 1000 + HF_CLIENT_IDLE_MS + HF_CLIENT_SWEEP_MS);
    assert_true(setup->clients[2].is_closed);
    assert_false(setup->clients[1].is_closed); /* its request takes long */
    assert_int_equal(setup->server.counters.connections_idle, 1);
}

static void requests_wait_while_the_service_is_busy(void **state)
{
    struct setup *setup = *state;

    call_text(setup, 1, "LOCK a 1\r\nPING\r\n", "");
    call_text(setup, 2, "PING\r\n", "+PONG\r\n");
    answer_lock(setup, 1);
    assert_int_equal(hf_server_deadline(&setup->server, 1000), 1000);
    run_turns(setup, 1000);
    expect_output(setup, 1, "+OK\r\n+PONG\r\n");
    call_text(setup, 1, HELLO_MUX, "-STATE too late\r\n");
}

static void only_a_connection_with_input_is_resumed(void **state)
{
    struct setup *setup = *state;
    struct conn *conn = find_conn(setup, 1);

    run_turns(setup, 1000);
    call_text(setup, 1, "LOCK a 1\r\n", "");
    hf_serve_conn_resume(&conn->serve);
    assert_true(hf_server_deadline(&setup->server, 1000) > 1000);
    send_text(setup, 1, "PING\r\n");
    hf_serve_conn_resume(&conn->serve);
    assert_int_equal(hf_server_deadline(&setup->server, 1000), 1000);
    run_turns(setup, 1000);
    expect_output(setup, 1, "");
}

static void a_stream_waits_for_room(void **state)
{
    struct setup *setup = *state;

    hf_server_on_unsent(&setup->server, 1000, 1, HF_CLIENT_ROOM);
    call_text(setup, 1, "LIST 3\r\n", "");
    hf_server_on_unsent(&setup->server, 1000, 1, 0);
    run_turns(setup, 1000);
    expect_output(setup, 1, ":3\r\n:2\r\n:1\r\n");
    call_text(setup, 1, "LIST 1\r\nPING\r\n", ":1\r\n+PONG\r\n");
    send_text(setup, 1, "LIST 100000\r\n");
    send_text(setup, 2, "LIST 2\r\n");
    hf_server_turn(&setup->server, 1000);
    expect_output(setup, 2, ":2\r\n:1\r\n");
    assert_true(find_conn(setup, 1)->left > 0);
    assert_true(setup->clients[1].output.size < HF_CLIENT_ROOM);
}

static void a_connection_ends_once(void **state)
{
    struct setup *setup = *state;

    hf_server_on_open(&setup->server, 1000, 3);
    hf_server_on_closed(&setup->server, 1);
    assert_int_equal(setup->ended, 1);
    send_text(setup, 2, "QUIT\r\n");
    hf_serve_conn_close(hf_server_find(&setup->server, 2));
    assert_int_equal(setup->ended, 1);
    run_turns(setup, 1000);
    assert_int_equal(setup->ended, 2);
    hf_server_on_closed(&setup->server, 2);
    assert_null(hf_server_find(&setup->server, 2));
    hf_server_fini(&setup->server);
    assert_int_equal(setup->ended, 3);
    assert_int_equal(setup->begun, 3);
    init_setup(state, &slow_ops);
}

int main(void)
{
#define SMALL(name)                                                            \
    cmocka_unit_test_setup_teardown(name, set_up_small, tear_down)
#define SLOW(name) cmocka_unit_test_setup_teardown(name, set_up_slow, tear_down)
    const struct CMUnitTest cases[] = {
        SMALL(a_small_service_has_plain_mode),
        SMALL(a_small_service_has_mux_mode),
        SMALL(info_has_a_section_about_connections),
        SMALL(connections_beyond_the_limit_are_refused),
        SMALL(pushes_are_for_clients_in_mux_mode),
        SLOW(an_idle_client_is_closed),
        SLOW(requests_wait_while_the_service_is_busy),
        SLOW(only_a_connection_with_input_is_resumed),
        SLOW(a_stream_waits_for_room),
        SLOW(a_connection_ends_once),
    };

    return hf_test_main("server", cases, HF_TEST_COUNT(cases), 0);
}
