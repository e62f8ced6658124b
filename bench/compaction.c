/* compaction - how long does a node stop answering while it compacts its log,
 * and while a snapshot is sent and installed?
 *
 * Three nodes in one process, each with a directory on a real disk, hold a
 * million keys and run pairs of lock and unlock. A turn is all that the thread
 * of a node does at a time: input, hf_node_turn(), and the end of flushes and
 * jobs. No command is answered during a turn, so the longest turn is the
 * longest stall. Jobs run in threads of their own. The threads of this program
 * and of others compete for the cores, so the CPU time of a turn is what a
 * change of the node can improve. For the turn with the longest CPU time, the
 * table also has how often the kernel interrupted it for another thread: it
 * then goes on with cold caches, which costs CPU time, too. The longest turn is
 * also given in real time. The third node starts late, and receives a
 * snapshot. */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/bench.h"
#include "log/directory.h"
#include "node/state.h"

#define NODES 3
#define KEYS 1000000
#define PAIRS 1000000
#define WINDOW 1000 /* unanswered commands; a session allows 1024 */
#define LEASE_MS 86400000

/* ---- Nodes --------------------------------------------------------------*/

/* CPU time and real time, in nanoseconds, and involuntary context switches. */
struct duration {
    uint64_t cpu, real, switches;
};

/* Durations of turns, in microseconds. */
struct samples {
    double *at; /* of turns that applied entries, CPU time */
    size_t count, capacity;
    double longest, longest_real; /* of all turns */
    uint64_t switches;            /* during the longest in CPU time */
};

struct bench_node {
    unsigned number;
    char path[4096];
    struct hf_disk *disk;
    struct hf_node *node; /* NULL: not started */
    struct hf_buf inbox[NODES];
    bool is_linked[NODES]; /* this node is connected to the other */
    struct hf_node_job *job;
    pthread_t thread;
    atomic_bool job_has_run;
    struct duration used; /* by the turn so far */
    struct samples turns;
};

static struct bench_node nodes[NODES];
static struct hf_node_member members[NODES];
static const struct hf_log_cluster cluster = {"bench"};

static hf_time now_ms(void)
{
    return (hf_time)(bench_now() / 1000000);
}

static uint64_t link_of(unsigned from, unsigned to)
{
    return 1 + (uint64_t)from * NODES + to;
}

static void send_link(void *arg, uint64_t link, const void *bytes, size_t size)
{
    struct bench_node *from = arg;
    unsigned to = (unsigned)((link - 1) % NODES);

    if (from->is_linked[to])
        hf_buf_raw(&nodes[to].inbox[from->number], bytes, size);
}

static void close_link(void *arg, uint64_t link, const char *why)
{
    (void)arg;
    (void)link;
    bench_fail(why);
}

static void on_stop(void *arg, const struct hf_error *error)
{
    (void)arg;
    bench_fail(error->text);
}

static const struct hf_node_ops ops = {
    .send_link = send_link,
    .close_link = close_link,
    .stop = on_stop,
};

static void connect_nodes(struct bench_node *from, struct bench_node *to)
{
    uint64_t link = link_of(from->number, to->number);

    if (!from->node || !to->node || from == to)
        return;
    from->is_linked[to->number] = true;
    hf_node_on_link_open(to->node, link);
    hf_node_on_peer_up(from->node, to->number + 1, link);
}

static void start_node(unsigned number)
{
    struct bench_node *self = &nodes[number];
    struct hf_log_identity identity = {.cluster = cluster, .node = number + 1};
    struct hf_node_opts opts = {
        .cluster = cluster,
        .id = number + 1,
        .members = members,
        .member_count = NODES,
    };
    struct hf_error error;

    self->number = number;
    (void)snprintf(self->path, sizeof(self->path), "%s/node-%u", bench_folder(),
                   number + 1);
    if (hf_disk_posix_open(self->path, true, &self->disk))
        bench_fail(self->path);
    if (hf_log_directory_init(self->disk, &identity, &error))
        bench_fail(error.text);
    self->disk->ops->close_directory(self->disk);
    if (hf_disk_posix_open(self->path, false, &self->disk))
        bench_fail(self->path);
    opts.seed.bytes[0] = (uint8_t)(number + 1);
    if (hf_node_open(&opts, &ops, self, self->disk, now_ms(), &self->node,
                     &error))
        bench_fail(error.text);
    for (unsigned i = 0; i < NODES; i++) {
        connect_nodes(self, &nodes[i]);
        connect_nodes(&nodes[i], self);
    }
}

/* ---- Turns --------------------------------------------------------------*/

static struct duration clocks(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_THREAD, &usage);
    return (struct duration){bench_thread_cpu(), bench_now(),
                             (uint64_t)usage.ru_nivcsw};
}

static void add_since(struct duration *used, struct duration from)
{
    struct duration now = clocks();

    used->cpu += now.cpu - from.cpu;
    used->real += now.real - from.real;
    used->switches += now.switches - from.switches;
}

