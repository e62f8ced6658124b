/* torture_run.c - the rounds of `torture`: start workers, kill, stop and
 * continue them at random, collect their events, and check the history. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"
#include "loop.h"
#include "progress.h"
#include "text.h"
#include "torture.h"

#define ROUND_MIN_MS 5000 /* a round has at least 4 leases, and this long */
#define END_MS 10000      /* for workers to end by themselves */
#define FAULT_MIN_MS 10   /* between two faults */
#define PROGRESS_MS 500
#define BATCH 256 /* events that are read at a time */

/* A worker process. Its place is filled again after it was killed. */
struct slot {
    pid_t pid; /* 0: none */
    uint32_t client;
    bool killed;
    int64_t stopped_until; /* 0: not stopped */
};

struct run {
    const struct args *args;
    const struct torture_plan *plan;
    struct torture_result *result;
    struct loop loop;
    struct progress progress;
    int events[2];     /* a pipe */
    atomic_bool *stop; /* shared with the workers */
    struct slot slots[TORTURE_CLIENTS_MAX];
    uint32_t started;                   /* number of the next worker */
    bool is_ready[TORTURE_WORKERS_MAX]; /* the worker has sent an event */
    uint64_t chance;
    int64_t begun;
    int64_t fault_at; /* when to disturb the next worker */
    bool hurries;     /* a second signal has arrived */
    int64_t show_at;
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool has_torture_failed(const struct run *run)
{
    return run->result->signal || run->result->status;
}

/* ---- Processes ----------------------------------------------------------*/

/* The body of a worker process. It keeps the signals blocked: Ctrl-C reaches
 * the whole process group, and the parent decides how the run ends. */
static void run_worker(const struct run *run, uint32_t client, pid_t parent)
{
    struct torture_job job = {
        .round = run->result->rounds,
        .client = client,
        .events = run->events[1],
        .stop = run->stop,
    };

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(STATUS_SYSTEM);
    (void)close(run->events[0]);
    _exit(torture_worker_main(run->plan, &job));
}

static void start_torture_worker(struct run *run, struct slot *slot)
{
    pid_t parent = getpid(), pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0)
        run_worker(run, run->started, parent);
    if (pid < 0) {
        (void)failure(run->args, HF_ESYSTEM, "cannot start a worker: %s",
                      strerror(errno));
        run->result->status = STATUS_SYSTEM;
        return;
    }
    *slot = (struct slot){.pid = pid, .client = run->started++};
}

static void kill_worker(struct run *run, struct slot *slot)
{
    torture_history_kill(&run->result->history, slot->client);
    (void)kill(slot->pid, SIGKILL);
    slot->killed = true;
}

static void continue_worker(struct run *run, struct slot *slot)
{
    torture_history_note(&run->result->history, "continue", slot->client);
    (void)kill(slot->pid, SIGCONT);
    slot->stopped_until = 0;
}

static void stop_worker(struct run *run, struct slot *slot)
{
    uint32_t ttl_ms = run->plan->ttl_ms;
    uint64_t limit = torture_random(&run->chance, 100) < 80
                         ? ttl_ms / 8 + 1
                         : (uint64_t)ttl_ms + ttl_ms / 2;

    (void)kill(slot->pid, SIGSTOP);
    torture_history_note(&run->result->history, "stop", slot->client);
    slot->stopped_until =
        loop_now() + 1 + (int64_t)torture_random(&run->chance, limit);
    run->result->counts.stops++;
}

/* A worker ends by itself only when it is told to, and then with status 0. */
static bool is_expected(const struct run *run, const struct slot *slot,
                        int status)
{
    return slot->killed || (atomic_load(run->stop) && WIFEXITED(status) &&
                            WEXITSTATUS(status) == 0);
}

static void report_death(struct run *run, const struct slot *slot, int status)
{
    torture_history_death(&run->result->history, slot->client);
    run->result->status = STATUS_SOFTWARE;
    if (WIFSIGNALED(status))
        (void)failure(run->args, HF_ESTATE,
                      "a worker was killed by signal %d (%s), which is not one "
                      "of the faults of this test",
                      WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)failure(run->args, HF_ESTATE, "a worker failed with status %d",
                      WEXITSTATUS(status));
}

