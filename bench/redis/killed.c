/* killed.c - how long does it take until the lock of a killed holder is granted
 * to a waiter?
 *
 * A process holds a lock and renews it, and another process waits for it. The
 * time is measured from the kill until the waiter has the lock. The ttl of
 * holdfast is equal to the lease time of Redisson. The holders of all libraries
 * are killed at the same time. After that there are only waits, so the
 * libraries do not disturb one another. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "redis/redis.h"

#define SETTLE_MS 500 /* time for the waiters to join the queue */

enum library {
    OURS,
    LOCK,
    FAIR,
    COUNT
};

static const char *const names[COUNT] = {"holdfast", "Redisson RLock",
                                         "Redisson RFairLock"};
static struct bench_samples after_ms[COUNT];

static struct hf_lock *take_lock(struct hf_client *client)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = LEASE_MS;
    opts.wait_ms = HF_FOREVER;
    opts.renew = true;
    bench_check("hf_acquire",
                hf_acquire(client, hf_key_of("killed"), &opts, &lock));
    return lock;
}

static pid_t start_holder(void)
{
    int held[2];
    char byte;
    pid_t pid;

    if (pipe(held))
        bench_fail("cannot create a pipe");
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)take_lock(bench_redis_open());
        (void)!write(held[1], "+", 1);
        for (;;)
            (void)pause();
    }
    (void)close(held[1]);
    if (pid < 0 || read(held[0], &byte, 1) != 1)
        bench_fail("cannot start a holder");
    (void)close(held[0]);
    return pid;
}

static void *waiter_main(void *granted)
{
    struct hf_client *client = bench_redis_open();
    struct hf_lock *lock = take_lock(client);

    *(uint64_t *)granted = bench_now();
    bench_check("hf_release", hf_release(lock));
    hf_lock_free(lock);
    bench_close(client);
    return NULL;
}

void bench_killed_run(struct bench *bench, unsigned round)
{
    bool redisson = bench_redis.redisson.pid > 0;
    struct bench_peer holder = {0};
    double granted[2];
    uint64_t granted_at, killed;
    pid_t ours;
    pthread_t thread;

    bench_progress(bench, round, "killed holders");
    if (redisson) {
        bench_redisson_start(&holder, "hold");
        bench_peer_expect(&holder, "held");
    }
    ours = start_holder();
    if (redisson) {
        bench_peer_order(&bench_redis.redisson, "await");
        bench_peer_expect(&bench_redis.redisson, "waiting");
    }
    if (pthread_create(&thread, NULL, waiter_main, &granted_at))
        bench_fail("cannot start a thread");
    bench_sleep_ms(SETTLE_MS);
    killed = bench_now();
    (void)kill(ours, SIGKILL);
    (void)waitpid(ours, NULL, 0);
    if (redisson)
        bench_peer_kill(&holder);
    (void)pthread_join(thread, NULL);
    bench_add(&after_ms[OURS], (double)(granted_at - killed) / 1e6);
    if (!redisson)
        return;
    bench_peer_numbers(&bench_redis.redisson, granted, 2);
    bench_add(&after_ms[LOCK], (granted[0] - (double)killed) / 1e6);
    bench_add(&after_ms[FAIR], (granted[1] - (double)killed) / 1e6);
}

void bench_killed_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"what", "what", BENCH_TEXT}, {"lease ms", "lease_ms", 0},
        {"back after ms", "ms", 0},   {"least", "ms_least", 0},
        {"most", "ms_most", 0},       {NULL, NULL, 0},
    };
    struct bench_table table;

    bench_table_init(&table, "The lock of a killed holder in Redis",
                     "redis_killed", columns);
    for (int i = 0; i < (bench_redis.redisson.pid > 0 ? COUNT : OURS + 1);
         i++) {
        bench_table_text(&table, names[i]);
        bench_table_number(&table, LEASE_MS);
        bench_table_number(&table, bench_median(&after_ms[i]));
        bench_table_number(&table, bench_least(&after_ms[i]));
        bench_table_number(&table, bench_most(&after_ms[i]));
    }
    bench_table_print(bench, &table);
}
