/* run.c - run a command while holding a lock.
 *
 * The lock is renewed for as long as the command runs, and the command is
 * stopped before the lock's validity ends:
 *
 *     0           ttl/3               end - grace    end - margin   end
 *     |-------------|----------------------|---------------|---------|
 *     granted     renewal due           SIGTERM         SIGKILL   validity
 *                                                                   ends
 *
 * With mongodb: renewal is due at ttl/6. Each renewal moves `end`. This program
 * may have been stopped during a sleep, so it reads `end` again after every
 * sleep, before anything else.
 *
 * The lock is also kept while stragglers run, processes that the command has
 * left running (unless -o is given). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "failure.h"
#include "nested.h"
#include "reach.h"
#include "store.h"
#include "take.h"
#include "text.h"
#include "url.h"

#define GRACE_MAX_MS 5000
#define MARGIN_MAX_MS 100 /* time for a SIGKILL to take effect */
#define STRAGGLERS_MS 20  /* interval between checks while we stop stragglers */
#define REPORT_MS 1000    /* delay before we report what we wait for */

struct run {
    struct args *args;
    struct loop loop;
    struct reach reach;
    struct hf_client *client;
    struct take take;
    struct child child;
    bool stopping;       /* the lock is lost or about to be: end the command */
    bool killed;         /* SIGKILL was sent */
    int64_t killed_at;   /* when SIGKILL was sent */
    pid_t refused;       /* a process that we may not signal, or 0 */
    int64_t report_at;   /* when to report stragglers; LOOP_NEVER: never */
    bool straggling;     /* the command has ended, but left processes running */
    bool reported;       /* the loss was reported while processes still ran */
    bool terminated;     /* a fatal signal was forwarded to the stragglers */
    int64_t end;         /* the end of validity, if stopping */
    struct hf_error why; /* why the lock was lost or not released */
    bool interrupted;    /* Ctrl-C ended the command */
};

/* ---- The lease ----------------------------------------------------------*/

static int64_t grace_ms(const struct run *run)
{
    uint32_t quarter = run->args->ttl_ms / 4;

    return quarter < GRACE_MAX_MS ? quarter : GRACE_MAX_MS;
}

static int64_t margin_ms(const struct run *run)
{
    uint32_t part = run->args->ttl_ms / 20 + 1;

    return part < MARGIN_MAX_MS ? part : MARGIN_MAX_MS;
}

/* Record why the lock is lost. It is reported later, after SIGKILL was sent or
 * the command has ended: stderr may be a pipe that nobody reads, and a blocked
 * write would delay the SIGKILL. */
static void begin_stopping(struct run *run)
{
    if (run->stopping)
        return;
    run->stopping = true;
    run->end = hf_lock_deadline(run->take.lock);
    hf_lock_error(run->take.lock, &run->why);
}

/* Kill all processes of the command if validity is about to end or has ended.
 * Call this first after every sleep, because validity may have ended in the
 * meantime. Once we are stopping, a late renewal does not extend `end`. */
static void enforce_end(void *arg)
{
    struct run *run = arg;
    int64_t end = hf_lock_deadline(run->take.lock); /* 0 if it is lost */

    if (run->stopping && run->end < end)
        end = run->end;
    if (run->killed || loop_now() < end - margin_ms(run))
        return;
    run->refused = child_signal_all(&run->child, SIGKILL);
    run->killed = true;
    run->killed_at = loop_now();
    begin_stopping(run);
}

/* Send SIGTERM if validity ends within grace_ms(), or SIGKILL if it is about to
 * end. Call this after hf_process(), because a renewal that was just confirmed
 * makes both signals unnecessary. */
static void enforce_grace(struct run *run)
{
    enforce_end(run);
    if (run->stopping ||
        loop_now() < hf_lock_deadline(run->take.lock) - grace_ms(run))
        return;
    begin_stopping(run);
    child_adopt();
    (void)child_signal_all(&run->child, SIGTERM);
    /* A stopped process handles SIGTERM only after it is continued. */
    (void)child_signal_all(&run->child, SIGCONT);
}

