/* memory - how many bytes does a held lock cost beyond its key and value, and
 * how many does a waiter?
 *
 * Both are measured for the table alone, for the table with the heap of its
 * leases, and for the whole API with the caller's handle. There are two figures
 * for each: the bytes that the allocator has handed out, with its headers and
 * rounding, and the growth of the resident memory of the process. Each case
 * runs in a new process, which has allocated nothing before. The key is
 * subtracted once, although the API keeps a second copy of it. */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/lease.h"
#include "core/table.h"
#include "lib/bench.h"

#define VALUE_SIZE 32
#define QUEUE_LEN 10000 /* waiters for one key */
#define LEASE_MS 3600000

static const uint8_t value[VALUE_SIZE];

/* ---- The table alone ----------------------------------------------------*/

struct driver {
    struct hf_table table;
    struct hf_leases leases;
    bool has_leases;
    struct hf_command command; /* the last command */
};

static void on_event(void *arg, const struct hf_table_event *event)
{
    struct driver *driver = arg;

    if (event->kind == HF_EVENT_GRANTED && driver->has_leases)
        hf_leases_set(&driver->leases, &event->hold->lease, LEASE_MS);
}

static void apply_command(struct driver *driver, struct hf_result *result)
{
    bench_check("hf_table_apply",
                hf_table_apply(&driver->table, &driver->command, result));
}

static void driver_init(struct driver *driver, bool has_leases)
{
    static const struct hf_seed seed = {{1}};
    struct hf_result result;

    memset(driver, 0, sizeof(*driver));
    driver->has_leases = has_leases;
    hf_table_init(&driver->table, &seed, on_event, driver);
    driver->command.kind = HF_COMMAND_OPEN;
    apply_command(driver, &result);
    driver->command = (struct hf_command){
        .kind = HF_COMMAND_LOCK,
        .session = result.session,
        .lease_ms = LEASE_MS,
        .queue = true,
    };
}

static void lock_key(struct driver *driver, struct hf_key key, bool has_value)
{
    struct hf_command *command = &driver->command;
    struct hf_result result;

    command->sequence++;
    command->done = command->sequence;
    memcpy(command->nonce.bytes, &command->sequence, sizeof(uint64_t));
    command->key = key;
    command->value = (struct hf_bytes){value, has_value ? sizeof(value) : 0};
    bench_check("hf_leases_reserve", driver->has_leases
                                         ? hf_leases_reserve(&driver->leases)
                                         : HF_OK);
    apply_command(driver, &result);
    if (result.err != (result.position > 0 ? HF_EBUSY : HF_OK))
        bench_fail("the table refused a lock");
}

/* ---- The whole API ------------------------------------------------------*/

static struct hf_lock_opts make_opts(bool has_value)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = LEASE_MS;
    opts.wait_ms = HF_FOREVER;
    opts.value = (struct hf_bytes){value, has_value ? sizeof(value) : 0};
    return opts;
}

static void acquire_lock(struct hf_client *client, struct hf_key key,
                         bool has_value, struct hf_lock **lock)
{
    struct hf_lock_opts opts = make_opts(has_value);

    bench_check("hf_acquire", hf_acquire(client, key, &opts, lock));
}

static void add_waiter(struct hf_client *client, struct hf_key key,
                       struct hf_lock **lock, struct hf_future **future)
{
    struct hf_lock_opts opts = make_opts(false);

    bench_check("hf_acquire_start",
                hf_acquire_start(client, key, &opts, lock, NULL, NULL, future));
}

/* ---- Counting -----------------------------------------------------------*/

struct bytes {
    double allocated, resident;
};

/* /proc/self/statm contains the total number of pages, then the resident
 * ones. */
static double resident_pages(void)
{
    char text[128] = "", *end;
    FILE *file = fopen("/proc/self/statm", "re");
    bool got = file && fgets(text, sizeof(text), file);

    if (file)
        (void)fclose(file);
    if (!got)
        bench_fail("cannot read /proc/self/statm");
    (void)strtoul(text, &end, 10);
    return (double)strtoul(end, NULL, 10);
}

static struct bytes in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return (struct bytes){
        .allocated = (double)info.uordblks + (double)info.hblkhd,
        .resident = resident_pages() * (double)sysconf(_SC_PAGESIZE),
    };
}

enum layer {
    TABLE,
    LEASES,
    API
};

