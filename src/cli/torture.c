/* torture.c - test whether a store keeps its promises while clients are killed
 * and stopped. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"
#include "hf-check/report.h"
#include "json.h"
#include "loop.h"
#include "text.h"
#include "torture.h"
#include "url.h"

#define TTL_DEFAULT_MS 2000
#define FOR_DEFAULT_MS 60000
#define CLIENTS_DEFAULT 8
#define KEYS_DEFAULT 4
#define PROBE_MS 5000

/* ---- Probing the store --------------------------------------------------*/

struct probe {
    enum hf_err err;
    uint32_t caps;
    struct hf_error error;
};

static void try_tortured_lock(struct hf_client *client,
                              const struct torture_plan *plan,
                              struct probe *probe)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char key[TORTURE_KEY_SIZE];

    torture_key(plan, 0, 0, key);
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    opts.timeout_ms = PROBE_MS;
    opts.error = &probe->error;
    probe->err = hf_acquire(client, hf_key_of(key), &opts, &lock);
    if (probe->err)
        return;
    (void)hf_release(lock);
    hf_lock_free(lock);
}

static void examine_tortured_store(const struct torture_plan *plan,
                                   struct probe *probe)
{
    struct hf_client_opts opts;
    struct hf_client *client;

    hf_client_opts_init(&opts);
    opts.error = &probe->error;
    probe->err = hf_open(plan->url, &opts, &client);
    if (probe->err)
        return;
    probe->caps = hf_caps(client);
    try_tortured_lock(client, plan, probe);
    (void)hf_close(client, PROBE_MS);
}

/* Find out in a process of its own whether the store can be used, and what it
 * promises: this process forks the workers, so it opens no client itself. */