static int64_t earlier_time(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_wakeup(const struct run *run)
{
    int64_t now = loop_now();
    int64_t soon = now + STRAGGLERS_MS;
    int64_t kill_at = run->end - margin_ms(run);

    if (!run->stopping)
        return earlier_time(
            hf_lock_deadline(run->take.lock) - grace_ms(run),
            earlier_time(run->report_at, take_report_at(&run->take)));
    if (run->killed)
        return now < run->killed_at + REPORT_MS ? soon : now + REPORT_MS;
    return run->child.reaped ? earlier_time(soon, kill_at) : kill_at;
}

/* ---- Processes that are left --------------------------------------------*/

static int report_loss(const struct run *run, const char *how)
{
    struct hf_key key = args_key(run->args);
    char *word = text_quote(key.data, key.size);
    bool known = run->why.code != HF_OK;

    (void)failure(run->args, known ? run->why.code : HF_EEXPIRED,
                  "%s: the lock was lost while the command ran: %s%s", word,
                  known ? run->why.text : "it was not renewed in time", how);
    free(word);
    return STATUS_LOST;
}

/* Send SIGKILL again, for processes that were started since the first SIGKILL.
 * If we may not signal a process, or SIGKILL does not end it, it keeps running
 * without the lock: we can only report that process, and wait for its end. */
static void kill_survivors(struct run *run)
{
    char how[160], name[DESCENDANT_NAME_SIZE];
    pid_t pid;

    if (!run->killed || run->reported)
        return;
    run->refused = child_signal_all(&run->child, SIGKILL);
    pid = run->refused;
    if (!pid && loop_now() >= run->killed_at + REPORT_MS)
        pid = descendants_first(&run->child.descendants);
    if (!pid)
        return;
    (void)descendants_name(pid, name);
    (void)snprintf(how, sizeof(how),
                   "; %s[%ld] cannot be stopped (%s) and keeps running WITHOUT "
                   "THE LOCK; waiting for it to end",
                   name, (long)pid,
                   run->refused ? "it belongs to another user"
                                : "SIGKILL does not end it");
    (void)report_loss(run, how);
    run->reported = true;
}

/* Report once, REPORT_MS after the command has ended, that the lock is kept for
 * stragglers. */
static void report_stragglers(struct run *run)
{
    char name[DESCENDANT_NAME_SIZE];
    pid_t pid;

    if (!run->child.reaped || run->child.detached || run->stopping)
        return;
    if (!run->straggling) {
        run->straggling = true;
        run->report_at = loop_now() + REPORT_MS;
    }
    if (loop_now() < run->report_at)
        return;
    run->report_at = LOOP_NEVER;
    pid = descendants_first(&run->child.descendants);
    if (!pid || !loop_can_report())
        return;
    (void)descendants_name(pid, name);
    failure_warn(run->args, HF_OK,
                 "the command exited with status %d, but left %s[%ld] running: "
                 "the lock is kept until that process ends (see -o)",
                 run->child.status, name, (long)pid);
}

/* ---- While the command runs ---------------------------------------------*/

/* Forward a signal to the processes that the command has left running. A stop
 * signal stops them and this program, until this program is continued. The
 * first fatal signal is sent as SIGTERM, because a shell's background processes
 * ignore SIGINT, and the second fatal signal as SIGKILL. */
static void signal_stragglers(struct run *run, int signal)
{
    if (loop_is_stop(signal)) {
        (void)child_signal_all(&run->child, SIGSTOP);
        loop_stop(signal, false);
        enforce_end(run);
        (void)child_signal_all(&run->child, SIGCONT);
    } else if (loop_is_fatal(signal)) {
        (void)child_signal_all(&run->child,
                               run->terminated ? SIGKILL : SIGTERM);
        run->terminated = true;
    }
}

static void on_run_signal(struct run *run, int signal)
{
    if (signal == SIGCHLD)
        return;
    if (signal == SIGCONT)
        child_resume(&run->child);
    else if (run->child.reaped)
        signal_stragglers(run, signal);
    else
        child_signal(&run->child, signal);
}

/* Returns true if no process is left that the lock is kept for. */
static bool is_finished(const struct run *run)
{
    if (!run->child.reaped)
        return false;
    if (run->child.detached && (!run->stopping || run->killed))
        return true;
    return !child_is_left(&run->child);
}

static void supervise(struct run *run)
{
    while (!is_finished(run)) {
        int signal;

        (void)loop_sleep(&run->loop, run->client, -1, next_wakeup(run),
                         enforce_end, run);
        enforce_grace(run);
        take_report_renewal(&run->take);
        while ((signal = loop_signal(&run->loop)))
            on_run_signal(run, signal);
        signal = child_reap(&run->child);
        if (signal && child_follow(&run->child, signal)) {
            enforce_end(run); /* the lock may have been lost meanwhile */
            child_resume(&run->child);
        }
        kill_survivors(run);
        report_stragglers(run);
    }
}

/* ---- After the command --------------------------------------------------*/

/* Release the lock. Returns false if we lost the lock without noticing, because
 * the store no longer has it or the key has another holder. */
static bool release_lock(struct run *run)
{
    enum hf_err err = hf_release(run->take.lock);
    struct hf_key key = args_key(run->args);
    char *word;

    if (err == HF_OK || run->stopping)
        return true;
    hf_lock_error(run->take.lock, &run->why);
    if (err != HF_EUNAVAIL && err != HF_EINDOUBT && err != HF_ENOMEM &&
        err != HF_ESYSTEM)
        return false;
    word = text_quote(key.data, key.size);
    failure_warn(run->args, err,
                 "%s: the lock was held until the command ended, but could not "
                 "be released: %s; it may stay held for %u ms",
                 word, run->why.code ? run->why.text : hf_err_text(err),
                 run->args->ttl_ms);
    free(word);
    return true;
}

static int report_exec_failure(const struct run *run)
{
    int err = run->child.exec_err;
    const char *name = run->args->command[0];
    char *word = text_quote(name, strlen(name));

    (void)failure(run->args, HF_ESYSTEM, "%s: %s", word, strerror(err));
    free(word);
    return run->child.status;
}

static const char *how_stopped(const struct run *run)
{
    if (run->killed)
        return "; the command was killed";
    return run->stopping ? "; the command was sent SIGTERM" : "";
}

static int finish_run(struct run *run)
{
    bool kept;

    child_end(&run->child);
    kept = release_lock(run);
    if (run->reported)
        return STATUS_LOST;
    if (run->stopping || !kept)
        return report_loss(run, how_stopped(run));
    if (run->child.exec_err)
        return report_exec_failure(run);
    failure_trace(run->args, "the command exited with status %d",
                  run->child.status);
    run->interrupted = run->child.foreground && run->child.signal == SIGINT;
    return run->child.status;
}

/* ---- Starting -----------------------------------------------------------*/

static bool export_lock(const struct run *run)
{
    uint8_t nonce[HF_NONCE_SIZE];
    char hex[2 * HF_NONCE_SIZE + 1], token[24], ttl[16];
    bool set;

    hf_lock_nonce(run->take.lock, nonce);
    text_hex(nonce, sizeof(nonce), hex);
    (void)snprintf(token, sizeof(token), "%llu",
                   (unsigned long long)hf_lock_token(run->take.lock));
    (void)snprintf(ttl, sizeof(ttl), "%u", run->args->ttl_ms);
    set = !setenv("HOLDFAST_KEY", run->args->words[0], 1) &&
          !setenv("HOLDFAST_TOKEN", token, 1) &&
          !setenv("HOLDFAST_NONCE", hex, 1) &&
          !setenv("HOLDFAST_TTL_MS", ttl, 1) && url_export(run->reach.url) &&
          nested_export(hf_lock_token(run->take.lock), run->reach.owner);
    explicit_bzero(nonce, sizeof(nonce));
    explicit_bzero(hex, sizeof(hex));
    return set;
}

static void warn_of_privileges(const struct run *run)
{
    const char *name = run->args->command[0];
    enum child_privilege privilege = child_find_privilege(name);
    char *word = text_quote(name, strlen(name));

    if (privilege == CHILD_OTHER_USER)
        failure_warn(run->args, HF_OK,
                     "%s runs as another user (set-user-ID) and may not be "
                     "stopped if the lock is lost; use '%s holdfast run ...' "
                     "instead",
                     word, word);
    if (privilege == CHILD_LEAVES_US)
        failure_warn(run->args, HF_OK,
                     "%s changes its user or group (set-user-ID or "
                     "set-group-ID), so it goes on without the lock if this "
                     "process is ended with SIGKILL; use SIGTERM",
                     word);
    free(word);
}

static int run_under_lock(struct run *run)
{
    int err = export_lock(run) ? 0 : ENOMEM;

    warn_of_privileges(run);
    if (!err)
        err = child_start(&run->child, run->args->command, &run->loop,
                          run->args->close);
    if (err) {
        (void)failure(run->args, HF_ESYSTEM, "cannot start a process: %s",
                      strerror(err));
        return STATUS_SYSTEM;
    }
    supervise(run);
    return finish_run(run);
}

static int run_main(struct args *args)
{
    char owner[HF_NOTE_MAX + 1];
    struct run run = {.args = args, .report_at = LOOP_NEVER};
    int err = loop_open(&run.loop);
    int status;

    if (err) {
        (void)failure(args, HF_ESYSTEM, "cannot wait for signals: %s",
                      strerror(err));
        return STATUS_SYSTEM;
    }
    store_label(owner, args->command[0], (long)getpid());
    run.reach = (struct reach){
        .args = args,
        .owner = owner,
        .loop = &run.loop,
        .inherit = !args->close,
    };
    if (!reach_store(&run.reach, &status)) {
        if (run.reach.signal)
            loop_die(run.reach.signal);
        return status;
    }
    run.client = run.reach.client;
    if (take_lock(&run.take, args, &run.loop, run.client, true, &status))
        status = run_under_lock(&run);
    store_close(run.client);
    take_fini(&run.take);
    url_free(run.reach.url);
    if (run.take.signal)
        loop_die(run.take.signal);
    /* The terminal sent SIGINT to the command's process group only. Forward it
     * to our own group: a script or make(1) there would have received it if it
     * had run the command without us. */
    if (run.interrupted) {
        (void)kill(0, SIGINT);
        loop_die(SIGINT);
    }
    loop_close(&run.loop);
    return status;
}

const struct verb verb_run = {
    .name = "run",
    .words = "KEY -- COMMAND [ARGUMENT...]",
    .summary = "run a command while holding a lock",
    .text =
        "Takes the lock on KEY, waiting in the queue if it is held, runs\n"
        "COMMAND, releases the lock and exits with the command's status. The\n"
        "lock is renewed until COMMAND and every process that it has started\n"
        "have ended. If the lock is lost, they are stopped before it can be\n"
        "granted to anyone else, and the status is 79.\n"
        "\n"
        "The environment of COMMAND contains HOLDFAST_KEY, HOLDFAST_TOKEN,\n"
        "HOLDFAST_NONCE, HOLDFAST_TTL_MS and HOLDFAST_URL. Send the token\n"
        "with each write that the lock protects.\n",
    .examples =
        "One at a time, as with 'flock /tmp/report ./report.sh':\n"
        "  holdfast run report -- ./report.sh\n"
        "\n"
        "From cron, skip this run silently if the last one is still running:\n"
        "  holdfast run -n -q -E 0 report -- ./report.sh\n"
        "\n"
        "Wait at most a minute, and show others why it is held:\n"
        "  holdfast run -w 60 --note 'release 1.2' deploy -- make deploy\n"
        "\n"
        "A command that may be suspended for an hour and still hold the lock:\n"
        "  holdfast run --ttl 1h edit -- vi notes.txt\n"
        "\n"
        "Several commands, with a shell:\n"
        "  holdfast run db -c 'dump >new && mv new old'\n",
    .options = OPTION(TTL) | OPTION(WAIT) | OPTION(NO_WAIT) |
               OPTION(BUSY_STATUS) | OPTION(COMMAND) | OPTION(CLOSE) |
               OPTION(EXCLUSIVE) | OPTION(NOTE) | OPTION(VALUE) | OPTION(QUIET),
    .words_min = 1,
    .words_max = 1,
    .command = true,
    .main = run_main,
};
