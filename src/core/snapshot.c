#include "core/snapshot.h"

#include <stdlib.h>

#include "base/limits.h"
#include "core/table_links.h"

/* The format:
 *
 *     magic version
 *     token last_session index
 *     session count, each: id ended secret done highest label,
 *                          kept count, each: sequence kind nonce result
 *     hold count, each: key claim token generation forced,
 *                       waiter count, each: claim sequence ahead
 *     checksum of all bytes before it
 *
 * A claim is: session nonce lease value note. Sessions are ordered by id, holds
 * by token, and waiters by arrival. `ahead` is the number of waiters that
 * arrived before this one, from the first waiter still in the queue on, even if
 * they have left the queue since: positions depend on it. Nothing depends on
 * the seed, on capacities or on the number of restores, so equal tables have
 * equal snapshots. */
#define MAGIC UINT32_C(0x54464821) /* "!HFT" */
#define CHECKSUM_SIZE 8
#define HOLD_SIZE_MIN 32 /* every encoded hold is larger than this */
#define FIXED_SIZE_MAX                                                         \
    64 /* bytes of a hold, waiter or session besides what table->bytes counts; \
          so has the rest of the snapshot */

/* A counter that starts at 0 never gets this far. Reject a snapshot with a
 * larger value, because the counter could overflow, and tokens would repeat. */
#define COUNTER_MAX (UINT64_MAX / 2)

/* Decoding first links each waiter to its session with this sequence, so that
 * the waiter goes to the end of the list without a search. sort_waiters()
 * orders the list later. */
#define LATEST UINT64_MAX

static uint64_t checksum(const void *data, size_t size)
{
    static const struct hf_seed zero;

    return hf_siphash(&zero, data, size);
}

/* ---- Encoding -----------------------------------------------------------*/

_Static_assert(HF_FITS(HF_WINDOW_MAX, uint32_t) &&
                   HF_FITS(HF_SESSIONS_MAX, uint32_t) &&
                   HF_FITS(HF_HOLDS_MAX, uint32_t),
               "counts are encoded in 32 bits");
_Static_assert(HF_FITS(HF_COMMAND_KINDS, uint8_t),
               "kinds are encoded in 8 bits");

/* The number of sequences from `done` to the highest, at most HF_WINDOW_MAX. */
static uint32_t window_size(const struct hf_session *session)
{
    if (session->highest < session->done)
        return 0;
    return (uint32_t)(session->highest - session->done) + 1;
}

static uint32_t count_results(const struct hf_session *session)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < window_size(session); i++)
        count += hf_session_find(session, session->done + i) != NULL;
    return count;
}

static void encode_session(const struct hf_session *session, struct hf_buf *buf)
{
    hf_buf_u64(buf, session->id);
    hf_buf_u8(buf, session->ended);
    hf_buf_raw(buf, session->secret.bytes, sizeof(session->secret.bytes));
    hf_buf_u64(buf, session->done);
    hf_buf_u64(buf, session->highest);
    hf_buf_bytes(buf, session->label, session->label_size);
    hf_buf_u32(buf, count_results(session));
    for (uint32_t i = 0; i < window_size(session); i++) {
        const struct hf_session_result *kept =
            hf_session_find(session, session->done + i);

        if (!kept)
            continue;
        hf_buf_u64(buf, kept->sequence);
        hf_buf_u8(buf, (uint8_t)kept->kind);
        hf_buf_raw(buf, kept->nonce.bytes, sizeof(kept->nonce.bytes));
        hf_command_encode_result(&kept->result, buf);
    }
}

static void encode_claim(const struct hf_table_waiter *claim,
                         struct hf_buf *buf)
{
    const uint8_t *data = claim->data;

    hf_buf_u64(buf, claim->session->id);
    hf_buf_raw(buf, claim->nonce.bytes, sizeof(claim->nonce.bytes));
    hf_buf_u32(buf, claim->lease_ms);
    hf_buf_bytes(buf, data, claim->value_size);
    hf_buf_bytes(buf, data ? data + claim->value_size : NULL, claim->note_size);
}

static const struct hf_table_waiter *waiter_at(const struct hf_dlist *link)
{
    return HF_CONTAINER(link, const struct hf_table_waiter, in_queue);
}

