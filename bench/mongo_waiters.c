/* mongo_waiters - what do idle waiters for one key cost the server?
 *
 * Eight clients have waiters in the queue of one key, and the holder renews its
 * lock. For a while, no lock is taken or released. The table shows the CPU time
 * of the primary in that time, the commands that it executed and the bytes that
 * it sent; the first row, without waiters, is the baseline. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/mongo.h"

#define CLIENTS 8
#define SPAN_S 20
#define QUEUE_MS 180000 /* time limit for joining and leaving the queue */

static const unsigned crowds[] = {0, 80, 800};
#define CROWDS (sizeof(crowds) / sizeof(crowds[0]))
#define WAITERS_MAX 800

struct crowd {
    struct hf_test_mongo *mongo;
    struct hf_client *clients[CLIENTS], *holder;
    struct hf_lock *held;
    struct hf_lock *locks[WAITERS_MAX];
    struct hf_future *futures[WAITERS_MAX];
};

struct spent {
    double cpu_s, commands, bytes;
};

/* ---- The load of the server ---------------------------------------------*/

static double find_number(const char *text, const char *name)
{
    const char *at = text ? strstr(text, name) : NULL;

    return at ? strtod(at + strlen(name), NULL) : 0;
}

/* The CPU time is in the fields 14 (user) and 15 (system) of /proc/PID/stat, in
 * clock ticks. The name of the program, field 2, ends with the last ')'. */
static double cpu_seconds(pid_t pid)
{
    unsigned long user = 0, system = 0;
    char path[64], line[1024] = "";
    const char *at;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file || !fgets(line, sizeof(line), file))
        bench_fail(path);
    (void)fclose(file);
    at = strrchr(line, ')');
    for (unsigned field = 2; at && field < 14; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        bench_fail("/proc/PID/stat");
    user = strtoul(at, (char **)&at, 10);
    system = strtoul(at, NULL, 10);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static struct spent read_spent(struct hf_test_mongo *mongo)
{
    const char *status =
        hf_test_mongo_command(mongo, 0, "admin", "{\"serverStatus\":1}");
    const char *network = strstr(status, "\"network\" :");

    return (struct spent){
        .cpu_s = cpu_seconds(mongo->members[0].pid),
        .commands = find_number(network, "\"numRequests\" : "),
        .bytes = find_number(network, "\"bytesOut\" : "),
    };
}

/* ---- Waiters ------------------------------------------------------------*/

static void await_queue(struct crowd *crowd, unsigned size)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"count\":\"locks\",\"query\":{\"queue\":{\"$size\":%u}}}",
                   size);
    for (unsigned waited = 0; waited < QUEUE_MS; waited += 100) {
        if (strstr(hf_test_mongo_command(crowd->mongo, 0, "holdfast", json),
                   "\"n\" : 1"))
            return;
        bench_sleep_ms(100);
    }
    bench_fail("the queue is not complete");
}

static void join_queue(struct crowd *crowd, unsigned count)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    opts.timeout_ms = QUEUE_MS;
    for (unsigned i = 0; i < count; i++)
        bench_check("hf_acquire",
                    hf_acquire_start(crowd->clients[i % CLIENTS],
                                     hf_key_of("k"), &opts, &crowd->locks[i],
                                     NULL, NULL, &crowd->futures[i]));
    await_queue(crowd, count);
}

static void open_crowd(struct crowd *crowd, const struct bench *bench,
                       const char *url)
{
    struct bench ours = *bench;
    struct hf_lock_opts opts;

    ours.url = url;
    hf_lock_opts_init(&opts);
    opts.renew = true;
    crowd->holder = bench_open_background(&ours);
    bench_check("hf_acquire",
                hf_acquire(crowd->holder, hf_key_of("k"), &opts, &crowd->held));
    for (unsigned i = 0; i < CLIENTS; i++)
        crowd->clients[i] = bench_open_background(&ours);
}

/* Closing a client withdraws its waiters. */
static void close_crowd(struct crowd *crowd, unsigned count)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        (void)hf_close(crowd->clients[i], QUEUE_MS);
    for (unsigned i = 0; i < count; i++)
        hf_future_free(crowd->futures[i]);
    bench_check("hf_release", hf_release(crowd->held));
    hf_lock_free(crowd->held);
    bench_close(crowd->holder);
}

static void measure(const struct bench *bench, struct bench_table *table,
                    struct hf_test_mongo *mongo, const char *url,
                    unsigned count)
{
    struct crowd crowd = {.mongo = mongo};
    struct spent before, after;
    uint64_t began;
    double span;

    open_crowd(&crowd, bench, url);
    join_queue(&crowd, count);
    bench_sleep_ms(2000); /* until the load of joining is over */
    before = read_spent(mongo);
    began = bench_now();
    bench_sleep_ms(SPAN_S * 1000);
    after = read_spent(mongo);
    span = (double)(bench_now() - began) / 1e9;
    bench_table_number(table, count);
    bench_table_number(table, (after.cpu_s - before.cpu_s) / span * 100);
    bench_table_number(table, (after.commands - before.commands) / span);
    bench_table_number(table, (after.bytes - before.bytes) / span / 1000);
    close_crowd(&crowd, count);
}

int main(int argc, char **argv)
{
    static const struct bench_column columns[] = {
        {"waiters", "waiters", 0},
        {"% of a core", "cpu_percent", 1},
        {"commands/s", "commands_per_s", 0},
        {"kB/s sent", "kb_per_s", 1},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    struct bench bench = {.name = "mongo_waiters", .url = "", .rounds = 1};
    struct hf_test_mongo mongo = {.election_ms = 30000}; /* avoid elections */
    char url[HF_TEST_MONGO_URL_SIZE];

    bench_init(&bench, argc, argv);
    if (!hf_test_mongo_is_installed()) {
        (void)fprintf(stderr, "mongo_waiters: %s\n", HF_TEST_MONGO_NONE);
        return 0;
    }
    if (!hf_test_mongo_start(&mongo, 1))
        bench_fail("cannot start mongod");
    hf_test_mongo_url(&mongo, url, "");
    bench_table_init(&table, "What idle waiters cost the server",
                     "mongo_waiters", columns);
    for (unsigned i = 0; i < CROWDS; i++)
        measure(&bench, &table, &mongo, url, crowds[i]);
    hf_test_mongo_stop(&mongo);
    bench_table_print(&bench, &table);
    return 0;
}
