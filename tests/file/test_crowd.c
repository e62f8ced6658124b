/* As many clients as there is room for: are all of them served, in order, and
 * what becomes of one more? */
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
    const struct rlimit wanted = {4096, 4096}; /* a client has about six */
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

/* One process of the crowd: its clients, and what each of them claims. */
struct party {
    unsigned first; /* number of its first claim; they queue in this order */
    unsigned clients;
    unsigned claims; /* of each client */
    unsigned left;   /* not yet served */
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
    assert_int_equal(recorded_unlock_start(claim->client, claim->lock,
                                           on_unlocked, claim, NULL),
                     HF_OK);
}

static void drive(struct hf_client *client)
{
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

    assert_int_equal(poll(&fd, 1, -1), 1);
    assert_int_equal(hf_process(client), HF_OK);
}

/* The key is held, so it gets into line; perhaps not at the first attempt. */
static void queue(struct claim *claim, struct hf_client *client)
{
    struct hf_lock_opts opts = hf_site_patient();

    opts.idle = true;
    assert_int_equal(hf_lock_new(client, hf_key_of("k"), &opts, &claim->lock),
                     HF_OK);
    claim->client = client;
    assert_int_equal(
        recorded_claim_start(client, claim->lock, on_granted, claim, NULL),
        HF_OK);
    while (hf_lock_position(claim->lock) == 0)
        drive(client);
    recorded_queued(claim->lock);
}

static void poll_client(int all, struct hf_client *client)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

    assert_int_equal(epoll_ctl(all, EPOLL_CTL_ADD, hf_fd(client), &event), 0);
}

/* One thread drives all of its clients until all of its claims are served. */
static void join_the_crowd(void *arg)
{
    struct party *party = arg;
    struct claim *claims = calloc(party->left, sizeof(*claims));
    struct hf_client *clients[CROWD] = {NULL};
    struct epoll_event event;
    int all = epoll_create1(EPOLL_CLOEXEC);

    for (unsigned i = 0; i < party->clients; i++) {
        clients[i] = hf_site_open();
        poll_client(all, clients[i]);
    }
    for (unsigned i = 0; i < party->left; i++) {
        claims[i].party = party;
        claims[i].number = party->first + i;
        queue(&claims[i], clients[i / party->claims]);
    }
    while (party->left > 0) {
        assert_int_equal(epoll_wait(all, &event, 1, -1), 1);
        assert_int_equal(hf_process(event.data.ptr), HF_OK);
    }
    for (unsigned i = 0; i < party->clients; i++)
        assert_int_equal(hf_close(clients[i], HF_TEST_PATIENCE_MS), HF_OK);
    free(claims);
    close(all);
}

/* Hold the key until everybody is in line, then let them have it. */
static void serve(unsigned processes, unsigned clients, unsigned claims)
{
    unsigned size = clients * claims / hf_test_slowness();
    struct hf_lock_opts opts = hf_site_patient();
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    pid_t pids[16];

    assert_int_equal(
        recorded_lock_in_line(client, hf_key_of("k"), &opts, &lock), HF_OK);
    for (unsigned i = 0; i < processes; i++) {
        struct party party = {.first = i * size,
                              .clients = (size + claims - 1) / claims,
                              .claims = claims,
                              .left = size};

        pids[i] = hf_child_start(join_the_crowd, &party);
        hf_site_await_waiters(client, "k", (i + 1) * size);
    }
    assert_int_equal(recorded_unlock(client, lock), HF_OK);
    for (unsigned i = 0; i < processes; i++)
        hf_child_join(pids[i]);
    assert_int_equal(served->count, processes * size);
    for (unsigned i = 0; i < processes * size; i++)
        assert_int_equal(served->numbers[i], i);
    assert_true(recording_grants() >= processes * size + 1);
    assert_int_equal(recorded_check("case"), 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_PATIENCE_MS), HF_OK);
}

static void thousand_clients_in_line_are_served_in_order(void **state)
{
    (void)state;
    serve(5, CROWD / 5, 1);
}

static void thousand_claims_of_four_clients_are_served_in_order(void **state)
{
    (void)state;
    serve(4, 1, CROWD / 4);
}

/* ---- Room ---------------------------------------------------------------*/

#define TENANTS 8
#define CLIENTS (HF_ARENA_SLOTS / TENANTS) /* of each tenant */

/* A process that has many clients and does what it is told, word by word. */
struct tenant {
    pid_t pid;
    int words;   /* to it */
    int answers; /* from it, one to each word */
};

static void use(struct hf_client *client)
{
    struct hf_lock *lock;

    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static void obey(void *arg)
{
    const int *pipes =
        arg; /* words come on the first, answers go to the last */
    struct hf_client *clients[CLIENTS];
    unsigned count = CLIENTS;
    char word = 'o';

    for (unsigned i = 0; i < count; i++)
        clients[i] = hf_site_open();
    do {
        if (word == 'u') {
            use(clients[0]);
            use(clients[count - 1]);
        } else if (word == 'c') {
            assert_int_equal(hf_close(clients[--count], HF_TEST_PATIENCE_MS),
                             HF_OK);
        }
        assert_int_equal(write(pipes[3], &word, 1), 1);
    } while (read(pipes[0], &word, 1) == 1);
}

static void start_tenant(struct tenant *tenant)
{
    int pipes[4];

    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(pipe2(pipes + 2, O_CLOEXEC), 0);
    tenant->pid = hf_child_start(obey, pipes);
    tenant->words = pipes[1];
    tenant->answers = pipes[2];
    close(pipes[0]);
    close(pipes[3]);
}

/* Who has died does not answer. */
static void await_answer(const struct tenant *tenant)
{
    char word;

    assert_int_equal(read(tenant->answers, &word, 1), 1);
}

static void tell(const struct tenant *tenant, char word)
{
    assert_int_equal(write(tenant->words, &word, 1), 1);
    await_answer(tenant);
}

static void expect_no_room(void)
{
    hf_site_refuse("locks", "", HF_ELIMIT, hf_site_path("locks"));
}

/* Exactly so many more clients fit. */
static void expect_room(unsigned count)
{
    struct hf_client *clients[2 * CLIENTS];

    for (unsigned i = 0; i < count; i++) {
        clients[i] = hf_site_open();
        use(clients[i]);
    }
    expect_no_room();
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(hf_close(clients[i], HF_TEST_PATIENCE_MS), HF_OK);
}

static void one_client_too_many_is_refused_and_harms_nobody(void **state)
{
    struct tenant tenants[TENANTS];

    (void)state;
    for (unsigned i = 0; i < TENANTS; i++)
        start_tenant(&tenants[i]);
    for (unsigned i = 0; i < TENANTS; i++)
        await_answer(&tenants[i]);
    expect_no_room();
    for (unsigned i = 0; i < TENANTS; i++)
        tell(&tenants[i], 'u');
    tell(&tenants[0], 'c');
    expect_room(1);
    hf_child_kill(tenants[1].pid);
    expect_room(1 + CLIENTS);
    tell(&tenants[0], 'u');
    tell(&tenants[TENANTS - 1], 'u');
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(thousand_clients_in_line_are_served_in_order),
        CASE(thousand_claims_of_four_clients_are_served_in_order),
        CASE(one_client_too_many_is_refused_and_harms_nobody),
    };

    return hf_test_main("crowd", cases, HF_TEST_COUNT(cases), 1);
}
