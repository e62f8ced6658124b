#include "strategy/mongo/library.h"

#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "base/thread.h"
#include "base/wiped.h"

#define EXIT_S 1

struct thread {
    struct hf_list link;
    pthread_t id;
    void *(*run)(void *);
    void *arg;
    bool ended; /* to be joined */
};

/* The threads of all clients. A forked child has none of them: it sees zeros
 * here, and an unlocked mutex. */
struct threads {
    pthread_mutex_t mutex;
    pthread_cond_t fewer;
    struct hf_list all;
    unsigned running; /* of them: the others have ended */
};
static void *_Atomic threads_page;

/* NULL: out of memory. */
static struct threads *lock_threads(void)
{
    struct threads *threads =
        hf_wiped_get(&threads_page, sizeof(struct threads));

    if (!threads)
        return NULL;
    pthread_mutex_lock(&threads->mutex);
    if (!threads->all.next)
        hf_list_init(&threads->all);
    return threads;
}

static void *begin(void *arg)
{
    struct thread *thread = arg;
    struct threads *threads;

    (void)thread->run(thread->arg);
    threads = lock_threads();
    thread->ended = true;
    threads->running--;
    pthread_cond_signal(&threads->fewer);
    pthread_mutex_unlock(&threads->mutex);
    return NULL;
}

/* Unlink a thread that has ended; NULL: there is none. */
static struct thread *take_ended(void)
{
    struct threads *threads = lock_threads();
    struct thread *taken = NULL;

    for (struct hf_list *link = threads->all.next;
         link != &threads->all && !taken; link = link->next) {
        struct thread *thread = HF_CONTAINER(link, struct thread, link);

        if (thread->ended)
            taken = thread;
    }
    if (taken)
        hf_list_remove(&taken->link);
    pthread_mutex_unlock(&threads->mutex);
    return taken;
}

static void join_ended(void)
{
    struct thread *thread;

    while ((thread = take_ended())) {
        (void)pthread_join(thread->id, NULL);
        free(thread);
    }
}

static bool start(struct threads *threads, struct thread *thread)
{
    if (hf_thread_start(&thread->id, begin, thread) != 0)
        return false;
    hf_list_push_back(&threads->all, &thread->link);
    threads->running++;
    return true;
}

bool hf_mongo_thread_start(void *(*run)(void *), void *arg)
{
    struct thread *thread = malloc(sizeof(*thread));
    struct threads *threads = thread ? lock_threads() : NULL;
    bool started;

    if (!threads) {
        free(thread);
        return false;
    }
    *thread = (struct thread){.run = run, .arg = arg};
    started = start(threads, thread);
    pthread_mutex_unlock(&threads->mutex);
    join_ended();
    if (!started)
        free(thread);
    return started;
}

/* Those that are stuck in libmongoc go down with the process. */
static void detach_others(void)
{
    struct threads *threads = lock_threads();

    for (struct hf_list *link = threads->all.next; link != &threads->all;
         link = link->next)
        (void)pthread_detach(HF_CONTAINER(link, struct thread, link)->id);
    pthread_mutex_unlock(&threads->mutex);
}

/* Until they are gone, and not only about to go: libraries clean up after a
 * thread when it ends, with what they take down themselves at exit. */
static void await_threads(void)
{
    struct threads *threads = lock_threads();
    struct timespec until;

    if (!threads)
        return; /* none was ever started */
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += EXIT_S;
    while (threads->running > 0 &&
           pthread_cond_clockwait(&threads->fewer, &threads->mutex,
                                  CLOCK_MONOTONIC, &until) == 0)
        continue;
    pthread_mutex_unlock(&threads->mutex);
    join_ended();
    detach_others();
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
    (void)atexit(await_threads);
}

void hf_mongo_library_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, init);
}
