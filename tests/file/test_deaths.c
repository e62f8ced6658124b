/* The locks of a process are handed over when it dies, without waiting for the
 * lease, unless they were detached, adopted or inherited. Leases are longer
 * than a case takes, so a grant shows that no client waited for a lease to
 * expire. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/site.h"

#define MANY 80 /* more processes than a client watches */

struct shared {
    atomic_ullong token[MANY]; /* token granted to child i; 0: not yet */
    uint8_t nonce[HF_NONCE_SIZE];
    atomic_int helper; /* a process that a child forked */
};
static struct shared *shared;
static int pipe_ends[2];

static int set_up(void **state)
{
    shared = hf_child_share(sizeof(*shared));
    return hf_site_set_up(state);
}

static struct hf_lock_opts long_lease(uint32_t wait_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = HF_TEST_LONG_MS;
    opts.wait_ms = wait_ms;
    return opts;
}

static void await_kill(void)
{
    for (;;)
        pause();
}

static unsigned long long await_token(int child)
{
    const struct timespec delay = {.tv_nsec = 1000000};

    while (atomic_load(&shared->token[child]) == 0)
        nanosleep(&delay, NULL);
    return atomic_load(&shared->token[child]);
}

/* Child `number`, which holds `key` until it is killed. */
struct holder {
    int number;
    const char *key;
};

static struct hf_lock *take_key(struct hf_client *client,
                                const struct holder *holder)
{
    struct hf_lock_opts opts = long_lease(HF_FOREVER);
    struct hf_lock *lock;

    assert_int_equal(hf_acquire(client, hf_key_of(holder->key), &opts, &lock),
                     HF_OK);
    return lock;
}

static void hold_until_killed(void *arg)
{
    const struct holder *holder = arg;
    struct hf_lock *lock = take_key(hf_site_open(), holder);

    atomic_store(&shared->token[holder->number], hf_lock_token(lock));
    await_kill();
}

static pid_t start_holder(int number)
{
    struct holder holder = {number, "k"};

    return hf_child_start(hold_until_killed, &holder);
}

static void expect_try(struct hf_client *client, const char *key,
                       enum hf_err expected)
{
    struct hf_lock_opts opts = long_lease(0);
    struct hf_lock *lock = NULL;

    assert_int_equal(hf_acquire(client, hf_key_of(key), &opts, &lock),
                     expected);
    if (lock) {
        assert_int_equal(hf_release(lock), HF_OK);
        hf_lock_free(lock);
    }
}