static void add_turn(struct samples *samples, struct duration used,
                     bool is_idle)
{
    double micros = (double)used.cpu / 1e3;
    double real = (double)used.real / 1e3;

    if (micros > samples->longest) {
        samples->longest = micros;
        samples->switches = used.switches;
    }
    if (real > samples->longest_real)
        samples->longest_real = real;
    if (is_idle)
        return;
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity * 2 + 4096;
        samples->at = realloc(samples->at, samples->capacity * sizeof(double));
        if (!samples->at)
            bench_fail("out of memory");
    }
    samples->at[samples->count++] = micros;
}

static void *job_main(void *arg)
{
    struct bench_node *self = arg;

    hf_node_job_run(self->job);
    atomic_store(&self->job_has_run, true);
    return NULL;
}

static void receive_input(struct bench_node *self)
{
    for (unsigned i = 0; i < NODES; i++) {
        struct hf_buf *inbox = &self->inbox[i];

        if (inbox->size > 0)
            hf_node_on_link_data(self->node, link_of(i, self->number),
                                 inbox->data, inbox->size);
        inbox->size = 0;
    }
}

/* End a job that has run, and start the next one. */
static void turn_jobs(struct bench_node *self)
{
    if (self->job && atomic_load(&self->job_has_run)) {
        (void)pthread_join(self->thread, NULL);
        hf_node_job_end(self->node, self->job);
        self->job = NULL;
    }
    if (self->job)
        return;
    self->job = hf_node_job_begin(self->node);
    atomic_store(&self->job_has_run, false);
    if (self->job && pthread_create(&self->thread, NULL, job_main, self))
        bench_fail("pthread_create");
}

/* Flushes and upkeep run in this thread, but do not belong to a turn. */
static void flush_node(struct bench_node *self)
{
    struct hf_wal_upkeep upkeep;
    struct hf_wal_flush flush;
    struct duration from;

    while (hf_node_upkeep_begin(self->node, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        hf_node_upkeep_end(self->node, &upkeep);
    }
    if (!hf_node_flush_begin(self->node, &flush))
        return;
    hf_wal_flush_run(&flush);
    from = clocks();
    hf_node_flush_end(self->node, &flush);
    add_since(&self->used, from); /* belongs to the next turn */
}

static void turn_node(struct bench_node *self)
{
    uint64_t applied = self->node->machine.applied;
    struct duration from = clocks();
    hf_time now = now_ms();

    hf_node_set_time(self->node, now);
    receive_input(self);
    turn_jobs(self);
    hf_node_turn(self->node, now);
    add_since(&self->used, from);
    add_turn(&self->turns, self->used, self->node->machine.applied == applied);
    self->used = (struct duration){0};
    flush_node(self);
}

static void turn_all(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].node)
            turn_node(&nodes[i]);
    }
}

/* ---- Commands -----------------------------------------------------------*/

struct op {
    struct hf_node_request request;
    uint8_t bytes[256];
    uint64_t token;
};

static struct op window[WINDOW];
static struct hf_node *leader;
static uint64_t session, in_flight;
static uint64_t sequence = 1; /* of the next command */

static void on_done(struct hf_node_request *request,
                    const struct hf_node_outcome *outcome)
{
    struct op *op = HF_CONTAINER(request, struct op, request);

    bench_check("a command", outcome->err ? outcome->err : outcome->result.err);
    op->token = outcome->result.token;
    if (session == 0)
        session = outcome->result.session; /* the first command is OPEN */
    in_flight--;
}

static void submit_op(struct op *op, struct hf_command *command)
{
    struct hf_buf buf = {0};

    hf_command_encode(command, HF_VERSION_FIRST, &buf);
    if (buf.failed || buf.size > sizeof(op->bytes))
        bench_fail("a command is too long");
    memcpy(op->bytes, buf.data, buf.size);
    op->request = (struct hf_node_request){
        .kind = HF_NODE_COMMAND,
        .command = {op->bytes, buf.size},
        .deadline = now_ms() + 600000,
        .done = on_done,
    };
    hf_buf_fini(&buf);
    in_flight++;
    bench_check("hf_requests_submit", hf_requests_submit(leader, &op->request));
}

/* LOCK a key, or UNLOCK the one that `op` has locked. */
static void submit_command(struct op *op, uint64_t key, bool is_lock)
{
    char text[32];
    struct hf_command command = {
        .kind = is_lock ? HF_COMMAND_LOCK : HF_COMMAND_UNLOCK,
        .session = session,
        .sequence = sequence,
        .done = sequence > WINDOW ? sequence - WINDOW : 1,
        .token = is_lock ? 0 : op->token,
        .lease_ms = is_lock ? LEASE_MS : 0,
    };

    (void)snprintf(text, sizeof(text), "key-%llu", (unsigned long long)key);
    command.key = (struct hf_key){text, strlen(text)};
    memcpy(command.nonce.bytes, &key, sizeof(key));
    sequence++;
    submit_op(op, &command);
}

/* Lock `count` keys from `first` on; or, with `pairs`, lock and unlock WINDOW
 * keys again and again, `count` times in all. All commands of a window are
 * answered before the next window is sent. */
