#include "strategy/listing.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"

struct listing {
    struct hf_in_process *local;
    struct hf_answer *answer;
    struct hf_key prefix;
    struct hf_table_walk walk;
    size_t visited;
    size_t single_step_after; /* after this many holds, copy the rest in one
                                 step, so that the list ends even if keys are
                                 added all the time */
    size_t capacity;          /* allocated elements of answer->infos */
    uint64_t index;           /* the last event's index when the list started */
    uint64_t token;           /* the last grant's token when the list started;
                                 keys with a higher token may be visited
                                 twice */
    bool repeats;             /* a key may have been visited twice */
    struct hf_buf buf;        /* the holds that the last step has copied */
};

/* ---- In the critical section --------------------------------------------*/

_Static_assert(HF_FITS(HF_NOTE_MAX + 1, uint32_t),
               "the size of a string is encoded in 32 bits");

static void copy_string(struct hf_buf *buf, const void *data, size_t size)
{
    hf_buf_u32(buf, (uint32_t)size + 1);
    hf_buf_raw(buf, data, size);
    hf_buf_u8(buf, 0);
}

static void copy_hold(struct listing *listing, hf_time now,
                      const struct hf_hold *hold)
{
    const struct hf_store *store = listing->local->store;
    struct hf_bytes value = hf_hold_value(hold);
    struct hf_bytes note = hf_hold_note(hold);
    struct hf_buf *buf = &listing->buf;

    hf_buf_bytes(buf, hold->key, hold->key_size);
    hf_buf_u8(buf, hold->forced);
    hf_buf_u64(buf, hold->token);
    hf_buf_u32(buf, hf_time_left(now, hold->since));
    hf_buf_u32(buf, hf_time_left(hf_store_deadline(store, hold), now));
    hf_buf_u32(buf, hold->waiters);
    hf_buf_bytes(buf, value.data, value.size);
    copy_string(buf, hold->session->label, hold->session->label_size);
    copy_string(buf, note.data, note.size);
}

static bool is_step_full(const struct listing *listing, size_t count)
{
    if (listing->visited > listing->single_step_after)
        return false;
    return count >= HF_LISTING_HOLDS || listing->buf.size >= HF_LISTING_BYTES;
}

/* End the grant of `hold` if its holder is dead. Returns true if the holder
 * was dead: then `hold` may be freed, and if the key was granted to a waiter,
 * the walk visits the key again. Neighbours in the walk often have the same
 * session, so `*live` caches the last session that was found alive. */
static bool end_abandoned(const struct listing *listing,
                          const struct hf_hold *hold, uint64_t *live)
{
    struct hf_in_process *local = listing->local;
    uint64_t before = local->store->table.index;
    uint64_t session = hold->session->id;

    if (!local->ops->reap_holder || session == *live)
        return false;
    local->ops->reap_holder(local, hf_hold_key(hold));
    if (local->store->table.index != before)
        return true;
    *live = session;
    return false;
}

static void copy_step(struct listing *listing)
{
    hf_time now = hf_in_process_now(listing->local);
    const struct hf_table *table = &listing->local->store->table;
    const struct hf_hold *hold;
    uint64_t live = 0;

    listing->buf.size = 0;
    for (size_t i = 0; !is_step_full(listing, i); i++) {
        hold = hf_table_walk_next(table, &listing->walk);
        if (!hold)
            break;
        listing->visited++;
        if (!hf_key_has_prefix(hf_hold_key(hold), listing->prefix) ||
            end_abandoned(listing, hold, &live))
            continue;
        listing->repeats = listing->repeats || hold->token > listing->token;
        copy_hold(listing, now, hold);
    }
}

/* ---- After the critical section -----------------------------------------*/

static enum hf_err reserve_info(struct listing *listing)
{
    struct hf_answer *answer = listing->answer;
    size_t capacity = listing->capacity ? listing->capacity * 2 : 64;
    struct hf_info *infos;

