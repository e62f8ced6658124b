/* The lock is kept as long as the command runs, and the command runs no longer
 * than the lock is kept:
 *
 *     0           ttl/3               end - grace    end - margin   end
 *     |-------------|----------------------|---------------|---------|
 *     granted     renewal due           SIGTERM         SIGKILL   nobody else
 *                                                                 until here
 *
 * `end` moves on with each renewal. It is read anew after every sleep, before
 * anything else is done, because this program may have been stopped in it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "failure.h"
#include "store.h"
#include "take.h"
#include "text.h"

#define GRACE_MAX_MS 5000
#define MARGIN_MAX_MS 100 /* for a SIGKILL to have its effect */
#define STRAGGLERS_MS 20  /* how often to look whether the group is gone */

struct run {
    struct args *args;
    struct loop loop;
    struct hf_client *client;
    struct take take;
    struct child child;
    bool stopping;       /* the lock is lost, or as good as lost */
    bool killed;         /* SIGKILL was sent */
    int64_t end;         /* of its validity, if stopping */
    struct hf_error why; /* if stopping */
    bool interrupted;    /* Ctrl-C has ended the command */
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

/* The words come when the command has ended: stderr may be a pipe that nobody
 * reads, and nothing may hold us up until then. */
static void begin_stopping(struct run *run)
{
    if (run->stopping)
        return;
    run->stopping = true;
    run->end = hf_deadline(run->take.lock);
    hf_lock_error(run->take.lock, &run->why);
}

/* Called before anything else after a sleep: where the lease has ended in it,
 * nobody of the group may live on. Who is told to stop once must stop, even if
 * the lease is renewed after that. */
static void see_to_end(void *arg)
{
    struct run *run = arg;
    int64_t end = hf_deadline(run->take.lock); /* 0: it is lost */

    if (run->stopping && run->end < end)
        end = run->end;
    if (run->killed || loop_now() < end - margin_ms(run))
        return;
    child_signal(&run->child, SIGKILL);
    run->killed = true;
    begin_stopping(run);
}

/* Called when the client has had its chance to renew. */
static void see_to_lease(struct run *run)
{
    see_to_end(run);
    if (run->stopping ||
        loop_now() < hf_deadline(run->take.lock) - grace_ms(run))
        return;
    begin_stopping(run);
    child_adopt();
    child_signal(&run->child, SIGTERM);
    child_signal(&run->child, SIGCONT); /* or it would not hear of it */
}

static int64_t next_look(const struct run *run)
{
    int64_t soon = loop_now() + STRAGGLERS_MS;
    int64_t kill_at = run->end - margin_ms(run);

    if (!run->stopping)
        return hf_deadline(run->take.lock) - grace_ms(run);
    if (run->killed)
        return LOOP_NEVER;
    return run->child.reaped && soon < kill_at ? soon : kill_at;
}

/* ---- While the command runs ---------------------------------------------*/

static void hear(struct run *run, int signal)
{
    if (signal == SIGCONT)
        child_resume(&run->child);
    else if (signal != SIGCHLD)
        child_signal(&run->child, signal);
}

/* It is over when the command has ended; one that is stopped for the sake of
 * the lock, when nobody of its group is left. */
static bool is_over(const struct run *run)
{
    if (!run->child.reaped)
        return false;
    return !run->stopping || run->killed || !child_has_group(&run->child);
}

static void attend(struct run *run)
{
    while (!is_over(run)) {
        int signal;

        (void)loop_sleep(&run->loop, run->client, -1, next_look(run),
                         see_to_end, run);
        see_to_lease(run);
        while ((signal = loop_signal(&run->loop)))
            hear(run, signal);
        signal = child_look(&run->child);
        if (signal && child_follow(&run->child, signal)) {
            see_to_end(run); /* before it goes on */
            child_resume(&run->child);
        }
    }
}

/* ---- After it -----------------------------------------------------------*/

/* Give the lock back. False if it had been lost unnoticed. */
static bool give_back(struct run *run)
{
    enum hf_err err = hf_unlock(run->take.lock);

    if (err == HF_OK || run->stopping)
        return true;
    if (err == HF_EEXPIRED || err == HF_ENOTOWNER || err == HF_ENOTHELD) {
        hf_lock_error(run->take.lock, &run->why);
        return false;
    }
    failure_warn(run->args, err,
                 "the lock could not be given back and ends with its lease: %s",
                 hf_err_text(err));
    return true;
}

static int lost(const struct run *run)
{
    struct hf_key key = args_key(run->args);
    char *word = text_quote(key.data, key.size);
    bool known = run->why.code != HF_OK;

    (void)failure(run->args, known ? run->why.code : HF_EEXPIRED,
                  "%s: the lock was lost while the command ran: %s%s", word,
                  known ? run->why.text : "it was not renewed in time",
                  run->killed     ? "; the command was killed"
                  : run->stopping ? "; the command was told to stop"
                                  : "");
    free(word);
    return STATUS_LOST;
}

static int could_not_execute(const struct run *run)
{
    int err = run->child.exec_err;
    const char *name = run->args->command[0];
    char *word = text_quote(name, strlen(name));

    (void)failure(run->args, HF_ESYSTEM, "%s: %s", word, strerror(err));
    free(word);
    return run->child.status;
}

static int finish(struct run *run)
{
    bool foreground = child_end(&run->child);
    bool kept = give_back(run);

    if (run->stopping || !kept)
        return lost(run);
    if (run->child.exec_err)
        return could_not_execute(run);
    failure_say(run->args, "the command ended with status %d",
                run->child.status);
    run->interrupted = foreground && run->child.signal == SIGINT;
    return run->child.status;
}

/* ---- Before it ----------------------------------------------------------*/

static bool export_lock(const struct run *run)
{
    uint8_t nonce[HF_NONCE_SIZE];
    char hex[2 * HF_NONCE_SIZE + 1], token[24], ttl[16];
    bool set;

    hf_nonce(run->take.lock, nonce);
    text_hex(nonce, sizeof(nonce), hex);
    (void)snprintf(token, sizeof(token), "%llu",
                   (unsigned long long)hf_token(run->take.lock));
    (void)snprintf(ttl, sizeof(ttl), "%u", run->args->ttl_ms);
    set = !setenv("HOLDFAST_KEY", run->args->words[0], 1) &&
          !setenv("HOLDFAST_TOKEN", token, 1) &&
          !setenv("HOLDFAST_NONCE", hex, 1) &&
          !setenv("HOLDFAST_TTL_MS", ttl, 1);
    explicit_bzero(nonce, sizeof(nonce));
    explicit_bzero(hex, sizeof(hex));
    return set;
}

static int run_command(struct run *run)
{
    int err = export_lock(run) ? 0 : ENOMEM;

    if (!err)
        err = child_start(&run->child, run->args->command, &run->loop);
    if (err) {
        (void)failure(run->args, HF_ESYSTEM, "cannot start a process: %s",
                      strerror(err));
        return STATUS_SYSTEM;
    }
    attend(run);
    return finish(run);
}

static int run_main(struct args *args)
{
    char owner[HF_NOTE_MAX + 1];
    struct run run = {.args = args};
    int err = loop_open(&run.loop);
    int status;

    if (err) {
        (void)failure(args, HF_ESYSTEM, "cannot wait for signals: %s",
                      strerror(err));
        return STATUS_SYSTEM;
    }
    store_label(owner, args->command[0], (long)getpid());
    status = store_open(args, owner, &run.client);
    if (!status &&
        take_lock(&run.take, args, &run.loop, run.client, true, &status))
        status = run_command(&run);
    store_close(run.client);
    take_fini(&run.take);
    if (run.take.signal)
        loop_die(run.take.signal);
    /* The terminal told the command alone of Ctrl-C: now those hear of it who
     * would have without us, a script or make(1). */
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
        "Takes the lock on KEY, waiting in line for it, runs COMMAND, gives\n"
        "the lock back and passes on the command's status. The lock is\n"
        "renewed for as long as that takes. If it is lost all the same, the\n"
        "command and its process group are stopped before anyone else can\n"
        "have it, and the status is 79.\n"
        "\n"
        "The command finds HOLDFAST_KEY, HOLDFAST_TOKEN, HOLDFAST_NONCE and\n"
        "HOLDFAST_TTL_MS in its environment. Send the token with each write\n"
        "that the lock protects.\n",
    .examples =
        "Once at a time, instead of flock /tmp/report ./report.sh:\n"
        "  holdfast run report -- ./report.sh\n"
        "\n"
        "From cron: if it still runs, let it, and be silent:\n"
        "  holdfast run -n -q -E 0 report -- ./report.sh\n"
        "\n"
        "Wait at most a minute, and tell others why it is held:\n"
        "  holdfast run -w 60 --note 'release 1.2' deploy -- make deploy\n"
        "\n"
        "A command that may be suspended for an hour and still hold the lock:\n"
        "  holdfast run --ttl 1h edit -- vi notes.txt\n"
        "\n"
        "A few commands:\n"
        "  holdfast run db -- sh -c 'dump >new && mv new old'\n",
    .options = OPTION(TTL) | OPTION(WAIT) | OPTION(NO_WAIT) |
               OPTION(BUSY_STATUS) | OPTION(NOTE) | OPTION(VALUE) |
               OPTION(QUIET),
    .words_min = 1,
    .words_max = 1,
    .command = true,
    .main = run_main,
};