static void close_site(struct hf_client *client)
{
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* Waiters are granted the key in order, with increasing tokens. The last waiter
 * watches a process that is a waiter when the watch starts, and the holder when
 * it dies. */
static void lock_of_a_dead_holder_goes_to_the_next_waiter(void **state)
{
    struct hf_client *client = hf_site_open();
    pid_t pids[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        pids[i] = start_holder(i);
        if (i == 0)
            (void)await_token(0);
        else
            hf_site_await_waiters(client, "k", (uint32_t)i);
    }
    hf_child_kill(pids[0]);
    assert_int_equal(await_token(1), shared->token[0] + 1);
    assert_int_equal(shared->token[2], 0);
    hf_child_kill(pids[1]);
    assert_int_equal(await_token(2), shared->token[0] + 2);
    hf_child_kill(pids[2]);
    expect_try(client, "k", HF_OK);
    close_site(client);
}

/* Nobody waits for the key, so the client that tries to take it has to notice
 * the death. It holds another key itself, which must not hide the lock of the
 * dead holder. */
static void lock_of_a_dead_holder_is_free(void **state)
{
    struct holder other = {1, "other"};
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock = take_key(client, &other);
    pid_t holder = start_holder(0);

    (void)state;
    (void)await_token(0);
    hf_child_kill(holder);
    expect_try(client, "k", HF_OK);
    hf_lock_free(lock);
    close_site(client);
}

static void second_waiter_is_granted_when_holder_and_first_waiter_die(
    void **state)
{
    struct hf_client *client = hf_site_open();
    pid_t holder = start_holder(0);
    pid_t first, second;

    (void)state;
    (void)await_token(0);
    first = start_holder(1);
    hf_site_await_waiters(client, "k", 1);
    second = start_holder(2);
    hf_site_await_waiters(client, "k", 2);
    hf_child_stop(first); /* so that `first` cannot reap the holder */
    hf_child_kill(holder);
    hf_child_kill(first);
    (void)await_token(2);
    assert_int_equal(shared->token[1], 0);
    hf_child_kill(second);
    close_site(client);
}

/* No client waits for the lock itself, so the client that waits until the key
 * is free has to notice the death. */
static void wait_until_free_ends_with_the_holder(void **state)
{
    struct hf_client *client = hf_site_open();
    pid_t holder = start_holder(0);
    struct hf_future *future;
    enum hf_freed freed;
    enum hf_err err;

    (void)state;
    (void)await_token(0);
    assert_int_equal(hf_wait_free_start(client, hf_key_of("k"), HF_FOREVER,
                                        &freed, NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_future_wait(future, 10, &err), HF_ETIMEDOUT);
    hf_child_kill(holder);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_int_equal(err, HF_OK);
    assert_int_equal(freed, HF_FREED_EXPIRED);
    hf_future_free(future);
    close_site(client);
}

/* The next client in the slot of a dead client releases the dead client's
 * locks. */
static void reused_slot_releases_the_locks_of_its_last_client(void **state)
{
    struct hf_client *client;
    pid_t holder = start_holder(0);

    (void)state;
    (void)await_token(0);
    hf_child_kill(holder);
    client = hf_site_open();
    expect_try(client, "k", HF_OK);
    close_site(client);
}

static bool count_info(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static unsigned count_listed(struct hf_client *client)
{
    unsigned count = 0;

    assert_int_equal(hf_list(client, hf_key_of(""), count_info, &count), HF_OK);
    return count;
}

/* Any client notices the death, not only one in the slot of the dead holder. */
static void lock_of_a_dead_holder_is_neither_listed_nor_read(void **state)
{
    struct hf_client *client = hf_site_open();
    struct holder other = {1, "l"};
    pid_t pids[2] = {start_holder(0),
                     hf_child_start(hold_until_killed, &other)};
    struct hf_info info;

    (void)state;
    (void)await_token(0);
    (void)await_token(1);
    assert_int_equal(count_listed(client), 2);
    hf_child_kill(pids[0]);
    assert_int_equal(count_listed(client), 1);
    hf_child_kill(pids[1]);
    assert_int_equal(hf_read(client, hf_key_of("l"), HF_LINEARIZABLE, &info),
                     HF_OK);
    assert_false(info.held);
    hf_info_fini(&info);
    assert_int_equal(count_listed(client), 0);
    close_site(client);
}

static void hold_and_detach(void *arg)
{
    struct hf_lock *lock = take_key(hf_site_open(), arg);

    assert_int_equal(hf_lock_detach(lock), HF_OK);
    atomic_store(&shared->token[0], hf_lock_token(lock));
    await_kill();
}

/* The death of its process does not release a detached lock: not when another
 * client tries to take the key, and not when a new client takes the slot. */
static void detached_lock_outlives_its_process(void **state)
{
    struct holder detached = {0, "k"};
    struct hf_client *client = hf_site_open();
    struct hf_client *next;
    pid_t pid = hf_child_start(hold_and_detach, &detached);

    (void)state;
    (void)await_token(0);
    hf_child_kill(pid);
    expect_try(client, "k", HF_EBUSY);
    next = hf_site_open();
    expect_try(next, "k", HF_EBUSY);
    close_site(next);
    close_site(client);
}

static void hold_and_publish(void *arg)
{
    struct hf_lock *lock = take_key(hf_site_open(), arg);

    hf_lock_nonce(lock, shared->nonce);
    atomic_store(&shared->token[0], hf_lock_token(lock));
    await_kill();
}

/* A lock that another process has renewed is in use there, so the death of the
 * first process does not release it. */
static void adopted_lock_outlives_the_first_process(void **state)
{
    struct holder first = {0, "k"};
    struct hf_lock_opts opts = long_lease(0);
    struct hf_client *adopter = hf_site_open();
    struct hf_client *other = hf_site_open();
    struct hf_lock *lock;
    pid_t pid = hf_child_start(hold_and_publish, &first);

    (void)state;
    (void)await_token(0);
    assert_int_equal(hf_lock_adopt(adopter, hf_key_of("k"), shared->nonce,
                                   shared->token[0], &opts, &lock),
                     HF_OK);
    assert_int_equal(hf_renew(lock, 0), HF_OK);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_child_kill(pid);
    expect_try(other, "k", HF_EBUSY);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_release(lock), HF_OK);
    expect_try(other, "k", HF_OK);
    hf_lock_free(lock);
    close_site(adopter);
    close_site(other);
}

/* A client that knows only the token, which is public, cannot renew the lock,
 * so its attempt does not detach the lock either. */
static void refused_renewal_detaches_no_lock(void **state)
{
    static const uint8_t nonce[HF_NONCE_SIZE] = {1};
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = long_lease(0);
    struct hf_lock *lock;
    pid_t pid = start_holder(0);

    (void)state;
    (void)await_token(0);
    assert_int_equal(hf_lock_adopt(client, hf_key_of("k"), nonce,
                                   shared->token[0], &opts, &lock),
                     HF_OK);
    assert_int_equal(hf_renew(lock, 0), HF_ENOTOWNER);
    hf_lock_free(lock);
    hf_child_kill(pid);
    expect_try(client, "k", HF_OK);
    close_site(client);
}

static void hold_and_fork(void *arg)
{
    struct hf_lock *lock = take_key(hf_site_open(), arg);
    pid_t helper = fork();

    if (helper == 0)
        await_kill();
    atomic_store(&shared->helper, helper);
    atomic_store(&shared->token[0], hf_lock_token(lock));
    await_kill();
}

/* A process that inherited the client's descriptors may use the lock. The lock
 * is handed over when that process has ended too. */
static void process_that_inherited_the_lock_keeps_it(void **state)
{
    struct holder first = {0, "k"};
    struct hf_client *client = hf_site_open();
    pid_t pid = hf_child_start(hold_and_fork, &first);
    pid_t waiter;

    (void)state;
    (void)await_token(0);
    waiter = start_holder(1);
    hf_site_await_waiters(client, "k", 1);
    hf_child_kill(pid);
    expect_try(client, "k", HF_EBUSY);
    assert_int_equal(shared->token[1], 0);
    assert_int_equal(kill(shared->helper, SIGKILL), 0);
    assert_int_equal(await_token(1), shared->token[0] + 1);
    hf_child_kill(waiter);
    close_site(client);
}

static void fork_and_wait(void *arg)
{
    struct hf_client *client = hf_site_open();
    pid_t helper = fork();

    if (helper == 0)
        await_kill();
    atomic_store(&shared->helper, helper);
    (void)take_key(client, arg);
    await_kill();
}

/* A dead waiter leaves the queue even if it is a zombie, and even if a process
 * that it forked is running. */
static void zombie_leaves_the_queue(void **state)
{
    struct holder first = {0, "k"}, second = {1, "k"};
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock = take_key(client, &first);
    pid_t zombie = hf_child_start(fork_and_wait, &first);
    pid_t waiter;

    (void)state;
    hf_site_await_waiters(client, "k", 1);
    waiter = hf_child_start(hold_until_killed, &second);
    hf_site_await_waiters(client, "k", 2);
    assert_int_equal(kill(zombie, SIGKILL), 0);
    hf_site_await_waiters(client, "k", 1);
    assert_int_equal(hf_release(lock), HF_OK);
    (void)await_token(1);
    assert_int_equal(kill(shared->helper, SIGKILL), 0);
    hf_child_kill(zombie);
    hf_child_kill(waiter);
    hf_lock_free(lock);
    close_site(client);
}

/* A release does not grant the key to a waiter that is a zombie and whose
 * forked child keeps its slot locked. */
static void zombie_is_not_granted_the_lock(void **state)
{
    struct holder first = {0, "k"};
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock = take_key(client, &first);
    pid_t zombie = hf_child_start(fork_and_wait, &first);
    siginfo_t end;

    (void)state;
    hf_site_await_waiters(client, "k", 1);
    assert_int_equal(kill(zombie, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)zombie, &end, WEXITED | WNOWAIT), 0);
    assert_int_equal(hf_release(lock), HF_OK);
    expect_try(client, "k", HF_OK);
    assert_int_equal(kill(shared->helper, SIGKILL), 0);
    hf_child_kill(zombie);
    hf_lock_free(lock);
    close_site(client);
}

/* A waiter does not have to poll to notice a death: its client's descriptor is
 * readable as soon as the holder is dead. */
static void death_of_the_holder_makes_the_descriptor_readable(void **state)
{
    struct hf_lock_opts opts = long_lease(HF_FOREVER);
    struct hf_client *client = hf_site_open();
    pid_t holder = start_holder(0);
    struct pollfd pollfd = {.fd = hf_fd(client), .events = POLLIN};
    struct hf_future *future;
    struct hf_lock *lock;
    enum hf_err err;

    (void)state;
    (void)await_token(0);
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, &future),
                     HF_OK);
    hf_site_await_waiters(client, "k", 1);
    hf_child_kill(holder);
    assert_int_equal(poll(&pollfd, 1, 0), 1);
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_int_equal(err, HF_OK);
    assert_int_equal(hf_lock_token(lock), shared->token[0] + 1);
    hf_future_free(future);
    hf_lock_free(lock);
    close_site(client);
}

