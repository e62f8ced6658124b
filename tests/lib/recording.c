#include "lib/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/hex.h"
#include "hf-check/check.h"
#include "hf-check/recorder.h"
#include "hf-check/report.h"

#define CLIENTS_MAX 8192
#define ROOM ((size_t)512 << 20) /* bytes; unused pages take no memory */
#define HEX_SIZE (2 * HF_NONCE_SIZE + 1)
#define NS_IN_MS 1000000

/* The number of a client is its index plus 1. */
struct client {
    _Atomic pid_t pid; /* written last, when the entry is complete */
    const struct hf_client *client;
    uint64_t died; /* 0: alive */
};

struct shared {
    _Atomic(struct recorded_call *) calls; /* the newest first */
    _Atomic uint32_t client_count;
    struct client clients[CLIENTS_MAX];
    _Atomic size_t used;
    _Alignas(struct recorded_call) unsigned char bytes[];
};

static struct shared *shared;
static bool is_fifo, has_no_fence;
static int64_t offset_ms;

void recording_set_offset(int64_t ms)
{
    offset_ms = ms;
}

uint64_t recording_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)((now.tv_sec * 1000 - offset_ms) * NS_IN_MS + now.tv_nsec);
}

/* A result of 0 would mean that there is no deadline, so return a time in the
 * past instead. */
uint64_t recording_instant(int64_t boottime_ms)
{
    return boottime_ms > 0 ? (uint64_t)((boottime_ms - offset_ms) * NS_IN_MS)
                           : 1;
}

/* ---- Recording ----------------------------------------------------------*/

void recording_init(bool fifo)
{
    /* The old history is unmapped here and not at the end of its case, because
     * threads of a failed case may go on recording. */
    if (shared)
        (void)munmap(shared, ROOM);
    shared = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    is_fifo = fifo;
    has_no_fence = false;
}

void recording_set_no_fence(void)
{
    has_no_fence = true;
}

static void *allocate_bytes(size_t size)
{
    size_t whole = (size + _Alignof(struct recorded_call) - 1) /
                   _Alignof(struct recorded_call) *
                   _Alignof(struct recorded_call);
    size_t at = atomic_fetch_add(&shared->used, whole);

    if (at + whole > ROOM - sizeof(*shared)) {
        (void)fputs("recording.c: the history is too long\n", stderr);
        abort();
    }
    return shared->bytes + at;
}

uint32_t recording_number(const struct hf_client *client)
{
    pid_t pid = getpid();
    uint32_t count = atomic_load(&shared->client_count);

    for (uint32_t i = 0; i < count; i++)
        if (shared->clients[i].pid == pid &&
            shared->clients[i].client == client)
            return i + 1;
    count = atomic_fetch_add(&shared->client_count, 1);
    if (count >= CLIENTS_MAX)
        abort();
    shared->clients[count].client = client;
    atomic_store(&shared->clients[count].pid, pid);
    return count + 1;
}

struct recorded_call *recording_begin(enum hf_op_kind kind, uint32_t number,
                                      struct hf_key key)
{
    struct recorded_call *call = allocate_bytes(sizeof(*call) + key.size);

    call->kind = kind;
    call->number = number;
    call->key_size = key.size;
    if (key.size)
        memcpy(call->key, key.data, key.size);
    call->next = atomic_load(&shared->calls);
    call->invoke = recording_now();
    while (!atomic_compare_exchange_weak(&shared->calls, &call->next, call))
        continue;
    return call;
}

/* ---- Checking -----------------------------------------------------------*/

static const char *nonce_text(const struct recorded_call *call,
                              char hex[HEX_SIZE])
{
    static const uint8_t none[HF_NONCE_SIZE];

    if (memcmp(call->nonce, none, sizeof(none)) == 0)
        return NULL;
    hf_hex_encode(hex, call->nonce, HF_NONCE_SIZE);
    return hex;
}

static enum hf_op_result result_of(enum hf_err err)
{
    if (err == HF_OK)
        return HF_OP_OK;
    return err == HF_EINDOUBT ? HF_OP_UNKNOWN : HF_OP_FAIL;
}

