#include "raft/floor.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/process.h"
#include "lib/stream.h"

#define ENTRY_SIZE 100
#define CONNECTIONS_MAX 256
#define REQUESTS_MAX 4096 /* unanswered requests of the leader */
#define FOLLOWERS 2
#define EVENTS_MAX 64

/* ---- The follower -------------------------------------------------------*/

struct follower {
    int listener;
    char name[32];
};

/* Write and sync what has arrived, and send how many bytes that is in all. */
static void follower_main(void *arg)
{
    static char input[REQUESTS_MAX * ENTRY_SIZE];
    struct follower *follower = arg;
    int leader = bench_stream_accept(follower->listener);
    struct floor_log log;
    uint64_t total = 0;
    ssize_t size;

    floor_log_open(&log, follower->name);
    while ((size = recv(leader, input, sizeof(input), 0)) > 0) {
        floor_log_append(&log, input, (size_t)size);
        total += (uint64_t)size;
        bench_stream_write(leader, &total, sizeof(total));
    }
}

/* ---- The leader ---------------------------------------------------------*/

struct connection {
    int fd;
    size_t input_size, output_count;
    char input[8192];
    struct floor_reply output[1024];
};

struct waiting {
    unsigned connection;
    struct floor_request request;
};

struct lock {
    bool is_held;
    unsigned first, count;
    struct waiting queue[32];
};

struct leader {
    struct floor *floor;
    int listener, followers[FOLLOWERS], epoll;
    uint64_t acknowledged[FOLLOWERS]; /* entries that a follower has synced */
    struct connection *connections[CONNECTIONS_MAX];
    unsigned connection_count;
    struct waiting requests[REQUESTS_MAX]; /* a ring, by entry number */
    uint64_t appended;                     /* entries received from clients */
    uint64_t answered;
    struct lock locks[FLOOR_KEYS];
    struct floor_log log;

    /* The pipelined floor syncs in a thread. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t wanted, synced; /* entries; under `mutex` */
    int done;                /* eventfd */
};

static void reply_to(struct leader *leader, const struct waiting *waiting)
{
    struct connection *connection = leader->connections[waiting->connection];

    connection->output[connection->output_count++].id = waiting->request.id;
    if (connection->output_count == 1024)
        bench_fail("the floor: too many replies");
}

static void apply(struct leader *leader, const struct waiting *waiting)
{
    struct lock *lock = &leader->locks[waiting->request.key % FLOOR_KEYS];

    if (waiting->request.op == FLOOR_LOCK && lock->is_held) {
        lock->queue[(lock->first + lock->count++) % 32] = *waiting;
        return;
    }
    reply_to(leader, waiting);
    lock->is_held = waiting->request.op == FLOOR_LOCK;
    if (lock->is_held || lock->count == 0)
        return;
    lock->is_held = true;
    lock->count--;
    reply_to(leader, &lock->queue[lock->first++ % 32]);
}

static void answer(struct leader *leader, uint64_t committed)
{
    while (leader->answered < committed)
        apply(leader, &leader->requests[leader->answered++ % REQUESTS_MAX]);
    for (unsigned i = 0; i < leader->connection_count; i++) {
        struct connection *connection = leader->connections[i];

        if (connection->output_count > 0)
            bench_stream_write(connection->fd, connection->output,
                               connection->output_count *
                                   sizeof(struct floor_reply));
        connection->output_count = 0;
    }
}

static void watch_fd(struct leader *leader, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};

    if (epoll_ctl(leader->epoll, EPOLL_CTL_ADD, fd, &event))
        bench_fail("the floor: epoll_ctl");
}

static void accept_client(struct leader *leader)
{
    struct connection *connection = NULL;
    unsigned number = 0;

    while (number < leader->connection_count &&
           leader->connections[number]->fd >= 0)
        number++;
    if (number == CONNECTIONS_MAX)
        bench_fail("the floor: too many connections");
    if (number == leader->connection_count)
        leader->connections[leader->connection_count++] =
            bench_alloc(1, sizeof(*connection));
    connection = leader->connections[number];
    *connection =
        (struct connection){.fd = bench_stream_accept(leader->listener)};
    watch_fd(leader, connection->fd, number);
}

static void read_client(struct leader *leader, unsigned number)
{
    struct connection *connection = leader->connections[number];
    size_t used = 0;
    ssize_t size =
        recv(connection->fd, connection->input + connection->input_size,
             sizeof(connection->input) - connection->input_size, 0);

    if (size <= 0) {
        (void)close(connection->fd);
        connection->fd = -1;
        return;
    }
    connection->input_size += (size_t)size;
    while (connection->input_size - used >= sizeof(struct floor_request)) {
        struct waiting *waiting =
            &leader->requests[leader->appended++ % REQUESTS_MAX];

        if (leader->appended - leader->answered > REQUESTS_MAX)
            bench_fail("the floor: too many requests");
        waiting->connection = number;
        memcpy(&waiting->request, connection->input + used,
               sizeof(waiting->request));
        used += sizeof(struct floor_request);
    }
    memmove(connection->input, connection->input + used,
            connection->input_size - used);
    connection->input_size -= used;
}

/* Numbers of the events of epoll; smaller ones are connections. */
enum {
    LISTENER = CONNECTIONS_MAX,
    SYNCED,
    FOLLOWER
};

static void read_follower(struct leader *leader, unsigned number)
{
    uint64_t totals[64];
    ssize_t size = recv(leader->followers[number], totals, sizeof(totals), 0);

    if (size <= 0 || size % 8)
        _exit(1); /* a follower has failed, or the benchmark ends */
    leader->acknowledged[number] = totals[size / 8 - 1] / ENTRY_SIZE;
}

