/* A thousand waiters are served in order. An arena admits as many clients as it
 * has slots, and one more client is refused. */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"
#include "lib/recording.h"
#include "lib/site.h"
#include "strategy/file/arena.h"

#define CROWD 1000

static struct {
    atomic_uint count;
    unsigned numbers[CROWD];
} * served;

static int set_up(void **state)
{
    const struct rlimit wanted = {4096, 4096}; /* about six fds per client */
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files))
        return -1;
    if (files.rlim_cur < wanted.rlim_cur) {
        files.rlim_cur = wanted.rlim_cur;
        if (setrlimit(RLIMIT_NOFILE, &files))
            hf_test_skip("a process may not have 4096 descriptors");
    }
    served = hf_child_share(sizeof(*served));
    recorded_init(true);
    return hf_site_set_up(state);
}

/* ---- Waiters ------------------------------------------------------------*/

/* One process of the crowd: its clients, and the number of claims of each. */
struct party {
    unsigned first; /* number of the party's first claim in the queue */
    unsigned clients;
    unsigned claims; /* of each client */
    unsigned left;   /* claims that are not served yet */
};

struct claim {
    struct party *party;
    unsigned number;
    struct hf_lock *lock;
    struct hf_client *client;
};

static void on_unlocked(enum hf_err err, void *arg)
{
    struct claim *claim = arg;

    assert_int_equal(err, HF_OK);
    hf_lock_free(claim->lock);
    claim->party->left--;
}

static void on_granted(enum hf_err err, void *arg)
{
    struct claim *claim = arg;

    assert_int_equal(err, HF_OK);
    served->numbers[atomic_fetch_add(&served->count, 1)] = claim->number;
    assert_int_equal(recorded_release_start(claim->client, claim->lock,
                                            on_unlocked, claim, NULL),
                     HF_OK);
}

static void process_client(struct hf_client *client)
{
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

    assert_int_equal(poll(&fd, 1, -1), 1);
    assert_int_equal(hf_process(client), HF_OK);
}

/* The key is held, so the claim enters the queue. The first attempt may find
 * the arena busy, so process the client until the claim has a position. */
static void queue_claim(struct claim *claim, struct hf_client *client)
{
    struct hf_lock_opts opts = hf_site_wait_opts();

    opts.idle = true;
    assert_int_equal(hf_lock_new(client, hf_key_of("k"), &opts, &claim->lock),
                     HF_OK);
    claim->client = client;
    assert_int_equal(recorded_lock_acquire_start(client, claim->lock,
                                                 on_granted, claim, NULL),
                     HF_OK);
    while (hf_lock_position(claim->lock) == 0)
        process_client(client);
    recorded_set_queued(claim->lock);
}

static void poll_client(int epoll, struct hf_client *client)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, hf_fd(client), &event), 0);
}

/* One thread processes all clients until all claims are served. */
static void party_main(void *arg)
{
    struct party *party = arg;
    struct claim *claims = calloc(party->left, sizeof(*claims));
    struct hf_client *clients[CROWD] = {NULL};
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    for (unsigned i = 0; i < party->clients; i++) {
        clients[i] = hf_site_open();
        poll_client(epoll, clients[i]);
    }
    for (unsigned i = 0; i < party->left; i++) {
        claims[i].party = party;
        claims[i].number = party->first + i;
        queue_claim(&claims[i], clients[i / party->claims]);
    }
    while (party->left > 0) {
        assert_int_equal(epoll_wait(epoll, &event, 1, -1), 1);
        assert_int_equal(hf_process(event.data.ptr), HF_OK);
    }
    for (unsigned i = 0; i < party->clients; i++)
        assert_int_equal(hf_close(clients[i], HF_TEST_TIMEOUT_MS), HF_OK);
    free(claims);
    close(epoll);
}

/* Start `processes` processes, each with `clients` clients that make `claims`
 * claims each, or fewer in a slow build. Hold the key until all claims are in
 * the queue, then release it, and check that the claims are granted in
 * order. */