static const struct scene {
    const char *what;
    enum layer layer;
    bool waiters;
    bool has_value;
    size_t count;
} scenes[] = {
    {"held, table alone", TABLE, false, false, 100000},
    {"held, table alone", TABLE, false, false, 1000000},
    {"held, table alone, 32 bytes of value", TABLE, false, true, 100000},
    {"held, table and leases", LEASES, false, false, 100000},
    {"held, table and leases", LEASES, false, false, 1000000},
    {"held, whole API with its handle", API, false, false, 100000},
    {"held, whole API with its handle", API, false, false, 1000000},
    {"waiter, table and leases", LEASES, true, false, 100000},
    {"waiter, whole API, handle and future", API, true, false, 100000},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Keys and pointers, allocated and touched before the measurement, so that they
 * do not count. */
struct buffers {
    struct bench_keys keys;
    struct hf_lock **locks;
    struct hf_future **futures;
};

static void buffers_init(struct buffers *buffers, const struct scene *scene)
{
    bench_keys_init(&buffers->keys, "key", scene->count);
    buffers->locks = malloc(scene->count * sizeof(struct hf_lock *));
    buffers->futures = malloc(scene->count * sizeof(struct hf_future *));
    if (!buffers->locks || !buffers->futures)
        bench_fail("out of memory");
    memset(buffers->locks, 1, scene->count * sizeof(struct hf_lock *));
    memset(buffers->futures, 1, scene->count * sizeof(struct hf_future *));
}

static struct bytes fill_table(const struct scene *scene,
                               const struct buffers *buffers)
{
    static struct driver driver;
    size_t held = scene->waiters ? scene->count / QUEUE_LEN : 0;
    struct bytes before;

    driver_init(&driver, scene->layer == LEASES);
    for (size_t i = 0; i < held; i++)
        lock_key(&driver, bench_key(&buffers->keys, i), false);
    before = in_use();
    for (size_t i = 0; i < scene->count; i++)
        lock_key(&driver, bench_key(&buffers->keys, held ? i % held : i),
                 scene->has_value);
    return before;
}

static struct bytes fill_api(const struct bench *bench,
                             const struct scene *scene,
                             const struct buffers *buffers)
{
    size_t held = scene->waiters ? scene->count / QUEUE_LEN : 0;
    struct hf_client *holder = bench_open(bench);
    struct hf_client *client = bench_open(bench);
    struct hf_lock *lock;
    struct bytes before;

    for (size_t i = 0; i < held; i++)
        acquire_lock(holder, bench_key(&buffers->keys, i), false, &lock);
    before = in_use();
    for (size_t i = 0; i < scene->count; i++) {
        if (held)
            add_waiter(client, bench_key(&buffers->keys, i % held),
                       &buffers->locks[i], &buffers->futures[i]);
        else
            acquire_lock(client, bench_key(&buffers->keys, i), scene->has_value,
                         &buffers->locks[i]);
    }
    return before;
}

/* The bytes of one lock or waiter, without its key and value. A waiter has no
 * key of its own, because it uses the holder's key. */
static struct bytes measure(const struct bench *bench,
                            const struct scene *scene)
{
    double own = (scene->waiters ? 0 : BENCH_KEY_SIZE) +
                 (scene->has_value ? VALUE_SIZE : 0);
    struct bytes before, after;
    struct buffers buffers;

    buffers_init(&buffers, scene);
    before = scene->layer == API ? fill_api(bench, scene, &buffers)
                                 : fill_table(scene, &buffers);
    after = in_use();
    return (struct bytes){
        (after.allocated - before.allocated) / (double)scene->count - own,
        (after.resident - before.resident) / (double)scene->count - own,
    };
}

/* Call measure() in a child process, whose exit frees everything. */
static struct bytes measure_in_child(const struct bench *bench,
                                     const struct scene *scene)
{
    struct bytes bytes;
    int ends[2], status;
    pid_t child;

    if (pipe(ends) < 0)
        bench_fail("pipe");
    child = fork();
    if (child < 0)
        bench_fail("fork");
    if (child == 0) {
        bytes = measure(bench, scene);
        _exit(write(ends[1], &bytes, sizeof(bytes)) != sizeof(bytes));
    }
    if (waitpid(child, &status, 0) != child || status != 0 ||
        read(ends[0], &bytes, sizeof(bytes)) != sizeof(bytes))
        bench_fail("a child failed");
    close(ends[0]);
    close(ends[1]);
    return bytes;
}

int main(int argc, char **argv)
{
    static const struct bench_column columns[] = {
        {"what", "what", BENCH_TEXT},
        {"count", "count", 0},
        {"bytes allocated", "allocated", 1},
        {"bytes resident", "resident", 1},
        {NULL, NULL, 0},
    };
    struct bench bench = {.name = "memory", .url = "memory:bench", .rounds = 1};
    static struct bench_table table;

    bench_init(&bench, argc, argv);
    bench_table_init(&table, "Bytes of one, beyond its key and value", "bytes",
                     columns);
    for (size_t i = 0; i < SCENES; i++) {
        struct bytes bytes;

        bench_progress(&bench, 0, scenes[i].what);
        bytes = measure_in_child(&bench, &scenes[i]);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, (double)scenes[i].count);
        bench_table_number(&table, bytes.allocated);
        bench_table_number(&table, bytes.resident);
    }
    bench_table_print(&bench, &table);
    return 0;
}
