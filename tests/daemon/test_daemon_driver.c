/* The threads of holdfastd: the two that drive the loop in turn, and the
 * workers (src/daemon/driver.c). A whole node runs in this process, so
 * ThreadSanitizer sees all of its threads. Flushes of its log take as long as a
 * case wants. */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "lib/cluster.h"
#include "lib/folder.h"
#include "lib/loopback.h"
#include "lib/runner.h"

#define SLOW_MS 8 /* more than the standby waits before it takes the loop */
#define THREADS 3 /* that flush: both that drive, and a worker */
#define LARGE_VALUE (2 * HF_DAEMON_LARGE_FLUSH)

static struct hf_test_cluster cluster;
static char folder[] = HF_TEST_FOLDER;
static pthread_t node_thread;
static bool is_running;
static enum hf_err result; /* of hf_daemon_run() */

/* ---- Flushes ------------------------------------------------------------
 *
 * The order of these variables among themselves does not matter. Relaxed, they
 * do not synchronize the threads, so ThreadSanitizer sees races of the node. */

enum pace {
    PACE_NORMAL,
    PACE_MIXED, /* every third flush takes SLOW_MS */
    PACE_HANG,  /* a flush waits until the pace has changed */
};

static atomic_uint pace, flushes, flushers;
static _Thread_local bool is_counted; /* this thread, in `flushers` */
static sem_t hanging;                 /* posted by a flush that hangs */

static void sleep_ms(long ms)
{
    const struct timespec span = {.tv_nsec = ms * 1000000};

    (void)nanosleep(&span, NULL);
}

static unsigned current_pace(void)
{
    return atomic_load_explicit(&pace, memory_order_relaxed);
}

static void set_pace(enum pace wanted)
{
    atomic_store_explicit(&pace, wanted, memory_order_relaxed);
}

static void count_flusher(void)
{
    if (!is_counted)
        atomic_fetch_add_explicit(&flushers, 1, memory_order_relaxed);
    is_counted = true;
}

void __real_hf_wal_flush_run(struct hf_wal_flush *flush);
void __wrap_hf_wal_flush_run(struct hf_wal_flush *flush);

void __wrap_hf_wal_flush_run(struct hf_wal_flush *flush)
{
    unsigned number =
        atomic_fetch_add_explicit(&flushes, 1, memory_order_relaxed);

    count_flusher();
    if (current_pace() == PACE_MIXED && number % 3 == 0)
        sleep_ms(SLOW_MS);
    if (current_pace() == PACE_HANG)
        (void)sem_post(&hanging);
    while (current_pace() == PACE_HANG)
        sleep_ms(1);
    __real_hf_wal_flush_run(flush);
}

/* ---- The node -----------------------------------------------------------*/

static int ready[2];

static void *node_main(void *arg)
{
    struct hf_config config = {0};
    struct hf_error error = {0};
    struct hf_disk *disk;
    char path[160];

    (void)arg;
    is_counted = true; /* it flushes only when it opens the log */
    (void)snprintf(path, sizeof(path), "%s/node-1", cluster.folder);
    result = HF_ESYSTEM;
    if (hf_disk_posix_open(path, false, &disk))
        return NULL;
    result = hf_config_read(&config, disk, &error);
    if (!result)
        result = hf_daemon_run(&config, disk, ready[1], &error);
    if (result)
        (void)fprintf(stderr, "%s\n", error.text);
    disk->ops->close_directory(disk);
    return NULL;
}