static void on_event(struct leader *leader, uint32_t number)
{
    uint64_t count;

    if (number < LISTENER)
        read_client(leader, number);
    else if (number == LISTENER)
        accept_client(leader);
    else if (number == SYNCED)
        (void)!read(leader->done, &count, sizeof(count));
    else
        read_follower(leader, number - FOLLOWER);
}

static void read_input(struct leader *leader)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(leader->epoll, events, EVENTS_MAX, -1);

    for (int i = 0; i < count; i++)
        on_event(leader, events[i].data.u32);
}

static void send_entries(struct leader *leader, uint64_t count)
{
    static const char entries[REQUESTS_MAX * ENTRY_SIZE];

    for (unsigned i = 0; i < FOLLOWERS; i++)
        bench_stream_write(leader->followers[i], entries, count * ENTRY_SIZE);
}

static void sync_entries(struct leader *leader, uint64_t count)
{
    static const char entries[REQUESTS_MAX * ENTRY_SIZE];

    floor_log_append(&leader->log, entries, count * ENTRY_SIZE);
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- One batch in flight ------------------------------------------------*/

static void await_majority(struct leader *leader)
{
    while (later_of(leader->acknowledged[0], leader->acknowledged[1]) <
           leader->appended) {
        struct pollfd fds[FOLLOWERS] = {
            {leader->followers[0], POLLIN, 0},
            {leader->followers[1], POLLIN, 0},
        };

        (void)poll(fds, FOLLOWERS, -1);
        for (unsigned i = 0; i < FOLLOWERS; i++)
            if (fds[i].revents)
                read_follower(leader, i);
    }
}

static _Noreturn void run_batches(struct leader *leader)
{
    for (;;) {
        uint64_t count;

        read_input(leader);
        count = leader->appended - leader->answered;
        if (count == 0)
            continue;
        send_entries(leader, count);
        sync_entries(leader, count);
        await_majority(leader);
        answer(leader, leader->appended);
    }
}

/* ---- Pipelined ----------------------------------------------------------*/

static _Noreturn void run_syncs(struct leader *leader)
{
    const uint64_t one = 1;
    uint64_t wanted;

    (void)pthread_mutex_lock(&leader->mutex);
    for (;;) {
        while (leader->wanted == leader->synced)
            (void)pthread_cond_wait(&leader->changed, &leader->mutex);
        /* sync_entries() writes at most REQUESTS_MAX entries. The followers
         * alone are a majority, so this thread may be further behind. */
        wanted = earlier_of(leader->wanted, leader->synced + REQUESTS_MAX);
        (void)pthread_mutex_unlock(&leader->mutex);
        sync_entries(leader, wanted - leader->synced);
        (void)pthread_mutex_lock(&leader->mutex);
        leader->synced = wanted;
        (void)!write(leader->done, &one, sizeof(one));
    }
}

static void *sync_main(void *arg)
{
    run_syncs(arg);
}

/* The median of what the three have synced: a majority has that many. */
static uint64_t find_committed(const struct leader *leader, uint64_t synced)
{
    uint64_t a = leader->acknowledged[0], b = leader->acknowledged[1];

    return later_of(earlier_of(a, b), earlier_of(later_of(a, b), synced));
}

static _Noreturn void run_pipeline(struct leader *leader)
{
    uint64_t sent = 0;
    uint64_t synced;

    for (;;) {
        read_input(leader);
        if (leader->appended > sent)
            send_entries(leader, leader->appended - sent);
        (void)pthread_mutex_lock(&leader->mutex);
        synced = leader->synced;
        leader->wanted = leader->appended;
        if (leader->appended > sent)
            (void)pthread_cond_signal(&leader->changed);
        (void)pthread_mutex_unlock(&leader->mutex);
        sent = leader->appended;
        answer(leader, find_committed(leader, synced));
    }
}

static void start_sync_thread(struct leader *leader)
{
    pthread_t thread;

    (void)pthread_mutex_init(&leader->mutex, NULL);
    (void)pthread_cond_init(&leader->changed, NULL);
    leader->done = eventfd(0, EFD_CLOEXEC);
    if (leader->done < 0 || pthread_create(&thread, NULL, sync_main, leader))
        bench_fail("cannot start a thread");
    watch_fd(leader, leader->done, SYNCED);
}

/* ---- Starting -----------------------------------------------------------*/

static void leader_main(void *arg)
{
    struct leader *leader = arg;

    leader->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (leader->epoll < 0)
        bench_fail("the floor: epoll_create1");
    floor_log_open(&leader->log,
                   leader->floor->is_pipelined ? "pipelined-0" : "plain-0");
    watch_fd(leader, leader->listener, LISTENER);
    if (!leader->floor->is_pipelined)
        run_batches(leader);
    for (unsigned i = 0; i < FOLLOWERS; i++)
        watch_fd(leader, leader->followers[i], FOLLOWER + i);
    start_sync_thread(leader);
    run_pipeline(leader);
}

void floor_start(struct floor *floor)
{
    struct leader *leader = bench_alloc(1, sizeof(*leader));

    (void)bench_folder(); /* made by this process, which removes it */
    leader->floor = floor;
    for (unsigned i = 0; i < FOLLOWERS; i++) {
        int port;
        struct follower follower = {.listener = bench_stream_listen(&port)};

        (void)snprintf(follower.name, sizeof(follower.name), "%s-%u",
                       floor->is_pipelined ? "pipelined" : "plain", i + 1);
        (void)bench_start(follower_main, &follower);
        leader->followers[i] = bench_stream_connect(port);
        (void)close(follower.listener);
    }
    leader->listener = bench_stream_listen(&floor->port);
    (void)bench_start(leader_main, leader);
    (void)close(leader->listener);
    for (unsigned i = 0; i < FOLLOWERS; i++)
        (void)close(leader->followers[i]);
    free(leader);
}