static void expect_fifo_order(unsigned processes, unsigned clients,
                              unsigned claims)
{
    unsigned size = clients * claims / hf_test_slowness();
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    pid_t pids[16];

    assert_int_equal(
        recorded_acquire_fifo(client, hf_key_of("k"), &opts, &lock), HF_OK);
    for (unsigned i = 0; i < processes; i++) {
        struct party party = {.first = i * size,
                              .clients = (size + claims - 1) / claims,
                              .claims = claims,
                              .left = size};

        pids[i] = hf_child_start(party_main, &party);
        hf_site_await_waiters(client, "k", (i + 1) * size);
    }
    assert_int_equal(recorded_release(client, lock), HF_OK);
    for (unsigned i = 0; i < processes; i++)
        hf_child_join(pids[i]);
    assert_int_equal(served->count, processes * size);
    for (unsigned i = 0; i < processes * size; i++)
        assert_int_equal(served->numbers[i], i);
    assert_true(recording_grants() >= processes * size + 1);
    assert_int_equal(recorded_check("case"), 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void thousand_waiting_clients_are_served_in_order(void **state)
{
    (void)state;
    expect_fifo_order(5, CROWD / 5, 1);
}

static void thousand_claims_of_four_clients_are_served_in_order(void **state)
{
    (void)state;
    expect_fifo_order(4, 1, CROWD / 4);
}

/* ---- The limit ----------------------------------------------------------*/

#define TENANTS 8
#define CLIENTS (HF_ARENA_SLOTS / TENANTS) /* clients of each tenant */

/* A process that has many clients, and executes one-letter commands: "u" uses
 * two of its clients, "c" closes one. */
struct tenant {
    pid_t pid;
    int commands; /* pipe to the process */
    int replies;  /* pipe from the process: a byte when its clients are
                     open, and one after each command */
};

static void lock_once(struct hf_client *client)
{
    struct hf_lock *lock;

    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static void tenant_main(void *arg)
{
    const int *pipes =
        arg; /* reads commands from the first, writes replies to the last */
    struct hf_client *clients[CLIENTS];
    unsigned count = CLIENTS;
    char command = 'o';

    for (unsigned i = 0; i < count; i++)
        clients[i] = hf_site_open();
    do {
        if (command == 'u') {
            lock_once(clients[0]);
            lock_once(clients[count - 1]);
        } else if (command == 'c') {
            assert_int_equal(hf_close(clients[--count], HF_TEST_TIMEOUT_MS),
                             HF_OK);
        }
        assert_int_equal(write(pipes[3], &command, 1), 1);
    } while (read(pipes[0], &command, 1) == 1);
}

static void start_tenant(struct tenant *tenant)
{
    int pipes[4];

    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(pipe2(pipes + 2, O_CLOEXEC), 0);
    tenant->pid = hf_child_start(tenant_main, pipes);
    tenant->commands = pipes[1];
    tenant->replies = pipes[2];
    close(pipes[0]);
    close(pipes[3]);
}

/* Wait for a reply. A dead tenant does not reply, so the case fails. */
static void await_reply(const struct tenant *tenant)
{
    char command;

    assert_int_equal(read(tenant->replies, &command, 1), 1);
}

static void send_command(const struct tenant *tenant, char command)
{
    assert_int_equal(write(tenant->commands, &command, 1), 1);
    await_reply(tenant);
}

static void expect_full(void)
{
    hf_site_refuse("locks", "", HF_ELIMIT, hf_site_path("locks"));
}

/* Check that exactly `count` more clients can be opened. */
static void expect_room(unsigned count)
{
    struct hf_client *clients[2 * CLIENTS];

    for (unsigned i = 0; i < count; i++) {
        clients[i] = hf_site_open();
        lock_once(clients[i]);
    }
    expect_full();
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(hf_close(clients[i], HF_TEST_TIMEOUT_MS), HF_OK);
}

static void client_above_the_limit_is_refused_without_harm(void **state)
{
    struct tenant tenants[TENANTS];

    (void)state;
    for (unsigned i = 0; i < TENANTS; i++)
        start_tenant(&tenants[i]);
    for (unsigned i = 0; i < TENANTS; i++)
        await_reply(&tenants[i]);
    expect_full();
    for (unsigned i = 0; i < TENANTS; i++)
        send_command(&tenants[i], 'u');
    send_command(&tenants[0], 'c');
    expect_room(1);
    hf_child_kill(tenants[1].pid);
    expect_room(1 + CLIENTS);
    send_command(&tenants[0], 'u');
    send_command(&tenants[TENANTS - 1], 'u');
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(thousand_waiting_clients_are_served_in_order),
        CASE(thousand_claims_of_four_clients_are_served_in_order),
        CASE(client_above_the_limit_is_refused_without_harm),
    };

    return hf_test_main("many_clients", cases, HF_TEST_COUNT(cases), 1);
}
