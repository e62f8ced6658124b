#include "take.h"

#include <stdlib.h>

#include "failure.h"
#include "info.h"
#include "nested.h"
#include "text.h"

#define SILENCE_MS 1000    /* waits shorter than this are not shown */
#define REFRESH_MS 1000    /* interval between reads of the holder */
#define ANSWER_MIN_MS 1000 /* time for an answer, even if --wait is shorter */
#define ANSWER_MAX_MS 5000

static void on_claim_done(enum hf_err err, void *arg)
{
    struct take *take = arg;

    take->answered = true;
    take->err = err;
}

/* ---- Showing the holder -------------------------------------------------*/

/* Report the position and the holder, if either has changed. */
static void report_wait(struct take *take)
{
    uint32_t position = hf_lock_position(take->lock);
    char *text;

    if (position == take->position && take->info.token == take->holder)
        return;
    take->position = position;
    take->holder = take->info.token;
    text = info_holder(&take->info);
    failure_trace(take->args, "waiting, position %u in the queue: %s", position,
                  text);
    free(text);
}

static void on_read_done(enum hf_err err, void *arg)
{
    struct take *take = arg;

    take->reading = false;
    if (err || take->answered)
        return;
    progress_show(&take->progress, &take->info, hf_lock_position(take->lock));
    if (take->args->verbose)
        report_wait(take);
}

static void show_holder(struct take *take)
{
    int64_t now = loop_now();
    bool wanted;

    if (now < take->show_at || take->answered)
        return;
    wanted = take->progress.wanted || take->args->verbose;
    take->show_at = wanted ? now + REFRESH_MS : LOOP_NEVER;
    if (!wanted || take->reading)
        return;
    hf_info_fini(&take->info);
    take->info = (struct hf_info){0};
    take->reading =
        !hf_read_start(take->client, args_key(take->args), HF_LINEARIZABLE,
                       &take->info, on_read_done, take, NULL);
}

/* ---- Waiting ------------------------------------------------------------*/

static void on_wait_signal(struct take *take, int signal,
                           struct hf_future *future)
{
    if (loop_is_stop(signal)) {
        progress_clear(&take->progress);
        loop_stop(signal, false);
    } else if (loop_is_fatal(signal)) {
        if (take->signal)
            loop_die(signal); /* second signal: do not wait for the store */
        take->signal = signal;
        hf_future_cancel(future);
    }
}

static void wait_for_answer(struct take *take, struct hf_future *future)
{
    (void)hf_process(take->client);
    while (!take->answered) {
        int signal;

        (void)loop_sleep(take->loop, take->client, -1, take->show_at, NULL,
                         NULL);
        while ((signal = loop_signal(take->loop)))
            on_wait_signal(take, signal, future);
        show_holder(take);
    }
    progress_clear(&take->progress);
}

/* How long the store may take to answer, if --wait is given. */
static uint32_t answer_ms(uint32_t wait_ms)
{
    if (wait_ms < ANSWER_MIN_MS)
        return ANSWER_MIN_MS;
    return wait_ms < ANSWER_MAX_MS ? wait_ms : ANSWER_MAX_MS;
}

/* ---- Reports of -v ------------------------------------------------------*/

static void on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    struct take *take = arg;

    (void)lock;
    if (event == HF_LOCK_EVENT_WAITING)
        take->show_at = loop_now();
    else if (!loop_can_report())
        return;
    else if (event == HF_LOCK_EVENT_LOST)
        failure_trace(take->args, "the lock is lost");
}

/* The current state of the renewals. HF_LOCK_EVENT_AT_RISK is not enough,
 * because it is reported once per claim, and a command that runs for days may
 * see several outages. */
static enum take_danger read_danger(const struct take *take,
                                    struct hf_error *error)
{
    hf_lock_error(take->lock, error);
    if (error->code == HF_EFORCED ||
        hf_lock_remaining_ms(take->lock) <= take->args->ttl_ms / 2)
        return TAKE_AT_RISK;
    return error->code ? TAKE_FAILING : TAKE_SAFE;
}

void take_report_renewal(struct take *take)
{
    uint32_t left_ms = hf_lock_remaining_ms(take->lock);
    enum take_danger before;
    struct hf_error error;

    if (!take->args->verbose || left_ms == 0)
        return;
    before = take->danger;
    take->danger = read_danger(take, &error);
    if (take->danger == before || !loop_can_report())
        return;
    if (take->danger == TAKE_SAFE)
        failure_trace(take->args, "renewed again, %u ms left", left_ms);
    else if (take->danger > before)
        failure_trace(take->args, "%s, %u ms left: %s",
                      take->danger == TAKE_AT_RISK ? "at risk" : "not renewed",
                      left_ms, error.code ? error.text : "not renewed in time");
}

