/* contention.c - two threads compete for one lock.
 *
 * Each thread has its own client, as two programs would. One takes the lock and
 * works; the other waits in the queue, and the release grants it the lock. The
 * last line shows the purpose of fencing tokens: a store that has seen a token
 * refuses every smaller one. */
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct timespec start;

/* The state of a fenced store: the largest token it has seen. */
static uint64_t largest_token;

static void report(const char *who, const char *what)
{
    struct timespec now;
    double ms;

    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (double)(now.tv_sec - start.tv_sec) * 1e3 +
         (double)(now.tv_nsec - start.tv_nsec) / 1e6;
    printf("%7.1f ms  %-6s %s\n", ms, who, what);
}

static void fail(const char *who, const char *what, enum hf_err err)
{
    fprintf(stderr, "%s: %s: %s (%s)\n", who, what, hf_err_text(err),
            hf_err_name(err));
    exit(1);
}

static void work(const char *who, struct hf_lock *lock)
{
    const struct timespec half_a_second = {.tv_nsec = 500000000};
    char line[80];

    snprintf(line, sizeof(line), "has the lock, with token %llu, for %u ms",
             (unsigned long long)hf_lock_token(lock),
             hf_lock_remaining_ms(lock));
    report(who, line);
    nanosleep(&half_a_second, NULL);

    /* Check, then write with the token: the store decides. */
    if (hf_lock_valid_for(lock, 0) && hf_lock_token(lock) > largest_token) {
        largest_token = hf_lock_token(lock);
        report(who, "wrote; the store remembers its token");
    }
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)lock;
    if (event == HF_LOCK_EVENT_WAITING)
        report(arg, "waits in the queue");
    if (event == HF_LOCK_EVENT_LOST)
        report(arg, "lost the lock");
}

static void *contend(void *arg)
{
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char *who = arg;
    enum hf_err err = hf_open("memory:demo", NULL, &client);

    if (err)
        fail(who, "open", err);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 2000;
    opts.note = who;
    opts.on_event = on_event;
    opts.arg = who;
    report(who, "requests the lock on 'nightly'");
    err = hf_acquire(client, hf_key_of("nightly"), &opts, &lock);
    if (err)
        fail(who, "lock", err);
    work(who, lock);
    err = hf_release(lock);
    if (err)
        fail(who, "unlock", err);
    report(who, "released the lock");
    hf_lock_free(lock);
    hf_close(client, 1000);
    return NULL;
}

int main(void)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    static char first[] = "first", second[] = "second";
    pthread_t one, two;

    clock_gettime(CLOCK_MONOTONIC, &start);
    if (pthread_create(&one, NULL, contend, first))
        return 1;
    nanosleep(&moment, NULL);
    if (pthread_create(&two, NULL, contend, second))
        return 1;
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    printf("The store refuses a late write with token %llu: it has seen "
           "%llu.\n",
           (unsigned long long)(largest_token - 1),
           (unsigned long long)largest_token);
    return 0;
}
