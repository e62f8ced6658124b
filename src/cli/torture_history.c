#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text.h"
#include "torture.h"

#define HIDDEN_MAX 8
#define NONCE_TEXT_SIZE (2 * HF_NONCE_SIZE + 1)

void torture_key(const struct torture_plan *plan, uint32_t round,
                 uint32_t number, char key[TORTURE_KEY_SIZE])
{
    (void)snprintf(key, TORTURE_KEY_SIZE,
                   "holdfast-torture/%016" PRIx64 "/%" PRIu32 "/%" PRIu32,
                   plan->run, round, number);
}

/* SplitMix64, which accepts any seed. */
uint64_t torture_random(uint64_t *state, uint64_t limit)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % limit;
}

uint64_t torture_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void torture_history_init(struct torture_history *history,
                          const struct torture_plan *plan, uint32_t round,
                          struct torture_counts *counts, enum hf_err *last_err)
{
    memset(history, 0, sizeof(*history));
    history->plan = plan;
    history->counts = counts;
    history->last_err = last_err;
    history->round = round;
    /* The order of waiters is not checked, because a waiter that was stopped
     * may lose its position in the queue. */
    hf_recorder_init(&history->recorder, false);
    history->recorder.history.no_fence = !(plan->caps & HF_CAP_FENCE);
}

void torture_history_fini(struct torture_history *history)
{
    hf_recorder_fini(&history->recorder);
}

/* ---- Calls --------------------------------------------------------------*/

static const char *nonce_text(const uint8_t nonce[HF_NONCE_SIZE],
                              char text[NONCE_TEXT_SIZE])
{
    static const uint8_t none[HF_NONCE_SIZE];

    if (!memcmp(nonce, none, sizeof(none)))
        return NULL;
    text_hex(nonce, HF_NONCE_SIZE, text);
    return text;
}

static void begin_call(struct torture_history *history,
                       const struct torture_event *event)
{
    struct torture_call *call = &history->calls[event->client];
    char key[TORTURE_KEY_SIZE], nonce[NONCE_TEXT_SIZE];

    torture_key(history->plan, history->round, event->key, key);
    *call = (struct torture_call){
        .pending = true,
        .kind = event->call,
        .key = event->key,
        .invoke = event->now,
        .deadline = event->deadline,
        .lease = event->lease,
    };
    call->op = hf_recorder_begin(&history->recorder,
                                 &(struct hf_recorder_call){
                                     .kind = event->call,
                                     .client = event->client,
                                     .key = key,
                                     .key_len = strlen(key),
                                     .nonce = nonce_text(event->nonce, nonce),
                                     .token = event->token,
                                     .lease = event->lease,
                                     .now = event->now,
                                 });
    history->counts->operations++;
}

/* What the error of a call says about the key. A call that was given up may
 * have been executed. A handle is lost when its validity ends, whatever the
 * server knows, so HF_EEXPIRED of a renewal or an update after the deadline
 * says nothing. */
static enum hf_op_result recorded_result(const struct torture_call *call,
                                         const struct torture_event *event)
{
    bool on_handle = call->kind == HF_OP_RENEW || call->kind == HF_OP_UPDATE;

    switch (event->err) {
    case HF_OK:
        return HF_OP_OK;
    case HF_EINDOUBT:
    case HF_ETIMEDOUT:
    case HF_ECANCELED:
    case HF_ECLOSED:
    case HF_EINTR:
        return HF_OP_UNKNOWN;
    case HF_EEXPIRED:
        return on_handle && event->now >= call->deadline ? HF_OP_UNKNOWN
                                                         : HF_OP_FAIL;
    default:
        return HF_OP_FAIL;
    }
}

/* A grant whose reply was lost may expire before the next attempt. The library
 * then acquires the key again, and reports only the last grant. Record a lock
 * of unknown result for each lease that fits into the call. */
static void add_hidden_grants(struct torture_history *history,
                              const struct torture_call *call,
                              const struct torture_event *event)
{
    uint64_t count = (event->now - call->invoke) / call->lease;
    char key[TORTURE_KEY_SIZE];

    torture_key(history->plan, history->round, call->key, key);
    for (uint64_t i = 0; i < count && i < HIDDEN_MAX; i++)
        (void)hf_recorder_begin(&history->recorder, &(struct hf_recorder_call){
                                                        .kind = HF_OP_LOCK,
                                                        .client = event->client,
                                                        .key = key,
                                                        .key_len = strlen(key),
                                                        .lease = call->lease,
                                                        .now = call->invoke,
                                                    });
}

static void count_result(struct torture_history *history,
                         const struct torture_call *call, enum hf_err err)
{
    bool is_lock = call->kind == HF_OP_LOCK;
    bool refused = err == HF_EBUSY || err == HF_ETIMEDOUT;

    history->counts->grants += is_lock && !err;
    history->counts->busy += is_lock && refused;
    history->counts->in_doubt += err == HF_EINDOUBT;
    if (err && !refused && err != HF_ECANCELED)
        *history->last_err = err;
}

static void end_recorded_call(struct torture_history *history,
                              const struct torture_event *event)
{
    struct torture_call *call = &history->calls[event->client];
    enum hf_op_result result = recorded_result(call, event);
    bool ok = result == HF_OP_OK;
    bool confirms = call->kind == HF_OP_LOCK || call->kind == HF_OP_RENEW;
    char nonce[NONCE_TEXT_SIZE];

    if (call->kind == HF_OP_LOCK)
        add_hidden_grants(history, call, event);
    hf_recorder_end(
        &history->recorder, call->op,
        &(struct hf_recorder_answer){
            .result = result,
            .error = result == HF_OP_FAIL ? hf_err_name(event->err) : NULL,
            .nonce = nonce_text(event->nonce, nonce),
            .token = ok ? event->token : 0,
            .deadline = ok && confirms ? event->deadline : 0,
            .now = event->now,
        });
    count_result(history, call, event->err);
    call->pending = false;
}

/* ---- Other events -------------------------------------------------------*/

static void lose_lock(struct torture_history *history,
                      const struct torture_event *event)
{
    char key[TORTURE_KEY_SIZE];

    torture_key(history->plan, history->round, event->key, key);
    hf_recorder_lost(&history->recorder, event->client, key, strlen(key),
                     event->token, event->now);
}

void torture_history_add(struct torture_history *history,
                         const struct torture_event *event)
{
    switch (event->kind) {
    case TORTURE_BEGIN:
        begin_call(history, event);
        break;
    case TORTURE_END:
        end_recorded_call(history, event);
        break;
    case TORTURE_LOST:
        lose_lock(history, event);
        break;
    case TORTURE_FAILED:
        *history->last_err = event->err;
        break;
    }
}

void torture_history_kill(struct torture_history *history, uint32_t client)
{
    hf_recorder_death(&history->recorder, client, torture_now());
    history->counts->kills++;
}

/* The checker takes the last act of the client for its death, if that is later
 * than the recorded time. */
void torture_history_death(struct torture_history *history, uint32_t client)
{
    hf_recorder_death(&history->recorder, client, 0);
}

void torture_history_note(struct torture_history *history, const char *action,
                          uint32_t client)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%s client %" PRIu32, action, client);
    hf_recorder_note(&history->recorder, torture_now(), text);
}

void torture_history_check(struct torture_history *history,
                           struct hf_check_report *report)
{
    for (size_t i = 0; i < TORTURE_WORKERS_MAX; i++)
        history->counts->in_doubt += history->calls[i].pending;
    hf_check_run(hf_recorder_history(&history->recorder), report);
}