static void encode_hold(const struct hf_hold *hold, struct hf_buf *buf)
{
    struct hf_table_waiter holder = {
        .session = hold->session,
        .nonce = hold->nonce,
        .lease_ms = hold->lease_ms,
        .data = hold->data,
        .value_size = hold->value_size,
        .note_size = hold->note_size,
    };

    hf_buf_bytes(buf, hold->key, hold->key_size);
    encode_claim(&holder, buf);
    hf_buf_u64(buf, hold->token);
    hf_buf_u32(buf, hold->generation);
    hf_buf_u8(buf, hold->forced);
    hf_buf_u32(buf, hold->waiters);
    for (struct hf_dlist *link = hold->queue.next; link != &hold->queue;
         link = link->next) {
        const struct hf_table_waiter *claim = waiter_at(link);

        encode_claim(claim, buf);
        hf_buf_u64(buf, claim->sequence);
        hf_buf_u64(buf, claim->arrival - waiter_at(hold->queue.next)->arrival);
    }
}

void hf_snapshot_encode(const struct hf_table *table, struct hf_buf *buf)
{
    const struct hf_session *session = NULL;
    const struct hf_hold *hold = NULL;
    size_t start = buf->size;

    hf_buf_u32(buf, MAGIC);
    hf_buf_u8(buf, table->version);
    hf_buf_u64(buf, table->token);
    hf_buf_u64(buf, table->last_session);
    hf_buf_u64(buf, table->index);
    hf_buf_u32(buf, (uint32_t)table->sessions.count);
    while ((session = hf_table_next_session(table, session)))
        encode_session(session, buf);
    hf_buf_u32(buf, (uint32_t)table->holds.count);
    while ((hold = hf_table_next_hold(table, hold)))
        encode_hold(hold, buf);
    if (!buf->failed)
        hf_buf_u64(buf, checksum(buf->data + start, buf->size - start));
}

size_t hf_snapshot_size_max(const struct hf_table *table)
{
    size_t count =
        table->holds.count + table->waiting.count + table->sessions.count;

    return table->bytes + (count + 1) * FIXED_SIZE_MAX;
}

/* ---- Decoding -----------------------------------------------------------*/

static struct hf_nonce read_nonce(struct hf_reader *reader)
{
    struct hf_nonce nonce = {{0}};

    hf_reader_raw(reader, nonce.bytes, sizeof(nonce.bytes));
    return nonce;
}

static enum hf_err decode_result(struct hf_session *session,
                                 struct hf_reader *reader)
{
    struct hf_command command = {.sequence = hf_reader_u64(reader)};
    struct hf_result result;

    command.kind = hf_reader_u8(reader);
    command.nonce = read_nonce(reader);
    hf_command_read_result(&result, reader);
    if (reader->failed || command.sequence < session->done ||
        command.sequence > session->highest ||
        hf_session_find(session, command.sequence) || command.sequence == 0 ||
        !hf_command_is_kept(command.kind) || result.err == HF_ENOMEM)
        return HF_EPROTO;
    hf_session_keep(session, &command, &result);
    return HF_OK;
}

static uint64_t last_session_id(const struct hf_table *table)
{
    const struct hf_dlist *last = table->all_sessions.prev;

    if (last == &table->all_sessions)
        return 0;
    return HF_CONTAINER(last, struct hf_session, in_table)->id;
}

static uint64_t last_hold_token(const struct hf_table *table)
{
    const struct hf_dlist *last = table->by_token.prev;

    if (last == &table->by_token)
        return 0;
    return HF_CONTAINER(last, struct hf_hold, by_token)->token;
}

/* A closed session has neither a secret nor results, and two open sessions have
 * different secrets. */
static bool is_consistent_secret(const struct hf_table *table,
                                 const struct hf_nonce *secret, uint8_t ended,
                                 uint32_t count)
{
    static const struct hf_nonce zero;

    return ended ? count == 0 && hf_nonce_equal(secret, &zero)
                 : !hf_table_find_secret(table, secret);
}

static enum hf_err decode_session(struct hf_table *table,
                                  struct hf_reader *reader)
{
    uint64_t id = hf_reader_u64(reader);
    uint8_t ended = hf_reader_u8(reader);
    struct hf_nonce secret = read_nonce(reader);
    uint64_t done = hf_reader_u64(reader);
    uint64_t highest = hf_reader_u64(reader);
    struct hf_bytes label = hf_reader_bytes(reader, HF_NOTE_MAX);
    uint32_t count = hf_reader_u32(reader);
    struct hf_session *session;
    enum hf_err err = HF_OK;