static struct hf_recorder_answer answer_of(const struct recorded_call *call)
{
    bool confirmed =
        !call->err && (call->kind == HF_OP_LOCK || call->kind == HF_OP_RENEW);

    return (struct hf_recorder_answer){
        .result = result_of(call->err),
        .error = call->err && call->err != HF_EINDOUBT ? hf_err_name(call->err)
                                                       : NULL,
        .token = call->token,
        .deadline = confirmed ? call->deadline : 0,
        .now = call->answer,
    };
}

/* The token to record for a call without a result. LOCK and READ learn their
 * token with the result, so theirs comes from a process that was killed while
 * it recorded a result, and must not count. */
static uint64_t known_token(const struct recorded_call *call)
{
    bool learns = call->kind == HF_OP_LOCK || call->kind == HF_OP_READ;

    return call->answered || learns ? 0 : call->token;
}

static size_t replay_begin(struct hf_recorder *recorder,
                           const struct recorded_call *call, const char *nonce)
{
    return hf_recorder_begin(recorder, &(struct hf_recorder_call){
                                           .kind = call->kind,
                                           .client = call->number,
                                           .key = call->key,
                                           .key_len = call->key_size,
                                           .nonce = nonce,
                                           .token = known_token(call),
                                           .lease = call->lease,
                                           .now = call->invoke,
                                       });
}

/* Returns true if the call may have had a grant that it does not report. A
 * grant whose reply was lost may expire before the next attempt; the library
 * then acquires the key again, and reports only the second grant. */
static bool may_hide_a_grant(const struct recorded_call *call)
{
    return call->kind == HF_OP_LOCK && call->answered && call->lease > 0 &&
           call->answer - call->invoke >= call->lease;
}

static void replay_call(struct hf_recorder *recorder,
                        const struct recorded_call *call)
{
    struct hf_recorder_answer answer = answer_of(call);
    char hex[HEX_SIZE];
    size_t op = replay_begin(recorder, call, nonce_text(call, hex));

    if (may_hide_a_grant(call))
        (void)replay_begin(recorder, call, NULL);
    if (call->queued)
        hf_recorder_queued(recorder, op, call->queued);
    if (call->answered)
        hf_recorder_end(recorder, op, &answer);
    if (call->lost)
        hf_recorder_lost(recorder, call->number, call->key, call->key_size,
                         call->token, call->lost);
}

/* Take all calls from the history and return them oldest first, so that a
 * report numbers them in that order. */
static const struct recorded_call *oldest_first(void)
{
    struct recorded_call *newest = atomic_exchange(&shared->calls, NULL);
    struct recorded_call *oldest = NULL;

    while (newest) {
        struct recorded_call *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

size_t recording_grants(void)
{
    size_t count = 0;

    for (const struct recorded_call *call = atomic_load(&shared->calls); call;
         call = call->next)
        count += call->kind == HF_OP_LOCK && call->answered && !call->err;
    return count;
}

int recording_check(const char *name)
{
    uint32_t clients = atomic_load(&shared->client_count);
    struct hf_check_report report;
    struct hf_recorder recorder;

    hf_recorder_init(&recorder, is_fifo);
    recorder.history.no_fence = has_no_fence;
    for (const struct recorded_call *call = oldest_first(); call;
         call = call->next)
        replay_call(&recorder, call);
    for (uint32_t i = 0; i < clients; i++)
        if (shared->clients[i].died)
            hf_recorder_death(&recorder, i + 1, shared->clients[i].died);
    hf_check_run(hf_recorder_history(&recorder), &report);
    if (report.violation_count > 0)
        hf_report_text(hf_recorder_history(&recorder), &report, name, stderr);
    hf_recorder_fini(&recorder);
    return report.violation_count > 0 ? -1 : 0;
}

/* ---- Deaths -------------------------------------------------------------*/

void recording_death(pid_t pid)
{
    uint32_t count = atomic_load(&shared->client_count);
    uint64_t now = recording_now();

    for (uint32_t i = 0; i < count; i++)
        if (shared->clients[i].pid == pid)
            shared->clients[i].died = now;
}
