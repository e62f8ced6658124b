/* The connections of holdfastd, over sockets on the loopback interface: limits
 * of output, and what a listener does without descriptors or memory. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"
#include "daemon/listener.h"
#include "lib/alloc.h"
#include "lib/loopback.h"
#include "lib/runner.h"

#define UNSENT_MAX 1000000
#define PIECE 10000
#define CLIENTS 3
#define REFUSAL "-LIMIT no more\r\n"

static uv_loop_t loop;
static struct hf_streams streams;
static struct hf_listener listener;
static struct hf_stream *accepted[CLIENTS];
static unsigned accepted_count, refused_count, ended;

static void on_accept(struct hf_listener *from, struct hf_stream *stream)
{
    assert_ptr_equal(from, &listener);
    assert_true(accepted_count < CLIENTS);
    accepted[accepted_count++] = stream;
}

static void on_refused(struct hf_listener *from)
{
    assert_ptr_equal(from, &listener);
    refused_count++;
}

static void on_data(struct hf_stream *stream, const void *data, size_t size)
{
    (void)stream;
    (void)data;
    (void)size;
}

static void on_stream_end(struct hf_stream *stream)
{
    (void)stream;
    hf_listener_forget(&listener);
    ended++;
}

static const struct hf_stream_kind kind = {
    .on_data = on_data,
    .on_end = on_stream_end,
    .unsent_max = UNSENT_MAX,
};

static int set_up(void **state)
{
    char text[HF_ADDRESS_TEXT];
    struct hf_address address;
    struct hf_error error;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(hf_streams_init(&streams, &loop), HF_OK);
    listener = (struct hf_listener){.streams = &streams,
                                    .kind = &kind,
                                    .on_accept = on_accept,
                                    .on_refused = on_refused,
                                    .refusal = REFUSAL,
                                    .max = CLIENTS};
    (void)snprintf(text, sizeof(text), "127.0.0.1:%d", hf_test_free_port());
    assert_int_equal(hf_address_parse(text, &address, &error), HF_OK);
    assert_int_equal(hf_listener_open(&listener, &address, &error), HF_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_listener_close(&listener);
    hf_streams_close_all(&streams);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    hf_streams_fini(&streams);
    return uv_loop_close(&loop);
}

static int connect_client(void)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof(address);
    int fd;

    assert_int_equal(
        getsockname(listener.fd, (struct sockaddr *)&address, &size), 0);
    fd = hf_test_connect(ntohs(address.sin_port));
    assert_true(fd >= 0);
    return fd;
}

static void await_accepted(unsigned count)
{
    while (accepted_count < count)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* Wait until the listener has sent REFUSAL and closed the connection. */
static void await_refused(int fd)
{
    char text[sizeof(REFUSAL)] = "";
    size_t size = 0;
    ssize_t more = 1;

    while (more != 0) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        more = recv(fd, text + size, sizeof(text) - size, MSG_DONTWAIT);
        size += more > 0 ? (size_t)more : 0;
    }
    assert_string_equal(text, REFUSAL);
}

static void allow_descriptors(rlim_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The peer is a process that has stopped: its kernel acknowledges, but nobody
 * reads. */
static void output_to_a_stopped_peer_is_limited(void **state)
{
    char *piece = calloc(1, PIECE);
    int fd = connect_client();
    unsigned pieces = 0;

    (void)state;
    await_accepted(1);
    while (hf_dlist_is_empty(&streams.failed) && pieces < 10000) {
        hf_stream_send(accepted[0], piece, PIECE);
        assert_true(hf_stream_unsent(accepted[0]) <= UNSENT_MAX);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        pieces++;
    }
    assert_true(pieces < 10000);
    hf_stream_send(accepted[0], piece, PIECE);
    assert_true(hf_stream_unsent(accepted[0]) <= UNSENT_MAX);
    assert_int_equal(ended, 0);
    hf_streams_reap(&streams);
    assert_int_equal(ended, 1);
    (void)close(fd);
    free(piece);
}

static void output_within_the_limit_arrives(void **state)
{
    static char sent[UNSENT_MAX], got[UNSENT_MAX];
    int fd = connect_client();
    size_t size = 0;

    (void)state;
    await_accepted(1);
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (char)(i * 7 + i / 251);
    hf_stream_send(accepted[0], sent, sizeof(sent));
    while (size < sizeof(got)) {
        ssize_t more = recv(fd, got + size, sizeof(got) - size, MSG_DONTWAIT);

        (void)uv_run(&loop, UV_RUN_NOWAIT);
        size += more > 0 ? (size_t)more : 0;
    }
    assert_memory_equal(sent, got, sizeof(sent));
    assert_int_equal(hf_stream_unsent(accepted[0]), 0);
    (void)close(fd);
}

/* The process may not have any descriptor, not even the spare one: nothing can
 * be accepted, and the loop must not spin or stop. */
static void connections_wait_until_there_is_a_descriptor(void **state)
{
    int fds[CLIENTS];

    (void)state;
    for (unsigned i = 0; i < CLIENTS; i++)
        fds[i] = connect_client();
    allow_descriptors(0);
    for (unsigned i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(accepted_count, 0);
    allow_descriptors(1024);
    await_accepted(CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++)
        (void)close(fds[i]);
}

/* All descriptors but the spare one are in use. */
static void connections_are_closed_without_a_descriptor(void **state)
{
    int fds[CLIENTS];
    int lowest;

    (void)state;
    for (unsigned i = 0; i < CLIENTS; i++)
        fds[i] = connect_client();
    lowest = dup(0);
    (void)close(lowest);
    allow_descriptors((rlim_t)lowest);
    for (unsigned i = 0; i < CLIENTS; i++)
        await_refused(fds[i]);
    assert_int_equal(accepted_count, 0);
    assert_int_equal(refused_count, CLIENTS);
    allow_descriptors(1024);
    fds[0] = connect_client();
    await_accepted(1);
    (void)close(fds[0]);
}

static void connections_are_closed_without_memory(void **state)
{
    int refused = connect_client(), served;

    (void)state;
    hf_alloc_fail(1, 1);
    await_refused(refused);
    assert_true(hf_alloc_failed());
    assert_int_equal(refused_count, 1);
    served = connect_client();
    await_accepted(1);
    (void)close(refused);
    (void)close(served);
}

static void connections_beyond_the_limit_are_closed(void **state)
{
    int fds[CLIENTS + 1];

    (void)state;
    for (unsigned i = 0; i < CLIENTS + 1; i++)
        fds[i] = connect_client();
    await_refused(fds[CLIENTS]);
    assert_int_equal(accepted_count, CLIENTS);
    (void)close(fds[0]);
    while (ended == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(listener.count, CLIENTS - 1);
    for (unsigned i = 1; i < CLIENTS + 1; i++)
        (void)close(fds[i]);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(output_to_a_stopped_peer_is_limited),
        CASE(output_within_the_limit_arrives),
        CASE(connections_wait_until_there_is_a_descriptor),
        CASE(connections_are_closed_without_a_descriptor),
        CASE(connections_are_closed_without_memory),
        CASE(connections_beyond_the_limit_are_closed),
    };

    return hf_test_main("daemon_streams", cases, HF_TEST_COUNT(cases), 0);
}