    if (reader->failed || id <= last_session_id(table) ||
        id > table->last_session || ended > 1 || count > HF_WINDOW_MAX ||
        (highest >= done && highest - done >= HF_WINDOW_MAX) ||
        !is_consistent_secret(table, &secret, ended, count))
        return HF_EPROTO;
    session = hf_session_new(id, &secret, label);
    if (!session)
        return HF_ENOMEM;
    session->ended = ended;
    hf_table_add_session(table, session);
    session->done = done;
    session->highest = highest;
    if (count > 0 && highest >= done)
        err = hf_session_reserve(session, done, highest);
    hf_table_results_resized(table, session, 0);
    for (uint32_t i = 0; !err && i < count; i++)
        err = highest < done ? HF_EPROTO : decode_result(session, reader);
    return err;
}

/* The decoded fields of a claim. `value` and `note` point into the input. */
struct claim_fields {
    struct hf_session *session;
    struct hf_nonce nonce;
    uint32_t lease_ms;
    struct hf_bytes value;
    struct hf_bytes note;
};

static enum hf_err decode_claim(const struct hf_table *table,
                                struct claim_fields *claim,
                                struct hf_reader *reader)
{
    claim->session = hf_table_find_session(table, hf_reader_u64(reader));
    claim->nonce = read_nonce(reader);
    claim->lease_ms = hf_reader_u32(reader);
    claim->value = hf_reader_bytes(reader, HF_VALUE_MAX);
    claim->note = hf_reader_bytes(reader, HF_NOTE_MAX);
    if (reader->failed || !claim->session || claim->lease_ms < 1 ||
        claim->lease_ms > HF_LEASE_MAX_MS)
        return HF_EPROTO;
    return HF_OK;
}

/* Whether the waiter may have `sequence`. The waiter's grant overwrites the
 * result kept for `sequence`. A kept result must therefore be that of a LOCK of
 * the same nonce: otherwise the grant would change the result of another
 * command. */
static bool is_consistent_waiter(const struct claim_fields *claim,
                                 uint64_t sequence)
{
    const struct hf_session_result *kept =
        hf_session_find(claim->session, sequence);

    return sequence > 0 && sequence <= claim->session->highest &&
           (!kept || (kept->kind == HF_COMMAND_LOCK &&
                      hf_nonce_equal(&kept->nonce, &claim->nonce)));
}

static enum hf_err decode_waiter(struct hf_table *table, struct hf_hold *hold,
                                 struct hf_reader *reader)
{
    struct claim_fields read;
    struct hf_table_waiter *claim;
    uint8_t *data;
    enum hf_err err = decode_claim(table, &read, reader);
    uint64_t sequence = hf_reader_u64(reader);
    uint64_t ahead = hf_reader_u64(reader);

    if (err)
        return err;
    if (reader->failed || read.session->ended ||
        !is_consistent_waiter(&read, sequence) ||
        hf_table_find_waiter(table, hold, &read.nonce) ||
        hf_nonce_equal(&read.nonce, &hold->nonce) || ahead > COUNTER_MAX)
        return HF_EPROTO;
    claim = hf_table_add_waiter(table, hold, read.session, &read.nonce, LATEST);
    if (!claim)
        return HF_ENOMEM;
    claim->lease_ms = read.lease_ms;
    claim->sequence = sequence;
    if (ahead + 1 < claim->arrival || (hold->waiters == 1 && ahead > 0))
        return HF_EPROTO; /* `ahead` starts at 0 and increases */
    claim->arrival = ahead + 1;
    if (hf_table_pack_data(read.value, read.note, &data))
        return HF_ENOMEM;
    hf_table_set_waiter_data(table, claim, data, read.value.size,
                             read.note.size);
    return HF_OK;
}

static enum hf_err decode_hold(struct hf_table *table, struct hf_reader *reader)
{
    struct hf_bytes bytes = hf_reader_bytes(reader, HF_KEY_MAX);
    struct hf_key key = {bytes.data, bytes.size};
    uint64_t hash = hf_table_hash_key(table, key);
    struct claim_fields read;
    struct hf_hold *hold;
    uint8_t *data;
    enum hf_err err = decode_claim(table, &read, reader);
    uint64_t token = hf_reader_u64(reader);
    uint32_t generation = hf_reader_u32(reader);
    uint8_t forced = hf_reader_u8(reader);
    uint32_t waiters = hf_reader_u32(reader);

    if (err)
        return err;
    if (reader->failed || key.size < 1 ||
        hf_table_find_hashed(table, key, hash) ||
        token <= last_hold_token(table) || token > table->token || forced > 1 ||
        waiters > HF_WAITERS_MAX)
        return HF_EPROTO;
    hold = hf_table_add_hashed(table, key, hash, read.session);
    if (!hold)
        return HF_ENOMEM;
    hold->nonce = read.nonce;
    hold->lease_ms = read.lease_ms;
    hold->token = token;
    hold->generation = generation;
    hold->forced = forced;
    err = hf_table_pack_data(read.value, read.note, &data);
    if (!err)
        hf_table_set_hold_data(table, hold, data, read.value.size,
                               read.note.size);
    for (uint32_t i = 0; !err && i < waiters; i++)
        err = decode_waiter(table, hold, reader);
    return err;
}