static bool probe_store(const struct torture_plan *plan, struct probe *probe)
{
    pid_t parent = getpid(), pid;
    ssize_t size;
    int pipe[2];

    if (pipe2(pipe, O_CLOEXEC))
        return false;
    pid = fork();
    if (pid == 0) {
        *probe = (struct probe){0};
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
            _exit(STATUS_SYSTEM);
        examine_tortured_store(plan, probe);
        size = write(pipe[1], probe, sizeof(*probe));
        _exit(size == (ssize_t)sizeof(*probe) ? STATUS_OK : STATUS_SYSTEM);
    }
    (void)close(pipe[1]);
    size = pid > 0 ? read(pipe[0], probe, sizeof(*probe)) : -1;
    (void)close(pipe[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return size == (ssize_t)sizeof(*probe);
}

static int check_store(const struct args *args, struct torture_plan *plan)
{
    struct probe probe;

    if (!probe_store(plan, &probe)) {
        (void)failure(args, HF_ESYSTEM, "cannot examine the store: %s",
                      strerror(errno));
        return STATUS_SYSTEM;
    }
    if (probe.err)
        return failure(args, probe.err, "%s",
                       probe.error.text[0] ? probe.error.text
                                           : hf_err_text(probe.err));
    plan->caps = probe.caps;
    return STATUS_OK;
}

/* ---- The history file ---------------------------------------------------*/

struct history_file {
    char *path;
    FILE *out; /* NULL: not open */
};

/* With --history, open the file before the run: an hour later would be too late
 * to find that it cannot be written. */
static int prepare_history(const struct args *args,
                           const struct torture_plan *plan,
                           struct history_file *file)
{
    if (!args->history) {
        if (asprintf(&file->path, "holdfast-torture-%" PRIu64 ".jsonl",
                     plan->seed) < 0)
            failure_no_memory();
        return STATUS_OK;
    }
    file->path = text_copy(args->history);
    file->out = fopen(file->path, "we");
    if (file->out)
        return STATUS_OK;
    (void)failure(args, HF_ESYSTEM, "--history: cannot write %s: %s",
                  file->path, strerror(errno));
    return STATUS_OUTPUT;
}

static bool write_file(struct history_file *file, struct hf_recorder *recorder)
{
    bool written;

    if (!file->out)
        file->out = fopen(file->path, "we");
    if (!file->out)
        return false;
    written = hf_recorder_write(recorder, file->out) == 0;
    written = fclose(file->out) == 0 && written;
    file->out = NULL;
    return written;
}

/* Write the history of the last round: always with --history, else if there is
 * a violation. Returns true if it was written. */
static bool write_history(const struct args *args, struct history_file *file,
                          struct torture_result *result)
{
    if (!result->has_history ||
        (!args->history && result->report.violation_count == 0))
        return false;
    if (write_file(file, &result->history.recorder))
        return true;
    failure_warn(args, HF_ESYSTEM, "cannot write the history to %s: %s",
                 file->path, strerror(errno));
    return false;
}

/* ---- The report ---------------------------------------------------------*/

static size_t listed_count(const struct hf_check_report *report)
{
    return report->violation_count < HF_CHECK_LIST_MAX ? report->violation_count
                                                       : HF_CHECK_LIST_MAX;
}

static const char *key_of(const struct torture_result *result,
                          const struct hf_check_violation *violation,
                          size_t *size)
{
    const struct hf_check_history *history =
        hf_recorder_history(&result->history.recorder);

    return hf_intern_bytes(&history->strings, violation->key, size);
}

static void put_violations(struct json *json,
                           const struct torture_result *result)
{
    json_number(json, "violations", result->report.violation_count);
    json_begin_array(json, "found");
    for (size_t i = 0; i < listed_count(&result->report); i++) {
        const struct hf_check_violation *found = &result->report.violations[i];
        size_t size;
        const char *key = key_of(result, found, &size);

        json_begin_element(json);
        json_text(json, "kind", hf_check_kind_name(found->kind));
        json_bytes(json, "key", key, size);
        json_text(json, "text", hf_check_kind_text(found->kind));
        json_end(json);
    }
    json_end_array(json);
}

static void print_result_json(const struct torture_plan *plan,
                              const struct torture_result *result,
                              const char *path)
{
    const struct torture_counts *counts = &result->counts;
    struct json json;

    json_open(&json, stdout);
    json_integer(&json, "seed", plan->seed);
    json_number(&json, "elapsed_ms", result->elapsed_ms);
    json_number(&json, "rounds", result->rounds);
    json_number(&json, "operations", counts->operations);
    json_number(&json, "grants", counts->grants);
    json_number(&json, "busy", counts->busy);
    json_number(&json, "in_doubt", counts->in_doubt);
    json_number(&json, "kills", counts->kills);
    json_number(&json, "stops", counts->stops);
    put_violations(&json, result);
    if (path)
        json_text(&json, "history", path);
    json_close(&json);
}

static void print_result_text(const struct torture_plan *plan,
                              const struct torture_result *result)
{
    const struct torture_counts *counts = &result->counts;
    char span[TEXT_SPAN_SIZE];

    text_span(result->elapsed_ms, span);
    (void)printf("%" PRIu64 " operations, %" PRIu64 " grants, %" PRIu64
                 " busy, %" PRIu64 " in doubt, %" PRIu64 " kills, %" PRIu64
                 " stops in %s, seed %" PRIu64 "\n",
                 counts->operations, counts->grants, counts->busy,
                 counts->in_doubt, counts->kills, counts->stops, span,
                 plan->seed);
    if (result->report.violation_count == 0)
        (void)puts("no violation");
}

static void report_violation(const struct args *args,
                             const struct torture_plan *plan,
                             const struct torture_result *result,
                             const char *path)
{
    const struct hf_check_violation *first = &result->report.violations[0];
    const struct hf_check_history *history =
        hf_recorder_history(&result->history.recorder);
    bool fenced = plan->caps & HF_CAP_FENCE;
    size_t size;
    const char *key = key_of(result, first, &size);

    if (args->json)
        return;
    hf_report_text(history, &result->report, path ? path : "history", stdout);
    (void)fflush(stdout);
    (void)fprintf(stderr, "holdfast: violation: %s of the key %.*s: %s\n",
                  hf_check_kind_name(first->kind), (int)size, key,
                  hf_check_kind_text(first->kind));
    if (path)
        (void)fprintf(stderr,
                      "holdfast: the history is in %s; check it with "
                      "'hf-check %s%s'\n",
                      path, fenced ? "" : "--no-fence ", path);
}

static int report_result(const struct args *args,
                         const struct torture_plan *plan,
                         struct torture_result *result,
                         struct history_file *file)
{
    bool written = write_history(args, file, result);
    const char *path = written ? file->path : NULL;

    if (result->report.violation_count > 0) {
        report_violation(args, plan, result, path);
    } else if (result->status) {
        return result->status; /* it is reported */
    } else if (result->counts.grants == 0 && !result->signal) {
        return failure(args, HF_EUNAVAIL, "no lock was granted; %s",
                       result->last_err ? hf_err_text(result->last_err)
                                        : "try a longer time with --for");
    }
    if (args->json)
        print_result_json(plan, result, path);
    else
        print_result_text(plan, result);
    if (result->report.violation_count > 0)
        return STATUS_VIOLATION;
    return args->history && !written ? STATUS_OUTPUT : STATUS_OK;
}

/* ---- The verb -----------------------------------------------------------*/

static void fill_plan(const struct args *args, struct torture_plan *plan)
{
    *plan = (struct torture_plan){
        .ttl_ms = args->given & OPTION(TTL) ? args->ttl_ms : TTL_DEFAULT_MS,
        .for_ms = args->given & OPTION(FOR) ? args->for_ms : FOR_DEFAULT_MS,
        .clients = args->clients ? args->clients : CLIENTS_DEFAULT,
        .keys = args->key_count ? args->key_count : KEYS_DEFAULT,
        .kill = args->kill,
        .seed = args->seed,
    };
    if (getrandom(&plan->run, sizeof(plan->run), 0) < 0)
        plan->run = torture_now() ^ (uint64_t)getpid() << 32;
    /* A short seed is easier to type. */
    if (!(args->given & OPTION(SEED)))
        plan->seed = plan->run % 1000000000;
}

static int run_and_report(const struct args *args,
                          const struct torture_plan *plan)
{
    struct torture_result *result = calloc(1, sizeof(*result));
    struct history_file file = {0};
    int status, signal;

    if (!result)
        failure_no_memory();
    status = prepare_history(args, plan, &file);
    if (!status) {
        torture_run(args, plan, result);
        status = report_result(args, plan, result, &file);
    }
    signal = result->signal;
    if (result->has_history)
        torture_history_fini(&result->history);
    if (file.out)
        (void)fclose(file.out);
    free(file.path);
    free(result);
    if (signal && status == STATUS_OK && !failure_flush(args, status))
        loop_die(signal);
    return status;
}

static int torture_main(struct args *args)
{
    struct torture_plan plan;
    char *url;
    int status;

    if (args->word_count > 0 && args->url)
        return failure_usage(args, "give the URL as an argument or with --url, "
                                   "not both");
    if (args->word_count > 0)
        args->url = args->words[0];
    url = url_take(args, &status);
    if (!url)
        return status;
    fill_plan(args, &plan);
    plan.url = url;
    failure_trace(args, "the seed is %" PRIu64, plan.seed);
    status = check_store(args, &plan);
    if (!status)
        status = run_and_report(args, &plan);
    url_free(url);
    return status;
}

const struct verb verb_torture = {
    .name = "torture",
    .words = "[URL]",
    .summary = "test whether a store keeps its promises",
    .text =
        "Starts client processes that acquire, renew, update, read and\n"
        "release locks at random in the store at URL, or in the one that\n"
        "other verbs would use, and stops and continues these processes; with\n"
        "--kill, it also kills them. Every call is recorded, and every few\n"
        "seconds the history is checked: there is one valid holder at a time,\n"
        "the results fit one order of events, and if the store has the\n"
        "capability fence (see 'doctor'), tokens increase. To test more,\n"
        "restart servers or cut connections meanwhile.\n"
        "\n"
        "The status is 0 if the time has passed without a violation, 1 after\n"
        "the first violation, and 69 if no lock could be taken. The history\n"
        "of a violation is written to a file for hf-check. A seed repeats the\n"
        "random choices, but not the timing. All keys begin with\n"
        "'holdfast-torture/'.\n",
    .examples = "  holdfast torture --kill\n"
                "  holdfast torture --for 10m --clients 20 redis://db1/0\n"
                "\n"
                "A cluster on this machine, with a leader that is killed:\n"
                "  export HOLDFAST_URL=$(holdfast cluster up)\n"
                "  holdfast torture --kill & sleep 10\n"
                "  kill -9 $(holdfast status --json |\n"
                "      jq '.nodes[] | select(.role == \"leader\").pid')\n"
                "  wait $!\n",
    .options = OPTION(FOR) | OPTION(CLIENTS) | OPTION(KEY_COUNT) | OPTION(TTL) |
               OPTION(KILL) | OPTION(HISTORY) | OPTION(SEED),
    .words_min = 0,
    .words_max = 1,
    .main = torture_main,
};
