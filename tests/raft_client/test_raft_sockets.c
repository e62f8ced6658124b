/* raft: over real sockets, to nodes that grant everything. */
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/client.h"
#include "client/operation.h"
#include "lib/loopback.h"
#include "lib/runner.h"
#include "strategy/raft/raft.h"

#define CONNECTIONS 8
#define READ_SIZE 4096

struct connection {
    int fd; /* 0: free */
    bool has_hello;
    struct hf_resp_reader reader;
};

/* A node in a thread of the test. */
struct server {
    int listener, port;
    pthread_t thread;
    struct connection connections[CONNECTIONS];
    atomic_bool stop;
    atomic_bool stalls;   /* OPEN is not answered */
    atomic_bool hangs_up; /* closes the connection at each command */
    const char *hello;    /* sent as the reply to HELLO, unless NULL */
    atomic_uint locks;
};

static struct server servers[2];

static void write_all(int fd, const struct hf_buf *bytes)
{
    for (size_t done = 0; done < bytes->size;) {
        ssize_t sent =
            send(fd, bytes->data + done, bytes->size - done, MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        done += (size_t)sent;
    }
}

static void answer_hello(const struct server *server, struct hf_buf *out)
{
    const struct hf_mux_hello hello = {
        .version = HF_PROTOCOL_VERSION,
        .cluster = hf_bytes_of("c1"),
        .node = 1,
        .leader = 1,
        .address = hf_bytes_of(""),
    };

    if (server->hello)
        hf_buf_raw(out, server->hello, strlen(server->hello));
    else
        hf_mux_hello_encode(&hello, out);
}

static void execute(struct server *server, const struct hf_mux_request *request,
                    struct hf_buf *out)
{
    struct hf_result granted = {.token = atomic_load(&server->locks)};
    struct hf_mux_reply reply = {.id = request->id, .session = 7, .age_ms = -1};
    struct hf_buf result = {0};

    hf_command_encode_result(&granted, &result);
    reply.result = (struct hf_bytes){result.data, result.size};
    hf_mux_reply_encode(&reply, request->verb, out);
    hf_buf_fini(&result);
}

/* Answer one request. Returns false if the connection is to be closed. */
static bool serve_message(struct server *server, struct connection *connection,
                          const struct hf_resp_message *message,
                          struct hf_buf *out)
{
    struct hf_mux_request request;
    const char *cause;

    if (!connection->has_hello) {
        connection->has_hello = true;
        answer_hello(server, out);
        return true;
    }
    if (hf_mux_request_decode(&request, message, &cause))
        return false;
    if (request.verb == HF_VERB_DO) {
        atomic_fetch_add(&server->locks, 1);
        if (atomic_load(&server->hangs_up))
            return false;
    }
    if (request.verb != HF_VERB_OPEN || !atomic_load(&server->stalls))
        execute(server, &request, out);
    return true;
}

static void close_connection(struct connection *connection)
{
    hf_resp_reader_fini(&connection->reader);
    (void)close(connection->fd);
    *connection = (struct connection){0};
}

static void serve_connection(struct server *server,
                             struct connection *connection)
{
    uint8_t input[READ_SIZE];
    ssize_t size = recv(connection->fd, input, sizeof(input), 0);
    struct hf_resp_message message;
    struct hf_buf out = {0};
    bool open = size > 0;

    if (open)
        open = !hf_resp_reader_feed(&connection->reader, input, (size_t)size);
    while (open && hf_resp_reader_next(&connection->reader, &message) ==
                       HF_RESP_MESSAGE)
        open = serve_message(server, connection, &message, &out);
    if (open)
        open = !hf_resp_reader_keep(&connection->reader);
    write_all(connection->fd, &out);
    hf_buf_fini(&out);
    if (!open)
        close_connection(connection);
}

static void accept_connection(struct server *server)
{
    struct connection *connection = server->connections;

    while (connection->fd > 0)
        connection++;
    connection->fd = accept(server->listener, NULL, NULL);
    hf_resp_reader_init(&connection->reader, true, HF_PROTOCOL_LIMITS);
}

static void *server_main(void *arg)
{
    struct server *server = arg;

    while (!atomic_load(&server->stop)) {
        struct pollfd fds[CONNECTIONS + 1] = {
            {.fd = server->listener, .events = POLLIN}};

        for (unsigned i = 0; i < CONNECTIONS; i++)
            fds[i + 1] = (struct pollfd){.fd = server->connections[i].fd > 0
                                                   ? server->connections[i].fd
                                                   : -1,
                                         .events = POLLIN};
        if (poll(fds, CONNECTIONS + 1, 10) <= 0)
            continue;
        for (unsigned i = 0; i < CONNECTIONS; i++)
            if (fds[i + 1].revents)
                serve_connection(server, &server->connections[i]);
        if (fds[0].revents)
            accept_connection(server);
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        if (server->connections[i].fd > 0)
            close_connection(&server->connections[i]);
    (void)close(server->listener);
    return NULL;
}

static void start_server(struct server *server)
{
    server->listener = hf_test_listen(&server->port);
    assert_true(server->listener >= 0);
    assert_int_equal(pthread_create(&server->thread, NULL, server_main, server),
                     0);
}

static void stop_server(struct server *server)
{
    if (server->port == 0)
        return;
    atomic_store(&server->stop, true);
    (void)pthread_join(server->thread, NULL);
    server->port = 0;
}

static int tear_down(void **state)
{
    (void)state;
    stop_server(&servers[0]);
    stop_server(&servers[1]);
    return 0;
}

static const struct hf_env env = {.strategy = &hf_strategy_raft};
static struct hf_error failure;

__attribute__((format(printf, 2, 3))) static enum hf_err open_url(
    struct hf_client **client, const char *format, ...)
{
    struct hf_client_opts opts;
    char url[128];
    va_list args;

    hf_client_opts_init(&opts);
    opts.error = &failure;
    va_start(args, format);
    (void)vsnprintf(url, sizeof(url), format, args);
    va_end(args);
    return hf_client_open(url, &opts, &env, client);
}

static void expect_a_lock(struct hf_client *client)
{
    struct hf_lock *lock;

    assert_int_equal(hf_acquire(client, hf_key_of("a"), NULL, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static void opens_and_locks(void **state)
{
    struct hf_client *client;
    uint32_t caps;

    (void)state;
    start_server(&servers[0]);
    assert_int_equal(open_url(&client, "raft://127.0.0.1:%d", servers[0].port),
                     HF_OK);
    caps = hf_caps(client);
    assert_int_equal(caps & HF_CAP_FAILOVER_SAFE, HF_CAP_FAILOVER_SAFE);
    assert_int_equal(caps & HF_CAP_DURABLE, HF_CAP_DURABLE);
    for (unsigned i = 0; i < 100; i++)
        expect_a_lock(client);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_int_equal(atomic_load(&servers[0].locks), 200);
}

static void resolves_names(void **state)
{
    struct hf_client *client;

    (void)state;
    start_server(&servers[0]);
    assert_int_equal(open_url(&client, "raft://localhost:%d", servers[0].port),
                     HF_OK);
    expect_a_lock(client);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_int_equal(open_url(&client, "raft://no.such.host.invalid:%d", 1),
                     HF_EUNAVAIL);
    assert_non_null(
        strstr(failure.text, "no.such.host.invalid:1: cannot resolve"));
}

/* ---- Names that take long ------------------------------------------------*/

static atomic_bool names_hang;
static atomic_uint lookups, answers;

static int (*resolve)(const char *, const char *, const struct addrinfo *,
                      struct addrinfo **);

static void find_resolver(void)
{
    *(void **)&resolve = dlsym(RTLD_NEXT, "getaddrinfo");
}

/* This function is called instead of that of libc, whose parameters have
 * reserved names. While `names_hang`, it does not return.
 * NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name). */
int getaddrinfo(const char *host, const char *port,
                const struct addrinfo *hints, struct addrinfo **found)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int error;

    (void)pthread_once(&once, find_resolver);
    atomic_fetch_add(&lookups, 1);
    while (atomic_load(&names_hang))
        (void)poll(NULL, 0, 1);
    error = resolve(host, port, hints, found);
    atomic_fetch_add(&answers, 1);
    return error;
}

static void on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    (void)lock;
    if (event == HF_LOCK_EVENT_LOST)
        atomic_store((atomic_bool *)arg, true);
}

/* The node is gone for good, and the name server hangs. */
static void a_loss_is_reported_although_names_hang(void **state)
{
    atomic_bool is_lost = false;
    struct hf_lock_opts opts;
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    start_server(&servers[0]);
    assert_int_equal(open_url(&client, "raft://localhost:%d", servers[0].port),
                     HF_OK);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 1000;
    opts.renew = true;
    opts.on_event = on_lock_event;
    opts.arg = &is_lost;
    assert_int_equal(hf_acquire(client, hf_key_of("a"), &opts, &lock), HF_OK);
    atomic_store(&names_hang, true);
    stop_server(&servers[0]);
    while (!atomic_load(&is_lost))
        (void)poll(NULL, 0, 10);
    assert_true(atomic_load(&lookups) > 1);
    hf_lock_free(lock);
    (void)hf_close(client, 0); /* does not wait for the name either */
    atomic_store(&names_hang, false);
}

static void known_addresses_are_used_while_names_hang(void **state)
{
    struct hf_client *client;

    (void)state;
    start_server(&servers[0]);
    start_server(&servers[1]);
    assert_int_equal(open_url(&client, "raft://localhost:%d,localhost:%d",
                              servers[0].port, servers[1].port),
                     HF_OK);
    /* The client is open as soon as one of the two names is resolved. */
    while (atomic_load(&answers) < 2)
        (void)poll(NULL, 0, 1);
    atomic_store(&names_hang, true);
    for (unsigned i = 0; i < 4; i++) {
        atomic_store(&servers[i % 2].hangs_up, true);
        expect_a_lock(client);
        atomic_store(&servers[i % 2].hangs_up, false);
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
    atomic_store(&names_hang, false);
}

static void a_slow_name_does_not_stop_another(void **state)
{
    struct hf_client *client;

    (void)state;
    start_server(&servers[0]);
    atomic_store(&names_hang, true);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(open_url(&client, "raft://localhost:1,127.0.0.1:%d",
                                  servers[0].port),
                         HF_OK);
        assert_int_equal(hf_close(client, 1000), HF_OK);
    }
    atomic_store(&names_hang, false);
}

static void opens_in_the_background(void **state)
{
    struct hf_client *client;
    struct hf_future *future = NULL;
    struct hf_listener listener = {.future = &future};
    enum hf_err err = HF_OK;
    char url[64];

    (void)state;
    start_server(&servers[0]);
    (void)snprintf(url, sizeof(url), "raft://127.0.0.1:%d", servers[0].port);
    assert_int_equal(hf_client_open_start(url, NULL, &env, &client, listener),
                     HF_OK);
    while (hf_future_wait(future, 1000, &err) == HF_ETIMEDOUT)
        ;
    assert_int_equal(err, HF_OK);
    hf_future_free(future);
    expect_a_lock(client);
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

static void names_a_node_that_refuses(void **state)
{
    struct hf_client *client;

    (void)state;
    assert_int_equal(open_url(&client, "raft://127.0.0.1:1,[::1]:1"),
                     HF_EUNAVAIL);
    assert_non_null(strstr(failure.text, "127.0.0.1:1: "));
    assert_non_null(strstr(failure.text, "[::1]:1: "));
}

static void tries_the_next_node(void **state)
{
    (void)state;
    start_server(&servers[0]);
    for (unsigned i = 0; i < 8; i++) { /* clients begin with a random node */
        struct hf_client *client;

        assert_int_equal(open_url(&client, "raft://127.0.0.1:1,127.0.0.1:%d",
                                  servers[0].port),
                         HF_OK);
        assert_int_equal(hf_close(client, 1000), HF_OK);
    }
}

static void reports_a_cluster_without_a_majority(void **state)
{
    struct hf_client *client;

    (void)state;
    atomic_store(&servers[0].stalls, true);
    start_server(&servers[0]);
    assert_int_equal(open_url(&client, "raft://127.0.0.1:%d", servers[0].port),
                     HF_EUNAVAIL);
    assert_non_null(strstr(failure.text, "fewer than a majority"));
}

static void reports_another_kind_of_server(void **state)
{
    struct hf_client *client;

    (void)state;
    servers[0].hello = "-ERR unknown command `HELLO`\r\n";
    start_server(&servers[0]);
    assert_int_not_equal(
        open_url(&client, "raft://127.0.0.1:%d", servers[0].port), HF_OK);
    assert_non_null(strstr(failure.text, "127.0.0.1:"));
}

static void continues_at_another_node(void **state)
{
    struct hf_client *client;

    (void)state;
    start_server(&servers[0]);
    start_server(&servers[1]);
    assert_int_equal(open_url(&client, "raft://127.0.0.1:%d,127.0.0.1:%d",
                              servers[0].port, servers[1].port),
                     HF_OK);
    for (unsigned i = 0; i < 10; i++) {
        struct server *down = &servers[i % 2];

        atomic_store(&down->hangs_up, true);
        expect_a_lock(client);
        atomic_store(&down->hangs_up, false);
        expect_a_lock(client);
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

/* The values together are larger than what a socket takes at once. */
static void sends_large_values(void **state)
{
    enum {
        COUNT = 200
    };
    static char value[HF_VALUE_MAX];
    struct hf_lock_opts opts;
    struct hf_client *client;
    struct hf_future *futures[COUNT];
    struct hf_lock *locks[COUNT];

    (void)state;
    start_server(&servers[0]);
    assert_int_equal(open_url(&client, "raft://127.0.0.1:%d", servers[0].port),
                     HF_OK);
    hf_lock_opts_init(&opts);
    opts.renew = false;
    opts.value = (struct hf_bytes){value, sizeof(value)};
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(hf_acquire_start(client, hf_key_of("a"), &opts,
                                          &locks[i], NULL, NULL, &futures[i]),
                         HF_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        enum hf_err err = HF_OK;

        while (hf_future_wait(futures[i], 1000, &err) == HF_ETIMEDOUT)
            ;
        assert_int_equal(err, HF_OK);
        hf_future_free(futures[i]);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(hf_close(client, 1000), HF_OK);
}

#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(opens_and_locks),
        CASE(resolves_names),
        CASE(a_loss_is_reported_although_names_hang),
        CASE(known_addresses_are_used_while_names_hang),
        CASE(a_slow_name_does_not_stop_another),
        CASE(opens_in_the_background),
        CASE(names_a_node_that_refuses),
        CASE(tries_the_next_node),
        CASE(reports_a_cluster_without_a_majority),
        CASE(reports_another_kind_of_server),
        CASE(continues_at_another_node),
        CASE(sends_large_values),
    };

    return hf_test_main("raft_sockets", cases, HF_TEST_COUNT(cases), 0);
}