uint8_t hf_snapshot_version(const void *data, size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    uint32_t magic = hf_reader_u32(&reader);
    uint8_t version = hf_reader_u8(&reader);

    return magic == MAGIC && !reader.failed ? version : 0;
}

static enum hf_err decode_table(struct hf_table *table,
                                struct hf_reader *reader)
{
    uint32_t magic = hf_reader_u32(reader);
    uint8_t version = hf_reader_u8(reader);
    enum hf_err err = HF_OK;
    uint32_t count;

    if (magic != MAGIC || version < HF_VERSION_FIRST)
        return HF_EPROTO;
    if (version > HF_VERSION_NEWEST)
        return HF_EUNSUPPORTED;
    table->version = version;
    table->token = hf_reader_u64(reader);
    table->last_session = hf_reader_u64(reader);
    table->index = hf_reader_u64(reader);
    count = hf_reader_u32(reader);
    if (count > HF_SESSIONS_MAX || table->token > COUNTER_MAX ||
        table->last_session > COUNTER_MAX || table->index > COUNTER_MAX)
        return HF_EPROTO;
    while (!err && count-- > 0)
        err = decode_session(table, reader);
    if (err)
        return err;
    count = hf_reader_u32(reader);
    if (count > HF_HOLDS_MAX || count > reader->size / HOLD_SIZE_MIN)
        return HF_EPROTO;
    hf_map_reserve(&table->holds, 2 * (size_t)count);
    while (!err && count-- > 0)
        err = decode_hold(table, reader);
    if (!err && (reader->failed || reader->size > 0))
        err = HF_EPROTO;
    return err;
}

/* Whether there is a closed session without holds. Such a session would never
 * be freed, so the snapshot is rejected. */
static bool has_stray_session(const struct hf_table *table)
{
    const struct hf_session *session = NULL;

    while ((session = hf_table_next_session(table, session))) {
        if (session->ended && session->holds == 0)
            return true;
    }
    return false;
}

static int compare_claims(const void *a, const void *b)
{
    const struct hf_table_waiter *x = *(struct hf_table_waiter *const *)a;
    const struct hf_table_waiter *y = *(struct hf_table_waiter *const *)b;

    if (x->session != y->session)
        return x->session->id < y->session->id ? -1 : 1;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void collect_claims(const struct hf_table *table,
                           struct hf_table_waiter **claims)
{
    const struct hf_session *session = NULL;

    while ((session = hf_table_next_session(table, session))) {
        for (struct hf_dlist *link = session->waiting.next;
             link != &session->waiting; link = link->next)
            *claims++ = HF_CONTAINER(link, struct hf_table_waiter, in_session);
    }
}

/* Order the waiters of each session by sequence, because the snapshot lists
 * waiters by hold. Two waiters of a session with the same sequence are an
 * error. */
static enum hf_err sort_waiters(struct hf_table *table)
{
    size_t count = table->waiting.count;
    struct hf_table_waiter **claims =
        malloc((count + 1) * sizeof(struct hf_table_waiter *));
    enum hf_err err = HF_OK;

    if (!claims)
        return HF_ENOMEM;
    collect_claims(table, claims);
    qsort(claims, count, sizeof(struct hf_table_waiter *), compare_claims);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && compare_claims(&claims[i - 1], &claims[i]) == 0)
            err = HF_EPROTO;
        hf_dlist_remove(&claims[i]->in_session);
        hf_dlist_push_back(&claims[i]->session->waiting,
                           &claims[i]->in_session);
    }
    free(claims);
    return err;
}

enum hf_err hf_snapshot_decode(struct hf_table *table, const void *data,
                               size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_reader tail;
    enum hf_err err;

    if (size < CHECKSUM_SIZE)
        return HF_EPROTO;
    reader.size -= CHECKSUM_SIZE;
    tail = (struct hf_reader){reader.data + reader.size, CHECKSUM_SIZE, false};
    if (hf_reader_u64(&tail) != checksum(data, reader.size))
        return HF_EPROTO;
    err = decode_table(table, &reader);
    if (!err && has_stray_session(table))
        err = HF_EPROTO;
    if (!err)
        err = sort_waiters(table);
    if (err) {
        hf_table_fini(table);
        hf_table_init(table, &table->seed, table->event, table->arg);
    }
    return err;
}
