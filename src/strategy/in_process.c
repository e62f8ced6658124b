#include "strategy/in_process.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/listing.h"

hf_time hf_in_process_now(const struct hf_in_process *local)
{
    return local->host->ops->now(local->host) - local->offset;
}

/* ---- Commands -----------------------------------------------------------*/

/* The delay after which a waiter should be checked again. A lease expires only
 * when a client enters the store, so each waiter polls when the lease is due:
 * the first on time, the others a little later, so that they do not all enter
 * the store at once. Unless local->poll_ms is 0, the first waiter also polls
 * at that interval, in case it missed its grant; waiters further back in the
 * queue poll less often. */
static uint32_t poll_delay_ms(const struct hf_in_process *local, hf_time now,
                              const struct hf_hold *hold, uint32_t position)
{
    uint32_t turn = position < 4 ? (position - 1) * 10 : 30;
    uint32_t wait =
        hf_time_left(hf_store_deadline(local->store, hold), now) + turn;
    uint32_t poll_ms = local->poll_ms * (position < 10 ? position : 10);

    return poll_ms > 0 && poll_ms < wait ? poll_ms : wait;
}

/* Set the poll delay of a queued LOCK, or the anchor of a grant or renewal. A
 * repeated copy of a command has not touched a hold: a repeated LOCK gets the
 * anchor of its grant, and the anchor of a repeated RENEW stays unknown. */
static void set_times(const struct hf_in_process *local, hf_time now,
                      struct hf_request *request)
{
    const struct hf_store *store = local->store;
    const struct hf_command *command = &request->command;
    struct hf_answer *answer = &request->answer;
    const struct hf_hold *hold = store->touched;
    bool is_repeat = !hold;
    hf_time since = now;

    if (command->kind != HF_COMMAND_LOCK && command->kind != HF_COMMAND_RENEW)
        return;
    if (is_repeat && command->kind == HF_COMMAND_LOCK)
        hold = hf_table_find(&store->table, command->key);
    if (!hold)
        return;
    if (answer->result.position > 0)
        answer->poll_after_ms =
            poll_delay_ms(local, now, hold, answer->result.position);
    if (answer->result.err)
        return;
    if (hold->token == answer->result.token)
        since = hold->since;
    else if (is_repeat)
        return;
    answer->anchor = (struct hf_anchor){
        .known = true,
        .sent = since + local->offset,
    };
}

static void serve_command(struct hf_in_process *local, hf_time now,
                          struct hf_request *request)
{
    request->command.session = local->session;
    local->cause = NULL;
    local->ops->run(local, now, &request->command, &request->answer.result);
    if (local->cause)
        request->answer.cause = strdup(local->cause);
    set_times(local, now, request);
}

/* ---- Reading ------------------------------------------------------------*/

static enum hf_err copy_info(const struct hf_store *store, hf_time now,
                             const struct hf_hold *hold, struct hf_info *info)
{
    char note[HF_NOTE_MAX + 1];
    struct hf_info from = hf_store_info(store, now, hold, note);

    return hf_info_copy(info, &from);
}

static void serve_read(const struct hf_store *store, hf_time now,
                       struct hf_request *request)
{
    struct hf_answer *answer = &request->answer;
    struct hf_key key = request->command.key;
    const struct hf_hold *hold = hf_table_find(&store->table, key);
    struct hf_info none = {
        .key = key,
        .owner = "",
        .note = "",
        .index = store->table.index,
    };
    enum hf_err err;

    answer->infos = calloc(1, sizeof(*answer->infos));
    if (!answer->infos)
        err = HF_ENOMEM;
    else if (hold)
        err = copy_info(store, now, hold, answer->infos);
    else
        err = hf_info_copy(answer->infos, &none);
    answer->count = err ? 0 : 1;
    answer->result.err = err;
}

/* Look a claim up. The store is up to date, so there is no difference between
 * a local and a linearizable LOOKUP. */
static void serve_lookup(struct hf_in_process *local, hf_time now,
                         struct hf_request *request)
{
    const struct hf_table *table = &local->store->table;
    const struct hf_command *command = &request->command;
    const struct hf_hold *hold = hf_table_find(table, command->key);
    struct hf_lookup claim =
        hf_table_lookup(table, command->key, &command->nonce);
    struct hf_answer *answer = &request->answer;