    if (answer->count >= HF_LIST_MAX)
        return HF_ELIMIT;
    if (answer->count < listing->capacity)
        return HF_OK;
    infos = realloc(answer->infos, capacity * sizeof(*infos));
    if (!infos)
        return HF_ENOMEM;
    answer->infos = infos;
    listing->capacity = capacity;
    return HF_OK;
}

static enum hf_err decode_hold_info(struct listing *listing,
                                    struct hf_reader *reader)
{
    struct hf_answer *answer = listing->answer;
    struct hf_info info = {.held = true, .index = listing->index};
    struct hf_bytes key = hf_reader_bytes(reader, HF_KEY_MAX);
    enum hf_err err = reserve_info(listing);

    if (err)
        return err;
    info.key = (struct hf_key){key.data, key.size};
    info.forced = hf_reader_u8(reader);
    info.token = hf_reader_u64(reader);
    info.held_ms = hf_reader_u32(reader);
    info.left_ms = hf_reader_u32(reader);
    info.waiters = hf_reader_u32(reader);
    info.value = hf_reader_bytes(reader, HF_VALUE_MAX);
    info.owner = hf_reader_bytes(reader, HF_NOTE_MAX + 1).data;
    info.note = hf_reader_bytes(reader, HF_NOTE_MAX + 1).data;
    err = hf_info_copy(&answer->infos[answer->count], &info);
    answer->count += !err;
    return err;
}

static enum hf_err decode_step(struct listing *listing)
{
    struct hf_reader reader = {.data = listing->buf.data,
                               .size = listing->buf.size};
    enum hf_err err = listing->buf.failed ? HF_ENOMEM : HF_OK;

    while (!err && reader.size > 0)
        err = decode_hold_info(listing, &reader);
    return err;
}

/* ---- Running the steps --------------------------------------------------*/

/* Start the list, or start it over without the infos collected so far. */
static void begin_listing(struct listing *listing)
{
    struct hf_table *table = &listing->local->store->table;

    listing->index = table->index;
    listing->token = table->token;
    listing->repeats = false;
    hf_answer_clear(listing->answer);
    listing->capacity = 0;
    hf_table_walk_begin(table, &listing->walk);
    if (listing->single_step_after == 0)
        listing->single_step_after = 2 * table->holds.count + 65536;
}

/* Enter the store for one step. If the strategy has replaced the store since
 * the last step, the listing starts over. */
static enum hf_err run_step(struct listing *listing)
{
    struct hf_in_process *local = listing->local;
    enum hf_err err = local->ops->enter(local);

    if (err)
        return err;
    if (listing->walk.broken)
        begin_listing(listing);
    copy_step(listing);
    if (!listing->walk.next)
        hf_table_walk_end(&listing->walk);
    local->ops->leave(local);
    return HF_OK;
}

/* End the walk early. If `enter` fails, end it without entering: a store whose
 * `enter` can fail belongs to one client, so no other thread uses it. */
static void abandon_walk(struct listing *listing)
{
    struct hf_in_process *local = listing->local;
    bool inside = local->ops->enter(local) == HF_OK;

    hf_table_walk_end(&listing->walk);
    if (inside)
        local->ops->leave(local);
}

static enum hf_err run_listing(struct listing *listing, enum hf_err *failure)
{
    enum hf_err err;

    do {
        err = run_step(listing);
        if (!err)
            *failure = decode_step(listing);
    } while (!err && !*failure && listing->walk.next);
    if (listing->walk.next)
        abandon_walk(listing);
    return err;
}

enum hf_err hf_listing_run(struct hf_in_process *local,
                           struct hf_request *request)
{
    struct listing listing = {
        .local = local,
        .answer = &request->answer,
        .prefix = request->command.key,
        .walk = {.broken = true}, /* makes the first step start the walk */
    };
    enum hf_err failure = HF_OK;
    enum hf_err err = run_listing(&listing, &failure);

    hf_buf_fini(&listing.buf);
    if (err || failure)
        hf_answer_clear(&request->answer);
    else if (listing.repeats)
        request->answer.count =
            hf_info_sort_unique(request->answer.infos, request->answer.count);
    request->answer.result.err = failure;
    request->answer.index = listing.index;
    return err;
}
