#include "core/session.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

#define CAPACITY_MIN 4
#define CAPACITY_IDLE 8 /* a smaller array is not worth an allocation */

struct hf_session *hf_session_new(uint64_t id, const struct hf_nonce *secret,
                                  struct hf_bytes label)
{
    struct hf_session *session = calloc(1, sizeof(*session) + label.size + 1);

    if (!session)
        return NULL;
    HF_ASSERT(label.size <= HF_NOTE_MAX);
    session->id = id;
    session->secret = *secret;
    session->label_size = (uint8_t)label.size;
    hf_copy(session->label, label.data, label.size);
    hf_dlist_init(&session->waiting);
    return session;
}

void hf_session_free(struct hf_session *session)
{
    if (!session)
        return;
    free(session->results);
    free(session);
}

void hf_session_end(struct hf_session *session)
{
    session->ended = true;
    session->secret = (struct hf_nonce){{0}};
    free(session->results);
    session->results = NULL;
    session->capacity = 0;
}

static uint64_t max_sequence(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct hf_session_result *result_slot(const struct hf_session *session,
                                             uint64_t sequence)
{
    return &session->results[sequence & (session->capacity - 1)];
}

struct hf_session_result *hf_session_find(const struct hf_session *session,
                                          uint64_t sequence)
{
    if (sequence == 0 || session->capacity == 0 || sequence < session->done ||
        result_slot(session, sequence)->sequence != sequence)
        return NULL;
    return result_slot(session, sequence);
}

/* Move the results whose sequence is at least `lowest` to a new array of
 * `capacity` slots, in which no two of them may have the same slot. */
static enum hf_err resize_results(struct hf_session *session, uint32_t capacity,
                                  uint64_t lowest)
{
    struct hf_session_result *kept = calloc(capacity, sizeof(*kept));

    if (!kept)
        return HF_ENOMEM;
    for (uint32_t i = 0; i < session->capacity; i++) {
        const struct hf_session_result *result = &session->results[i];

        if (result->sequence != 0 && result->sequence >= lowest)
            kept[result->sequence & (capacity - 1)] = *result;
    }
    free(session->results);
    session->results = kept;
    session->capacity = capacity;
    return HF_OK;
}

/* Slots below `done` need no clearing: hf_session_find() ignores them, and
 * later results overwrite them. Capacities are powers of two, so results with
 * different slots in the old array have different slots in the new array. */
enum hf_err hf_session_reserve(struct hf_session *session, uint64_t done,
                               uint64_t sequence)
{
    uint64_t last = max_sequence(session->highest, sequence);
    uint32_t capacity = session->capacity ? session->capacity : CAPACITY_MIN;

    while (capacity <= last - done)
        capacity *= 2;
    if (capacity == session->capacity)
        return HF_OK;
    return resize_results(session, capacity, 0);
}

/* Give back memory if far fewer results are kept than fit into the array. The
 * factor keeps a session whose window grows and shrinks from allocating all the
 * time. If there is no memory for a smaller array, the array stays. */
static void trim_results(struct hf_session *session)
{
    uint64_t window = session->highest < session->done
                          ? 0
                          : session->highest - session->done + 1;
    uint32_t capacity = session->capacity;

    if (capacity <= CAPACITY_IDLE || window > capacity / 8)
        return;
    while (capacity > CAPACITY_IDLE && window <= capacity / 4)
        capacity /= 2;
    (void)resize_results(session, capacity, session->done);
}

/* Whether this LOCK arrives late, which means that a later command of the same
 * nonce, other than a LOCK, has arrived before it. A late LOCK must not acquire
 * the key again. */
static bool is_overtaken(const struct hf_session *session,
                         const struct hf_command *command)
{
    for (uint64_t i = session->highest; i > command->sequence; i--) {
        const struct hf_session_result *kept = hf_session_find(session, i);

        if (kept && kept->kind != HF_COMMAND_LOCK &&
            hf_nonce_equal(&kept->nonce, &command->nonce))
            return true;
    }
    return false;
}

/* The code with which to refuse a command that has no kept result, or HF_OK. */
static enum hf_err find_refusal(const struct hf_session *session,
                                const struct hf_command *command, uint64_t done)
{
    if (command->sequence < done || command->sequence == 0)
        return HF_ECANCELED;
    if (command->sequence - done >= HF_WINDOW_MAX)
        return HF_ELIMIT;
    if (command->kind == HF_COMMAND_LOCK && is_overtaken(session, command))
        return HF_ECANCELED;
    return HF_OK;
}

enum hf_admission hf_session_admit(struct hf_session *session,
                                   const struct hf_command *command,
                                   struct hf_result *result)
{
    uint64_t done = max_sequence(session->done, command->done);
    const struct hf_session_result *kept =
        command->sequence < done ? NULL
                                 : hf_session_find(session, command->sequence);
    enum hf_err refusal = kept ? HF_OK : find_refusal(session, command, done);

    if (!kept && !refusal)
        return hf_session_reserve(session, done, command->sequence)
                   ? HF_ADMISSION_NO_MEMORY
                   : HF_ADMISSION_NEW;
    session->done = done;
    *result = kept ? kept->result : (struct hf_result){.err = refusal};
    trim_results(session);
    return HF_ADMISSION_ANSWERED;
}

void hf_session_keep(struct hf_session *session,
                     const struct hf_command *command,
                     const struct hf_result *result)
{
    session->done = max_sequence(session->done, command->done);
    session->highest = max_sequence(session->highest, command->sequence);
    *result_slot(session, command->sequence) = (struct hf_session_result){
        .sequence = command->sequence,
        .kind = command->kind,
        .nonce = command->nonce,
        .result = *result,
    };
    trim_results(session);
}
