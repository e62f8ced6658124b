#include "strategy/mongo/library.h"

#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "base/thread.h"

#define EXIT_S 1

struct thread {
    struct hf_list link;
    pthread_t id;
    void *(*run)(void *);
    void *arg;
    bool ended; /* to be joined */
};

/* Those of all clients. Its mutex is held while they are linked only. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t fewer;
    struct hf_list all;
    unsigned running; /* of them: the others have ended */
    pid_t pid;        /* whose they are */
} threads = {.mutex = PTHREAD_MUTEX_INITIALIZER,
             .fewer = PTHREAD_COND_INITIALIZER};

static void *begin(void *arg)
{
    struct thread *thread = arg;

    (void)thread->run(thread->arg);
    pthread_mutex_lock(&threads.mutex);
    thread->ended = true;
    threads.running--;
    pthread_cond_signal(&threads.fewer);
    pthread_mutex_unlock(&threads.mutex);
    return NULL;
}

/* A child of ours has copies of what we know, and would wait for ever. */
static void forget_a_parents_threads(void)
{
    pthread_mutex_lock(&threads.mutex);
    if (threads.pid != getpid()) {
        hf_list_init(&threads.all);
        threads.running = 0;
        threads.pid = getpid();
    }
    pthread_mutex_unlock(&threads.mutex);
}

/* One that has ended, and is not in the list any more; NULL: none. */
static struct thread *take_ended(void)
{
    struct thread *taken = NULL;

    pthread_mutex_lock(&threads.mutex);
    for (struct hf_list *link = threads.all.next;
         link != &threads.all && !taken; link = link->next) {
        struct thread *thread = HF_CONTAINER(link, struct thread, link);

        if (thread->ended)
            taken = thread;
    }
    if (taken)
        hf_list_remove(&taken->link);
    pthread_mutex_unlock(&threads.mutex);
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

bool hf_mongo_thread_start(void *(*run)(void *), void *arg)
{
    struct thread *thread = malloc(sizeof(*thread));
    bool started;

    forget_a_parents_threads();
    join_ended();
    if (!thread)
        return false;
    *thread = (struct thread){.run = run, .arg = arg};
    pthread_mutex_lock(&threads.mutex);
    started = hf_thread_start(&thread->id, begin, thread) == 0;
    if (started)
        hf_list_push_back(&threads.all, &thread->link);
    threads.running += started;
    pthread_mutex_unlock(&threads.mutex);
    if (!started)
        free(thread);
    return started;
}

/* Those that are stuck in libmongoc go down with the process. */
static void detach_others(void)
{
    pthread_mutex_lock(&threads.mutex);
    for (struct hf_list *link = threads.all.next; link != &threads.all;
         link = link->next)
        (void)pthread_detach(HF_CONTAINER(link, struct thread, link)->id);
    pthread_mutex_unlock(&threads.mutex);
}

/* Until they are gone, and not only about to go: libraries clean up after a
 * thread when it ends, with what they take down themselves at exit. */
static void await_threads(void)
{
    struct timespec until;

    if (threads.pid != getpid())
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += EXIT_S;
    pthread_mutex_lock(&threads.mutex);
    while (threads.running > 0 &&
           pthread_cond_clockwait(&threads.fewer, &threads.mutex,
                                  CLOCK_MONOTONIC, &until) == 0)
        continue;
    pthread_mutex_unlock(&threads.mutex);
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
