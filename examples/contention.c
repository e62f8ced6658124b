/* Two contenders meet at one lock.
 *
 * Each is a thread with a client of its own, as two programs would be. One
 * takes the lock and works; the other stands in line, and is granted the lock
 * in the very step that gives it back. A third call shows what the fence is
 * for: a store that has seen a token refuses every smaller one. */
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct timespec start;

/* A fenced store, in one variable: it remembers the largest token. */
static uint64_t largest_token;

static void say(const char *who, const char *what)
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
    say(who, line);
    nanosleep(&half_a_second, NULL);

    /* Check, then write with the token: the store has the last word. */
    if (hf_lock_valid_for(lock, 0) && hf_lock_token(lock) > largest_token) {
        largest_token = hf_lock_token(lock);
        say(who, "wrote; the store remembers its token");
    }
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)lock;
    if (event == HF_LOCK_EVENT_WAITING)
        say(arg, "must wait: it stands in line");
    if (event == HF_LOCK_EVENT_LOST)
        say(arg, "lost the lock");
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
    say(who, "asks for the lock on 'nightly'");
    err = hf_acquire(client, hf_key_of("nightly"), &opts, &lock);
    if (err)
        fail(who, "lock", err);
    work(who, lock);
    err = hf_release(lock);
    if (err)
        fail(who, "unlock", err);
    say(who, "gave the lock back");
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
    printf("A writer that comes late, with token %llu, is refused: %llu was "
           "seen.\n",
           (unsigned long long)(largest_token - 1),
           (unsigned long long)largest_token);
    return 0;
}