static struct slot *find_worker_slot(struct run *run, pid_t pid)
{
    for (unsigned i = 0; i < run->plan->clients; i++) {
        if (run->slots[i].pid == pid)
            return &run->slots[i];
    }
    return NULL;
}

/* Reap the workers that have ended, and replace those that were killed. */
static void reap_workers(struct run *run)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct slot *slot = find_worker_slot(run, pid);

        if (!slot)
            continue;
        if (!is_expected(run, slot, status))
            report_death(run, slot, status);
        slot->pid = 0;
        if (!atomic_load(run->stop) && !has_torture_failed(run))
            start_torture_worker(run, slot);
    }
}

static bool has_workers(const struct run *run)
{
    for (unsigned i = 0; i < run->plan->clients; i++) {
        if (run->slots[i].pid)
            return true;
    }
    return false;
}

/* ---- Faults -------------------------------------------------------------*/

static bool may_kill(const struct run *run)
{
    return run->plan->kill &&
           run->started < run->plan->clients + TORTURE_KILLS_MAX;
}

/* A worker that has not called prctl() yet is not stopped: if the parent died,
 * it would stay stopped for ever. */
static void disturb_worker(struct run *run)
{
    struct slot *slot =
        &run->slots[torture_random(&run->chance, run->plan->clients)];

    if (!slot->pid || slot->killed)
        return;
    if (may_kill(run) && torture_random(&run->chance, 2) == 0)
        kill_worker(run, slot);
    else if (!slot->stopped_until && run->is_ready[slot->client])
        stop_worker(run, slot);
}

static void disturb_if_due(struct run *run)
{
    if (loop_now() < run->fault_at)
        return;
    disturb_worker(run);
    run->fault_at =
        loop_now() + FAULT_MIN_MS +
        (int64_t)torture_random(&run->chance, run->plan->ttl_ms / 4 + 1);
}

/* Continue the stopped workers that are due; all of them if `now` is
 * LOOP_NEVER. Returns when the next one is due. */
static int64_t continue_due(struct run *run, int64_t now)
{
    int64_t next = LOOP_NEVER;

    for (unsigned i = 0; i < run->plan->clients; i++) {
        struct slot *slot = &run->slots[i];

        if (!slot->pid || slot->killed || !slot->stopped_until)
            continue;
        if (slot->stopped_until <= now)
            continue_worker(run, slot);
        else
            next = earlier(next, slot->stopped_until);
    }
    return next;
}

/* ---- One turn -----------------------------------------------------------*/

/* Read what the workers have sent. Returns false if there is nothing more. */
static bool receive_events(struct run *run)
{
    struct torture_event events[BATCH];
    ssize_t size = read(run->events[0], events, sizeof(events));

    for (ssize_t i = 0; i < size / (ssize_t)sizeof(events[0]); i++) {
        torture_history_add(&run->result->history, &events[i]);
        run->is_ready[events[i].client] = true;
    }
    return size == (ssize_t)sizeof(events);
}

static void handle_torture_signals(struct run *run)
{
    int signal;

    while ((signal = loop_signal(&run->loop))) {
        if (loop_is_stop(signal))
            loop_stop(signal, false);
        if (!loop_is_fatal(signal))
            continue;
        run->hurries = run->result->signal != 0;
        run->result->signal = signal;
    }
    reap_workers(run);
}

static void show_progress(struct run *run)
{
    const struct torture_counts *counts = &run->result->counts;
    int64_t now = loop_now();
    char limit[TEXT_SPAN_SIZE], text[256];

    if (now < run->show_at)
        return;
    run->show_at = now + PROGRESS_MS;
    text_span(run->plan->for_ms, limit);
    (void)snprintf(text, sizeof(text),
                   "holdfast: %" PRId64 "s of %s, %" PRIu64
                   " operations, %" PRIu64 " grants, %" PRIu64
                   " kills, %" PRIu64 " in doubt",
                   (now - run->begun) / 1000, limit, counts->operations,
                   counts->grants, counts->kills, counts->in_doubt);
    progress_show_text(&run->progress, text);
}

static void take_turn(struct run *run, int64_t until)
{
    if (run->progress.wanted)
        until = earlier(until, run->show_at);
    if (loop_sleep(&run->loop, NULL, run->events[0], until, NULL, NULL))
        (void)receive_events(run);
    handle_torture_signals(run);
    show_progress(run);
}

