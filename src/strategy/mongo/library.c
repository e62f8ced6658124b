#include "strategy/mongo/library.h"

#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/wiped.h"

#define EXIT_S 1 /* how long the process waits for threads at exit */

struct start {
    void *(*run)(void *);
    void *arg;
};

/* The threads of all clients. The struct is in a page that fork() clears,
 * because a child has none of these threads: it finds zeros and an unlocked
 * mutex. */
struct threads {
    pthread_mutex_t mutex;
    pthread_cond_t thread_ended;
    unsigned running;
    bool has_unjoined;
    pthread_t unjoined; /* the thread that ended last */
    bool exiting; /* the process exits, so ending threads detach themselves */
};
static void *_Atomic threads_page;

/* Lock the mutex. Returns NULL, with nothing locked, if out of memory. */
static struct threads *lock_threads(void)
{
    struct threads *threads =
        hf_wiped_get(&threads_page, sizeof(struct threads));

    if (threads)
        pthread_mutex_lock(&threads->mutex);
    return threads;
}

/* Each thread that ends joins the thread that ended before it. So at most one
 * ended thread is unjoined, and after joining that thread, all threads that
 * ended are gone. */
static void end_thread(void)
{
    struct threads *threads = lock_threads();
    bool joins = threads->has_unjoined;
    pthread_t previous = threads->unjoined;

    if (threads->exiting)
        (void)pthread_detach(pthread_self());
    threads->has_unjoined = !threads->exiting;
    threads->unjoined = pthread_self();
    threads->running--;
    pthread_cond_signal(&threads->thread_ended);
    pthread_mutex_unlock(&threads->mutex);
    if (joins)
        (void)pthread_join(previous, NULL);
}

static void *library_thread_main(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    (void)start.run(start.arg);
    end_thread();
    return NULL;
}

bool hf_mongo_library_start_thread(void *(*run)(void *), void *arg)
{
    struct start *start = malloc(sizeof(*start));
    struct threads *threads = start ? lock_threads() : NULL;
    pthread_t id;
    bool started = false;

    if (threads) {
        *start = (struct start){.run = run, .arg = arg};
        started = hf_thread_start(&id, library_thread_main, start) == 0;
        threads->running += started;
        pthread_mutex_unlock(&threads->mutex);
    }
    if (!started)
        free(start);
    return started;
}

/* Wait up to EXIT_S for the threads. Threads that are still in libmongoc then
 * end with the process. */
static void on_process_exit(void)
{
    struct threads *threads = lock_threads();
    struct timespec until;
    pthread_t unjoined;
    bool joins;

    if (!threads)
        return; /* out of memory, so no thread was ever started */
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += EXIT_S;
    while (threads->running > 0 &&
           pthread_cond_clockwait(&threads->thread_ended, &threads->mutex,
                                  CLOCK_MONOTONIC, &until) == 0)
        continue;
    joins = threads->has_unjoined;
    unjoined = threads->unjoined;
    threads->has_unjoined = false;
    threads->exiting = true;
    pthread_mutex_unlock(&threads->mutex);
    if (joins)
        (void)pthread_join(unjoined, NULL);
}

static void log_nothing(mongoc_log_level_t level, const char *domain,
                        const char *message, void *arg)
{
    (void)level;
    (void)domain;
    (void)message;
    (void)arg;
}

/* Remove the name of the shared memory, which libmongoc created when it was
 * loaded; the memory stays mapped. Otherwise only the destructor of libmongoc
 * would remove the name, and a killed process never runs that destructor. */
static void unlink_counters(void)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "/mongoc-%u", (unsigned)getpid());
    (void)shm_unlink(name);
}

static void init_library(void)
{
    unlink_counters();
    mongoc_init();
    mongoc_log_set_handler(log_nothing, NULL);
    (void)atexit(on_process_exit);
}

void hf_mongo_library_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, init_library);
}
