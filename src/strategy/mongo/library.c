#include "strategy/mongo/library.h"

#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXIT_S 1

/* Those of all clients. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t none;
    unsigned count;
    pid_t pid; /* a child has none of its parent's threads */
} threads = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static void count_thread(int more)
{
    pthread_mutex_lock(&threads.mutex);
    threads.count += (unsigned)more;
    if (threads.count == 0)
        pthread_cond_broadcast(&threads.none);
    pthread_mutex_unlock(&threads.mutex);
}

bool hf_mongo_thread_start(void *(*run)(void *), void *arg)
{
    pthread_attr_t attributes;
    pthread_t thread;
    bool started;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    count_thread(1);
    started = pthread_create(&thread, &attributes, run, arg) == 0;
    pthread_attr_destroy(&attributes);
    if (!started)
        count_thread(-1);
    return started;
}

void hf_mongo_thread_ends(void)
{
    count_thread(-1);
}

static void await_threads(void)
{
    struct timespec until;

    if (threads.pid != getpid())
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += EXIT_S;
    pthread_mutex_lock(&threads.mutex);
    while (threads.count > 0 &&
           pthread_cond_clockwait(&threads.none, &threads.mutex,
                                  CLOCK_MONOTONIC, &until) == 0)
        continue;
    pthread_mutex_unlock(&threads.mutex);
}

static void log_nothing(mongoc_log_level_t level, const char *domain,
                        const char *message, void *arg)
{
    (void)level;
    (void)domain;
    (void)message;
    (void)arg;
}

/* libmongoc counts in shared memory, for who looks on. It has a name, which a
 * process that is killed would leave behind. */
static void unlink_counters(void)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "/mongoc-%u", (unsigned)getpid());
    (void)shm_unlink(name);
}

static void init(void)
{
    unlink_counters();
    mongoc_init();
    mongoc_log_set_handler(log_nothing, NULL);
    threads.pid = getpid();
    (void)atexit(await_threads);
}

void hf_mongo_library_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, init);
}