/* holdfastd has made the directory of a cluster of one node; run it here. */
static int set_up(void **state)
{
    char byte;

    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(sem_init(&hanging, 0, 0), 0);
    if (!hf_test_folder_make(folder) ||
        !hf_test_cluster_start(&cluster, folder, 1))
        return -1;
    hf_test_cluster_kill(&cluster, 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pthread_create(&node_thread, NULL, node_main, NULL), 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    is_running = true;
    return 0;
}

static void await_end(void)
{
    assert_int_equal(pthread_join(node_thread, NULL), 0);
    is_running = false;
    assert_int_equal(result, HF_OK);
}

static int tear_down(void **state)
{
    (void)state;
    set_pace(PACE_NORMAL);
    if (is_running) {
        (void)raise(SIGTERM);
        await_end();
    }
    (void)hf_test_folder_remove(folder);
    return 0;
}

/* ---- A client -----------------------------------------------------------*/

struct conn {
    int fd;
    FILE *replies;
};

static struct conn open_conn(void)
{
    struct conn conn = {.fd = hf_test_connect(cluster.nodes[0].client_port)};

    assert_true(conn.fd >= 0);
    conn.replies = fdopen(conn.fd, "re");
    assert_non_null(conn.replies);
    return conn;
}

static void close_conn(struct conn *conn)
{
    (void)fclose(conn->replies);
}

static void send_text(struct conn *conn, const char *text)
{
    size_t size = strlen(text);

    assert_int_equal(send(conn->fd, text, size, MSG_NOSIGNAL), size);
}

/* Read one line of a reply, without the line end. */
static const char *read_line(struct conn *conn)
{
    static char line[256];

    assert_non_null(fgets(line, sizeof(line), conn->replies));
    line[strcspn(line, "\r")] = '\0';
    return line;
}

static bool has_reply(const struct conn *conn)
{
    struct pollfd readable = {.fd = conn->fd, .events = POLLIN};

    return poll(&readable, 1, 0) > 0;
}

struct held {
    char nonce[40];
    unsigned long long token;
};

static struct held read_grant(struct conn *conn)
{
    struct held held = {0};

    assert_string_equal(read_line(conn), "*3");
    assert_string_equal(read_line(conn), "$32");
    (void)snprintf(held.nonce, sizeof(held.nonce), "%.32s", read_line(conn));
    held.token = strtoull(read_line(conn) + 1, NULL, 10);
    assert_int_equal(read_line(conn)[0], ':');
    return held;
}

static void unlock(struct conn *conn, const struct held *held)
{
    char text[128];

    (void)snprintf(text, sizeof(text), "UNLOCK k %s %llu\r\n", held->nonce,
                   held->token);
    send_text(conn, text);
    assert_string_equal(read_line(conn), "+OK");
}

/* Store a value that is too large for a flush by the driver. */
static void update(struct conn *conn, const struct held *held)
{
    static char value[LARGE_VALUE + 1], text[LARGE_VALUE + 256];

    memset(value, 'x', sizeof(value) - 1);
    (void)snprintf(text, sizeof(text),
                   "*5\r\n$6\r\nUPDATE\r\n$1\r\nk\r\n$32\r\n%s\r\n$%d\r\n%llu"
                   "\r\n$%d\r\n%s\r\n",
                   held->nonce, snprintf(NULL, 0, "%llu", held->token),
                   held->token, LARGE_VALUE, value);
    send_text(conn, text);
    assert_string_equal(read_line(conn), "+OK");
}

static unsigned long info_of(struct conn *conn, const char *name)
{
    size_t size = strlen(name);
    unsigned long number = 0;
    const char *line;

    send_text(conn, "INFO\r\n");
    assert_int_equal(read_line(conn)[0], '$');
    /* The last line of INFO is that of the last counter; then comes an empty
     * one. PING shows where the reply ends. */
    send_text(conn, "PING\r\n");
    while (strcmp(line = read_line(conn), "+PONG") != 0)
        if (strncmp(line, name, size) == 0 && line[size] == ':')
            number = strtoul(line + size + 1, NULL, 10);
    return number;
}

/* ---- Cases --------------------------------------------------------------*/

/* Small and large flushes, fast and slow ones, until each of the threads has
 * executed some; and long enough for a snapshot, which is made by another. */
static void all_threads_of_a_node_serve_a_client(void **state)
{
    struct conn conn = open_conn();

    (void)state;
    set_pace(PACE_MIXED);
    do {
        struct held held;

        send_text(&conn, "LOCK k 600000\r\n");
        held = read_grant(&conn);
        for (unsigned i = 0; i < 20; i++)
            update(&conn, &held);
        unlock(&conn, &held);
    } while (atomic_load_explicit(&flushers, memory_order_relaxed) < THREADS ||
             info_of(&conn, "snapshots") == 0);
    close_conn(&conn);
}

/* Whichever thread flushes, another one runs the loop. */
static void a_flush_that_hangs_stops_only_what_waits_for_it(void **state)
{
    struct conn conn = open_conn(), other = open_conn();

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        struct held held;

        set_pace(PACE_HANG);
        send_text(&conn, "LOCK k 600000\r\n");
        assert_int_equal(sem_wait(&hanging), 0);
        for (unsigned j = 0; j < 3; j++) {
            send_text(&other, "PING\r\n");
            assert_string_equal(read_line(&other), "+PONG");
            assert_int_equal(info_of(&other, "holds"), 0);
        }
        assert_false(has_reply(&conn));
        set_pace(PACE_NORMAL);
        held = read_grant(&conn);
        unlock(&conn, &held);
    }
    close_conn(&conn);
    close_conn(&other);
}

/* The node ends when the flush does, whichever thread executes it. */
static void a_node_awaits_a_flush_before_it_ends(void **state)
{
    struct conn conn = open_conn();

    (void)state;
    set_pace(PACE_HANG);
    send_text(&conn, "LOCK k 600000\r\n");
    assert_int_equal(sem_wait(&hanging), 0);
    (void)raise(SIGTERM);
    while (!has_reply(&conn)) /* the node has closed it */
        sleep_ms(1);
    set_pace(PACE_NORMAL);
    await_end();
    close_conn(&conn);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(all_threads_of_a_node_serve_a_client),
        CASE(a_flush_that_hangs_stops_only_what_waits_for_it),
        CASE(a_node_awaits_a_flush_before_it_ends),
    };

    return hf_test_main("daemon_driver", cases, HF_TEST_COUNT(cases), 0);
}