    answer->result = (struct hf_result){
        .err = HF_ENOTHELD,
        .token = claim.token,
        .generation = claim.generation,
        .position = claim.position,
    };
    if (claim.state == HF_LOOKUP_HELD) {
        answer->result.err = HF_OK;
        answer->anchor = (struct hf_anchor){
            .known = true,
            .sent = hold->since + local->offset,
        };
    } else if (claim.state == HF_LOOKUP_QUEUED) {
        answer->result.err = HF_EBUSY;
        answer->poll_after_ms = poll_delay_ms(local, now, hold, claim.position);
        if (local->ops->follow)
            local->ops->follow(local, command);
    }
}

/* ---- Requests -----------------------------------------------------------*/

/* Execute a request, in the critical section. */
static void serve_request(struct hf_in_process *local,
                          struct hf_request *request)
{
    hf_time now = hf_in_process_now(local);
    struct hf_answer *answer = &request->answer;

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        serve_command(local, now, request);
        break;
    case HF_REQUEST_READ:
        if (local->ops->reap_holder)
            local->ops->reap_holder(local, request->command.key);
        serve_read(local->store, now, request);
        break;
    case HF_REQUEST_LOOKUP:
        if (local->ops->reap_holder)
            local->ops->reap_holder(local, request->command.key);
        serve_lookup(local, now, request);
        break;
    case HF_REQUEST_LIST:
        HF_ASSERT(false); /* LIST is executed by hf_listing_run() */
        break;
    case HF_REQUEST_WATCH:
        answer->result.err = hf_in_process_watch(local, request);
        break;
    case HF_REQUEST_UNWATCH:
        hf_in_process_unwatch(local, request->watch);
        break;
    }
    answer->index = local->store->table.index;
}

static enum hf_err enter_and_serve(struct hf_in_process *local,
                                   struct hf_request *request)
{
    enum hf_err err = local->ops->enter(local);

    if (err)
        return err;
    serve_request(local, request);
    local->ops->leave(local);
    return HF_OK;
}

enum hf_err hf_in_process_submit(struct hf_in_process *local,
                                 struct hf_request *request)
{
    enum hf_err err = request->kind == HF_REQUEST_LIST
                          ? hf_listing_run(local, request)
                          : enter_and_serve(local, request);

    if (err)
        return err;
    local->host->ops->answer(local->host, request);
    if (local->has_reports && !local->is_reporting)
        hf_in_process_report(local);
    return HF_OK;
}

/* ---- Initialization and sessions ----------------------------------------*/

static void on_local_expiry(struct hf_timer *timer)
{
    hf_in_process_report(
        HF_CONTAINER(timer, struct hf_in_process, expiry_timer));
}

static void on_more_events(struct hf_post *post)
{
    hf_in_process_report(HF_CONTAINER(post, struct hf_in_process, more));
}

enum hf_err hf_in_process_init(struct hf_in_process *local,
                               struct hf_host *host,
                               const struct hf_in_process_ops *ops)
{
    local->ops = ops;
    local->host = host;
    local->expiry_timer.fire = on_local_expiry;
    local->more.run = on_more_events;
    hf_watches_init(&local->watches);
    hf_dlist_init(&local->grants);
    return host->ops->timer_add(host, &local->expiry_timer);
}

void hf_in_process_fini(struct hf_in_process *local)
{
    hf_in_process_drop_grants(local);
    hf_watches_fini(&local->watches, NULL, NULL);
    local->host->ops->unpost(local->host, &local->more);
    local->host->ops->timer_remove(local->host, &local->expiry_timer);
}

uint32_t hf_in_process_caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH | HF_CAP_STEADY |
           HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH;
}

enum hf_err hf_in_process_open_session(struct hf_in_process *local)
{
    struct hf_host *host = local->host;
    const char *owner = host->ops->owner(host);
    struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .note = {owner, strlen(owner)},
    };
    struct hf_result result;
    enum hf_err err = hf_random_bytes(host->ops->random(host), &open.nonce,
                                      sizeof(open.nonce));

    if (err)
        return err;
    local->ops->run(local, hf_in_process_now(local), &open, &result);
    if (!result.err)
        local->session = result.session;
    return result.err;
}

enum hf_err hf_in_process_close_session(struct hf_in_process *local,
                                        uint64_t session)
{
    const struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = session,
        .sequence = UINT64_MAX, /* close it, whatever it has sent */
    };
    struct hf_result result;

    local->ops->run(local, hf_in_process_now(local), &close, &result);
    return result.err;
}