/* Execute a program that inherits the lock, and exits at the end of its
 * stdin. */
static void hold_and_execute(void *arg)
{
    struct hf_client_opts opts;
    struct hf_client *client;
    struct hf_lock *lock;
    char url[512];

    hf_client_opts_init(&opts);
    opts.inherit = true;
    (void)snprintf(url, sizeof(url), "file:%s", hf_site_path("locks"));
    assert_int_equal(hf_open(url, &opts, &client), HF_OK);
    lock = take_key(client, arg);
    if (fork() == 0) {
        (void)dup2(pipe_ends[0], STDIN_FILENO);
        (void)close(pipe_ends[0]);
        (void)close(pipe_ends[1]);
        (void)execlp("cat", "cat", (char *)NULL);
        _exit(127);
    }
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
    atomic_store(&shared->token[0], hf_lock_token(lock));
    await_kill();
}

static void executed_program_keeps_the_lock(void **state)
{
    struct holder first = {0, "k"};
    struct hf_client *client = hf_site_open();
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(pipe_ends), 0);
    pid = hf_child_start(hold_and_execute, &first);
    (void)await_token(0);
    (void)close(pipe_ends[0]);
    hf_child_kill(pid);
    expect_try(client, "k", HF_EBUSY);
    (void)close(pipe_ends[1]);
    pid = start_holder(1);
    assert_int_equal(await_token(1), shared->token[0] + 1);
    hf_child_kill(pid);
    close_site(client);
}