static void run_windows(uint64_t count, uint64_t first, bool pairs)
{
    for (uint64_t i = 0; i < count; i += WINDOW) {
        for (unsigned half = 0; half < (pairs ? 2 : 1); half++) {
            for (unsigned j = 0; j < WINDOW; j++)
                submit_command(&window[j], first + (pairs ? j : i + j),
                               half == 0);
            while (in_flight > 0)
                turn_all();
        }
    }
}

static void elect_leader(void)
{
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = {{1}}};

    while (!leader) {
        turn_all();
        for (unsigned i = 0; i < NODES; i++) {
            if (nodes[i].node && nodes[i].node->in_office)
                leader = nodes[i].node;
        }
    }
    submit_op(&window[0], &open);
    while (in_flight > 0)
        turn_all();
    bench_check("hf_attachments_add", hf_attachments_add(leader, session, 1));
}

/* ---- Figures ------------------------------------------------------------*/

static double mebibytes_on_disk(const struct bench_node *self)
{
    DIR *stream = opendir(self->path);
    struct dirent *entry;
    double bytes = 0;

    while (stream && (entry = readdir(stream))) {
        struct stat about;

        if (!fstatat(dirfd(stream), entry->d_name, &about, 0) &&
            S_ISREG(about.st_mode))
            bytes += (double)about.st_size;
    }
    if (stream)
        (void)closedir(stream);
    return bytes / 1048576;
}

static double mebibytes_resident(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long total = 0, resident = 0;

    if (file) {
        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers. */
        if (fscanf(file, "%lu %lu", &total, &resident) != 2)
            resident = 0;
        (void)fclose(file);
    }
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

static void report(struct bench_table *table, const char *phase,
                   struct bench_node *self)
{
    struct samples *turns = &self->turns;

    bench_sort(turns->at, turns->count);
    bench_table_text(table, phase);
    bench_table_number(table, self->number + 1);
    bench_table_number(table, bench_quantile(turns->at, turns->count, 0.5));
    bench_table_number(table, bench_quantile(turns->at, turns->count, 0.99));
    bench_table_number(table, turns->longest / 1e3);
    bench_table_number(table, (double)turns->switches);
    bench_table_number(table, turns->longest_real / 1e3);
    bench_table_number(table, (double)self->node->compaction.count);
    bench_table_number(table, mebibytes_on_disk(self));
    bench_table_number(table, mebibytes_resident());
    turns->count = 0;
    turns->longest = turns->longest_real = 0;
    turns->switches = 0;
}

static bool is_busy(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].job ||
            (nodes[i].node && nodes[i].node->compaction.target != 0))
            return true;
    }
    return false;
}

/* Add a row for each node, once no compaction is in progress: its second table
 * would be counted as memory. */
static void report_all(struct bench_table *table, const char *phase)
{
    do
        turn_all();
    while (is_busy());
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].node)
            report(table, phase, &nodes[i]);
    }
}

static void measure(struct bench_table *table)
{
    start_node(0);
    start_node(1);
    elect_leader();
    run_windows(KEYS, 0, false);
    report_all(table, "lock 1 M keys");
    run_windows(PAIRS / 2, KEYS, true);
    report_all(table, "0.5 M pairs");
    run_windows(PAIRS / 2, KEYS, true);
    report_all(table, "0.5 M pairs");
    start_node(2);
    while (nodes[2].node->transfers.installed == 0)
        run_windows(WINDOW, KEYS, true);
    run_windows(PAIRS / 10, KEYS, true);
    report_all(table, "a third node joins");
}

static void stop_nodes(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        while (nodes[i].job)
            turn_jobs(&nodes[i]);
        hf_node_close(nodes[i].node);
        nodes[i].disk->ops->close_directory(nodes[i].disk);
        for (unsigned j = 0; j < NODES; j++)
            hf_buf_fini(&nodes[i].inbox[j]);
        free(nodes[i].turns.at);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_column columns[] = {
        {"phase", "phase", BENCH_TEXT},
        {"node", "node", 0},
        {"turn µs", "turn_us", 0},
        {"99 %", "turn_us_p99", 0},
        {"longest ms", "turn_ms_max", 2},
        {"switches", "turn_switches", 0},
        {"real ms", "turn_real_ms_max", 2},
        {"snapshots", "snapshots", 0},
        {"disk MiB", "disk_mib", 0},
        {"all RSS MiB", "rss_mib", 0},
        {NULL, NULL, 0},
    };
    struct bench bench = {.name = "compaction", .rounds = 1};
    static struct bench_table table;

    (void)mallopt(M_MMAP_THRESHOLD, HF_DAEMON_MMAP_BYTES); /* as holdfastd */
    bench_init(&bench, argc, argv);
    for (unsigned i = 0; i < NODES; i++)
        members[i] = (struct hf_node_member){i + 1, "", ""};
    bench_table_init(&table, "Turns of nodes with a million keys", "compaction",
                     columns);
    measure(&table);
    bench_table_print(&bench, &table);
    stop_nodes();
    return 0;
}