/* ---- Rounds -------------------------------------------------------------*/

static int64_t run_end(const struct run *run)
{
    return run->begun + run->plan->for_ms;
}

static int64_t round_end(const struct run *run)
{
    int64_t length = 4 * (int64_t)run->plan->ttl_ms;

    return earlier(run_end(run),
                   loop_now() +
                       (length > ROUND_MIN_MS ? length : ROUND_MIN_MS));
}

static void begin_torture_round(struct run *run)
{
    struct torture_result *result = run->result;

    if (result->has_history)
        torture_history_fini(&result->history);
    torture_history_init(&result->history, run->plan, ++result->rounds,
                         &result->counts, &result->last_err);
    result->has_history = true;
    atomic_store(run->stop, false);
    run->started = 0;
    memset(run->is_ready, 0, sizeof(run->is_ready));
    run->fault_at = loop_now();
    for (unsigned i = 0; i < run->plan->clients && !has_torture_failed(run);
         i++)
        start_torture_worker(run, &run->slots[i]);
}

static void load_store(struct run *run)
{
    const struct hf_check_history *history =
        hf_recorder_history(&run->result->history.recorder);
    int64_t end = round_end(run), next;

    while (!has_torture_failed(run) && loop_now() < end &&
           history->op_count < TORTURE_OPERATIONS_MAX) {
        next = continue_due(run, loop_now());
        take_turn(run, earlier(earlier(next, run->fault_at), end));
        disturb_if_due(run);
    }
}

static void kill_all(struct run *run)
{
    for (unsigned i = 0; i < run->plan->clients; i++) {
        struct slot *slot = &run->slots[i];

        if (!slot->pid || slot->killed)
            continue;
        failure_warn(run->args, HF_OK,
                     "client %" PRIu32 " did not end in time and was killed",
                     slot->client);
        kill_worker(run, slot);
    }
}

/* Let the workers release their locks and end. Read their events meanwhile: a
 * full pipe would block them. */
static void end_workers(struct run *run)
{
    int64_t until = loop_now() + END_MS;

    atomic_store(run->stop, true);
    (void)continue_due(run, LOOP_NEVER);
    while (has_workers(run)) {
        if (loop_now() >= until || run->hurries) {
            kill_all(run);
            until = LOOP_NEVER;
        }
        take_turn(run, until);
    }
    while (receive_events(run))
        continue;
}

/* Returns true if the run goes on. */
static bool run_round(struct run *run)
{
    struct torture_result *result = run->result;

    begin_torture_round(run);
    load_store(run);
    end_workers(run);
    torture_history_check(&result->history, &result->report);
    failure_trace(run->args, "round %" PRIu32 " checked: %zu operations",
                  result->rounds,
                  hf_recorder_history(&result->history.recorder)->op_count);
    return !has_torture_failed(run) && result->report.violation_count == 0 &&
           loop_now() < run_end(run);
}

/* ---- The run ------------------------------------------------------------*/

static int open_run(struct run *run)
{
    int err = loop_open(&run->loop);

    if (err)
        return err;
    if (pipe2(run->events, O_CLOEXEC) ||
        fcntl(run->events[0], F_SETFL, O_NONBLOCK))
        return errno;
    run->stop = mmap(NULL, sizeof(*run->stop), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return run->stop == MAP_FAILED ? errno : 0;
}

void torture_run(const struct args *args, const struct torture_plan *plan,
                 struct torture_result *result)
{
    struct run run = {
        .args = args,
        .plan = plan,
        .result = result,
        .events = {-1, -1},
        .chance = plan->seed,
        .begun = loop_now(),
    };
    int err = open_run(&run);

    if (err) {
        (void)failure(args, HF_ESYSTEM, "cannot prepare the test: %s",
                      strerror(err));
        result->status = STATUS_SYSTEM;
        return;
    }
    progress_init(&run.progress, !args->json);
    while (run_round(&run))
        continue;
    progress_clear(&run.progress);
    result->elapsed_ms = (uint64_t)(loop_now() - run.begun);
    (void)munmap(run.stop, sizeof(*run.stop));
    (void)close(run.events[0]);
    (void)close(run.events[1]);
    loop_close(&run.loop);
}