/* One client waits for the locks of more processes than it can watch. */
static void client_that_waits_for_many_processes_notices_every_death(
    void **state)
{
    struct hf_lock_opts opts = long_lease(HF_FOREVER);
    struct hf_client *client = hf_site_open();
    struct hf_future *futures[MANY];
    struct hf_lock *locks[MANY];
    char keys[MANY][16];
    pid_t pids[MANY];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        struct holder holder = {i, keys[i]};

        (void)snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        pids[i] = hf_child_start(hold_until_killed, &holder);
        (void)await_token(i);
        assert_int_equal(hf_acquire_start(client, hf_key_of(keys[i]), &opts,
                                          &locks[i], NULL, NULL, &futures[i]),
                         HF_OK);
    }
    for (int i = 0; i < MANY; i++)
        hf_child_kill(pids[i]);
    for (int i = 0; i < MANY; i++) {
        enum hf_err err;

        assert_int_equal(hf_future_wait(futures[i], HF_FOREVER, &err), HF_OK);
        assert_int_equal(err, HF_OK);
        assert_true(hf_lock_token(locks[i]) > shared->token[i]);
        hf_future_free(futures[i]);
        hf_lock_free(locks[i]);
    }
    close_site(client);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(lock_of_a_dead_holder_goes_to_the_next_waiter),
        CASE(lock_of_a_dead_holder_is_free),
        CASE(second_waiter_is_granted_when_holder_and_first_waiter_die),
        CASE(wait_until_free_ends_with_the_holder),
        CASE(reused_slot_releases_the_locks_of_its_last_client),
        CASE(lock_of_a_dead_holder_is_neither_listed_nor_read),
        CASE(detached_lock_outlives_its_process),
        CASE(adopted_lock_outlives_the_first_process),
        CASE(refused_renewal_detaches_no_lock),
        CASE(process_that_inherited_the_lock_keeps_it),
        CASE(zombie_leaves_the_queue),
        CASE(zombie_is_not_granted_the_lock),
        CASE(executed_program_keeps_the_lock),
        CASE(death_of_the_holder_makes_the_descriptor_readable),
        CASE(client_that_waits_for_many_processes_notices_every_death),
    };

    return hf_test_main("deaths", cases, HF_TEST_COUNT(cases), 0);
}