int64_t take_report_at(const struct take *take)
{
    if (!take->args->verbose || take->danger != TAKE_FAILING)
        return LOOP_NEVER;
    return hf_lock_deadline(take->lock) - take->args->ttl_ms / 2;
}

static void set_options(struct take *take, struct hf_lock_opts *opts,
                        bool renew)
{
    const struct args *args = take->args;

    hf_lock_opts_init(opts);
    opts->ttl_ms = args->ttl_ms;
    opts->wait_ms = args_wait_left(args);
    if (args->given & OPTION(WAIT))
        opts->timeout_ms = answer_ms(opts->wait_ms);
    opts->renew = renew;
    opts->idle = true; /* claim_lock() starts a claim that can be canceled */
    opts->note = args->note;
    opts->on_event = args->verbose ? on_lock_event : NULL;
    opts->arg = take;
    if (args->value)
        opts->value = hf_bytes_of(args->value);
}

static int report_refusal(struct take *take)
{
    if (take->signal)
        return STATUS_SIGNAL + take->signal;
    if (take->err == HF_EBUSY || take->err == HF_ETIMEDOUT)
        return info_busy(take->args, take->client, args_key(take->args),
                         take->err);
    return failure_on_lock(take->args, take->lock, take->err);
}

/* If the key is held by a `run` among our ancestors, report that and return
 * true. That `run` keeps the lock until we end, so both would wait for ever. */
static bool waits_for_itself(struct take *take)
{
    struct hf_key key = args_key(take->args);
    struct hf_info info;
    bool nested;
    char *word;

    if (!nested_exists() || hf_read(take->client, key, HF_LINEARIZABLE, &info))
        return false;
    nested = nested_holds(&info);
    if (nested) {
        word = text_quote(key.data, key.size);
        (void)failure(take->args, HF_EBUSY,
                      "%s is held, with token %llu, by the 'holdfast run' that "
                      "started this command: it would wait for itself",
                      word, (unsigned long long)info.token);
        free(word);
    }
    hf_info_fini(&info);
    return nested;
}

/* Claim the lock with a new handle, and wait for the answer. */
static enum hf_err claim_lock(struct take *take, bool renew,
                              struct hf_error *error)
{
    struct hf_lock_opts opts;
    struct hf_future *future;
    enum hf_err err;

    set_options(take, &opts, renew);
    opts.error = error;
    err = hf_lock_new(take->client, args_key(take->args), &opts, &take->lock);
    if (!err)
        err = hf_lock_acquire_start(take->lock, on_claim_done, take, &future);
    if (err)
        return err;
    wait_for_answer(take, future);
    hf_future_free(future);
    return HF_OK;
}

/* If the store did not answer and the time of --wait has not passed, free the
 * old handle, reset `take` for another claim, and return true. The client
 * withdraws a claim in doubt in the background; if that claim was granted after
 * all, the next claim waits until it is released. */
static bool may_claim_again(struct take *take)
{
    if (!(take->args->given & OPTION(WAIT)) || take->signal ||
        (take->err != HF_EUNAVAIL && take->err != HF_EINDOUBT) ||
        args_wait_left(take->args) == 0)
        return false;
    failure_trace(take->args, "the store does not answer; trying again");
    hf_lock_free(take->lock);
    take->lock = NULL;
    take->answered = false;
    return true;
}

bool take_lock(struct take *take, const struct args *args, struct loop *loop,
               struct hf_client *client, bool renew, int *status)
{
    struct hf_error error = {0};
    enum hf_err err;

    *take = (struct take){.args = args, .loop = loop, .client = client};
    progress_init(&take->progress,
                  !args->json && !args->quiet && !args->verbose);
    if (waits_for_itself(take)) {
        *status = args->busy_status;
        return false;
    }
    take->show_at = loop_now() + SILENCE_MS;
    do {
        err = claim_lock(take, renew, &error);
    } while (!err && may_claim_again(take));
    if (err) {
        *status = failure_on_key(args, args_key(args), err, &error);
        return false;
    }
    if (take->err || take->signal) {
        *status = report_refusal(take);
        return false;
    }
    failure_trace(args, "held with token %llu for %u ms",
                  (unsigned long long)hf_lock_token(take->lock),
                  hf_lock_remaining_ms(take->lock));
    return true;
}

void take_fini(struct take *take)
{
    hf_info_fini(&take->info);
    hf_lock_free(take->lock);
}
