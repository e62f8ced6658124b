/* claims.c - the claims of this client, and the commands on them.
 *
 * A claim has a coordinator, which runs until the claim has ended, whether or
 * not a request waits for it. A request is in a *slot* of its claim while the
 * coordinator works on it; others wait.
 *
 * A claim that this client has not made itself is *adopted*: first, the masters
 * are asked whether it holds the key. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/quorum/quorum.h"

/* The coordinator asks again by itself and is pushed votes, so the client need
 * not check its waiters. */
#define POLL_MS 30000

/* Forget a claim that is held, and for which the client sends nothing more,
 * this long after its lease must have expired. */
#define FORGET_MS 10000

/* Claims whose end a majority has confirmed, and the last masters not yet. More
 * are forgotten: their ENDs were sent, and will be executed. */
#define LINGERING_MAX 64

/* Marks a command that was begun: a further copy of it is a repetition. */
#define SESSION 1

enum slot {
    SLOT_LOCK,
    SLOT_RENEW,
    SLOT_UPDATE,
    SLOT_END, /* UNLOCK, CANCEL */
    SLOTS
};

struct hf_voting_claim {
    struct hf_map_link by_number;
    struct hf_map_link by_id;
    struct hf_dlist link; /* in voting->claims */
    struct hf_heap_link timer;
    struct hf_dlist to_push;
    struct hf_dlist lingering;
    struct hf_voting *voting;
    struct hf_coordinator *coordinator;
    uint64_t number; /* the id of its messages */
    struct hf_request *slots[SLOTS];
    struct hf_dlist waiting;  /* requests that wait for a slot, or the check */
    bool is_checking;         /* adopted: the masters are being asked */
    uint64_t checked_token;   /* about this token */
    bool is_active;           /* counted in voting->active_claims */
    bool was_waiting;         /* when it was ended, it was not granted yet */
    bool was_held;            /* when it was ended, it held the key */
    bool has_ended;           /* a majority has ended it */
    bool is_unlocked;         /* by an UNLOCK */
    bool is_adopted;          /* granted to another handle, whose validity is
                                 not known here */
    bool is_unanswered;       /* no request has got the result: of its end,
                                 or the refusal of its LOCK */
    uint64_t end_sequence;    /* of the command that has ended it */
    enum hf_err refusal;      /* of a LOCK whose request was answered */
    uint32_t position;        /* when it was queued; it may only be lower now */
    uint64_t update_sequence; /* of the UPDATE that is under way */
    uint64_t updated_sequence; /* of the last one that was decided, */
    enum hf_err update_result; /* and its result */
    hf_time lapses_at;         /* the lease has expired by then */
    struct hf_push_grant grant;
};

static enum slot slot_of(const struct hf_request *request)
{
    switch (request->command.kind) {
    case HF_COMMAND_LOCK:
        return SLOT_LOCK;
    case HF_COMMAND_RENEW:
        return SLOT_RENEW;
    case HF_COMMAND_UPDATE:
        return SLOT_UPDATE;
    default:
        return SLOT_END;
    }
}

/* ---- Finding claims -----------------------------------------------------*/

static uint64_t hash_id(const struct hf_claim_id *id)
{
    uint64_t hash;

    memcpy(&hash, id->bytes, sizeof(hash)); /* the id is a hash already */
    return hash;
}

static struct hf_voting_claim *find_by_id(const struct hf_voting *voting,
                                          const struct hf_claim_id *id)
{
    struct hf_map_link *link = hf_map_find(&voting->claims_by_id, hash_id(id));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_voting_claim *claim =
            HF_CONTAINER(link, struct hf_voting_claim, by_id);

        if (hf_claim_id_equal(&claim->coordinator->id, id))
            return claim;
    }
    return NULL;
}

static struct hf_voting_claim *find_by_nonce(const struct hf_voting *voting,
                                             const struct hf_nonce *nonce)
{
    struct hf_claim_id id = hf_claim_id_of(nonce);

    return find_by_id(voting, &id);
}

/* ---- Answers ------------------------------------------------------------*/

static struct hf_request *take_slot(struct hf_voting_claim *claim,
                                    enum slot slot)
{
    struct hf_request *request = claim->slots[slot];

    claim->slots[slot] = NULL;
    return request;
}

/* Answer the request in the slot, if there is one. */
static void answer_slot(struct hf_voting_claim *claim, enum slot slot,
                        enum hf_err err, const char *cause)
{
    struct hf_request *request = take_slot(claim, slot);

    if (request)
        hf_voting_answer(claim->voting, request, err, cause);
}

static void answer_waiting(struct hf_voting_claim *claim, enum hf_err err,
                           const char *cause)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&claim->waiting)))
        hf_voting_answer(claim->voting,
                         HF_CONTAINER(link, struct hf_request, link), err,
                         cause);
}

static void fail_slots(struct hf_voting_claim *claim, enum hf_err err,
                       const char *cause)
{
    for (enum slot slot = 0; slot < SLOTS; slot++)
        answer_slot(claim, slot, err, cause);
}

static bool has_requests(const struct hf_voting_claim *claim)
{
    for (enum slot slot = 0; slot < SLOTS; slot++) {
        if (claim->slots[slot])
            return true;
    }
    return !hf_dlist_is_empty(&claim->waiting);
}

/* ---- New and free -------------------------------------------------------*/

static void free_claim(struct hf_voting_claim *claim)
{
    struct hf_voting *voting = claim->voting;

    if (claim->is_checking)
        hf_voting_rounds_cancel_check(voting, claim);
    if (claim->is_active)
        voting->active_claims--;
    hf_map_remove(&voting->claims_by_number, &claim->by_number);
    hf_map_remove(&voting->claims_by_id, &claim->by_id);
    hf_dlist_remove(&claim->link);
    hf_dlist_remove(&claim->to_push);
    if (hf_dlist_is_linked(&claim->lingering))
        voting->lingering_count--;
    hf_dlist_remove(&claim->lingering);
    hf_heap_drop(&voting->claim_timers, &claim->timer);
    hf_coordinator_free(claim->coordinator);
    free(claim);
}

static const struct hf_coordinator_ops coordinator_ops;

static struct hf_voting_claim *add_claim(struct hf_voting *voting,
                                         const struct hf_command *command)
{
    const struct hf_claim_data data = {
        .value = command->value,
        .note = command->note,
        .owner = hf_bytes_of(voting->net.host->ops->owner(voting->net.host)),
    };
    struct hf_voting_claim *claim = calloc(1, sizeof(*claim));

    if (!claim || hf_heap_reserve(&voting->claim_timers,
                                  voting->claims_by_id.count + 1)) {
        free(claim);
        return NULL;
    }
    claim->voting = voting;
    claim->lapses_at = HF_NEVER;
    hf_dlist_init(&claim->waiting);
    claim->coordinator =
        hf_coordinator_new(&voting->common, &coordinator_ops, claim,
                           command->key, &command->nonce, &data);
    if (!claim->coordinator) {
        free(claim);
        return NULL;
    }
    claim->number = voting->net.next_id++;
    hf_map_insert(&voting->claims_by_number, &claim->by_number,
                  hf_map_hash_number(claim->number));
    hf_map_insert(&voting->claims_by_id, &claim->by_id,
                  hash_id(&claim->coordinator->id));
    hf_dlist_push_back(&voting->claims, &claim->link);
    return claim;
}

/* ---- Events of the coordinator ------------------------------------------*/

static void on_send(void *arg, struct hf_coordinator *coordinator,
                    unsigned master, const struct hf_quorum_request *request)
{
    struct hf_voting_claim *claim = arg;

    (void)coordinator;
    hf_voting_masters_send(claim->voting, master, claim->number, request);
}

static struct hf_anchor anchor_of(const struct hf_coordinator_event *event)
{
    return (struct hf_anchor){
        .known = true,
        .sent = event->sent,
        .age_ms = event->age_ms,
    };
}

static void extend_lapse(struct hf_voting_claim *claim)
{
    uint64_t lease_ms = claim->coordinator->lease_ms;

    claim->lapses_at = hf_time_add(hf_net_now(&claim->voting->net),
                                   lease_ms + lease_ms / 8 + FORGET_MS);
}

static void fill_grant(struct hf_answer *answer, uint64_t token,
                       const struct hf_anchor *anchor)
{
    *answer = (struct hf_answer){
        .result = {.err = HF_OK, .token = token},
        .anchor = *anchor,
    };
}

static void on_granted(struct hf_voting_claim *claim,
                       const struct hf_coordinator_event *event)
{
    struct hf_request *lock = take_slot(claim, SLOT_LOCK);

    claim->grant = (struct hf_push_grant){
        .nonce = claim->coordinator->nonce,
        .token = event->token,
        .anchor = anchor_of(event),
    };
    extend_lapse(claim);
    if (lock) {
        fill_grant(&lock->answer, event->token, &claim->grant.anchor);
        claim->voting->net.host->ops->answer(claim->voting->net.host, lock);
        return;
    }
    hf_dlist_push_back(&claim->voting->to_push, &claim->to_push);
    claim->voting->net.host->ops->defer(claim->voting->net.host,
                                        &claim->voting->push_grants);
}

static void answer_queued(struct hf_voting_claim *claim)
{
    struct hf_request *lock = take_slot(claim, SLOT_LOCK);

    if (!lock)
        return;
    lock->answer = (struct hf_answer){
        .result = {.err = HF_EBUSY, .position = claim->position},
        .poll_after_ms = POLL_MS,
        .is_pushed = true,
    };
    claim->voting->net.host->ops->answer(claim->voting->net.host, lock);
}

static void on_renewed(struct hf_voting_claim *claim,
                       const struct hf_coordinator_event *event)
{
    struct hf_request *renew = take_slot(claim, SLOT_RENEW);
    struct hf_anchor anchor = anchor_of(event);

    extend_lapse(claim);
    if (!renew)
        return;
    fill_grant(&renew->answer, claim->coordinator->token, &anchor);
    claim->voting->net.host->ops->answer(claim->voting->net.host, renew);
}

static void answer_ended(struct hf_voting_claim *claim)
{
    struct hf_request *request = take_slot(claim, SLOT_END);
    bool is_ok = claim->was_held || claim->was_waiting;

    if (!request)
        return;
    request->answer = (struct hf_answer){
        .result = {.err = is_ok ? HF_OK : HF_ENOTHELD},
        .sure = claim->was_held,
    };
    if (request->command.kind == HF_COMMAND_CANCEL && claim->was_held)
        request->answer.result.token = claim->coordinator->token;
    claim->voting->net.host->ops->answer(claim->voting->net.host, request);
}

/* No request waits for the result: keep it for one that is repeated. */
static void keep_result(struct hf_voting_claim *claim)
{
    claim->is_unanswered = true;
    claim->lapses_at = hf_time_add(hf_net_now(&claim->voting->net), FORGET_MS);
}

/* The client sends UNLOCK, not CANCEL, only while the lock is valid. */
static void on_ended(struct hf_voting_claim *claim,
                     const struct hf_coordinator_event *event)
{
    claim->has_ended = true;
    claim->was_held =
        event->was_held ||
        (claim->is_unlocked && !claim->is_adopted && event->was_released);
    if (claim->slots[SLOT_END])
        answer_ended(claim);
    else
        keep_result(claim);
}

static const char *refusal_text(enum hf_err err)
{
    if (err == HF_EINVAL)
        return "ttl: longer than the longest lease of the masters, which "
               "`holdfast cluster up --lease-max` sets";
    return hf_err_text(err);
}

/* The coordinator has given up the LOCK, and withdraws it. */
static void refuse_lock(struct hf_voting_claim *claim, enum hf_err err)
{
    if (claim->slots[SLOT_LOCK]) {
        answer_slot(claim, SLOT_LOCK, err,
                    err == HF_EBUSY ? NULL : refusal_text(err));
        return;
    }
    claim->refusal = err;
    keep_result(claim);
    hf_dlist_push_back(&claim->voting->to_push, &claim->to_push);
    claim->voting->net.host->ops->defer(claim->voting->net.host,
                                        &claim->voting->push_grants);
}

/* A lock is refused, or the renewal of one that was granted. */
static void on_refused(struct hf_voting_claim *claim, enum hf_err err)
{
    if (claim->coordinator->token == 0)
        refuse_lock(claim, err);
    else
        answer_slot(claim, SLOT_RENEW, err, refusal_text(err));
}

/* Remember the result: if the request was answered with HF_EINDOUBT, the client
 * repeats it. */
static void on_updated(struct hf_voting_claim *claim, enum hf_err err)
{
    if (claim->update_sequence == 0)
        return;
    claim->updated_sequence = claim->update_sequence;
    claim->update_result = err;
    claim->update_sequence = 0;
    answer_slot(claim, SLOT_UPDATE, err, NULL);
}

static void on_lost(struct hf_voting_claim *claim)
{
    answer_slot(claim, SLOT_RENEW, HF_ENOTHELD, NULL);
    on_updated(claim, HF_ENOTHELD);
}

static void on_event(void *arg, struct hf_coordinator *coordinator,
                     const struct hf_coordinator_event *event)
{
    struct hf_voting_claim *claim = arg;

    (void)coordinator;
    switch (event->kind) {
    case HF_COORDINATOR_QUEUED:
        claim->position = event->position;
        answer_queued(claim);
        break;
    case HF_COORDINATOR_GRANTED:
        on_granted(claim, event);
        break;
    case HF_COORDINATOR_BUSY:
        refuse_lock(claim, HF_EBUSY);
        break;
    case HF_COORDINATOR_RENEWED:
        on_renewed(claim, event);
        break;
    case HF_COORDINATOR_UPDATED:
        on_updated(claim, HF_OK);
        break;
    case HF_COORDINATOR_MISMATCH:
        on_updated(claim, HF_EMISMATCH);
        break;
    case HF_COORDINATOR_FORCED:
        answer_slot(claim, SLOT_RENEW, HF_EFORCED, NULL);
        break;
    case HF_COORDINATOR_LOST:
        on_lost(claim);
        break;
    case HF_COORDINATOR_REFUSED:
        on_refused(claim, event->err);
        break;
    case HF_COORDINATOR_ENDED:
        on_ended(claim, event);
        break;
    }
}

static const struct hf_coordinator_ops coordinator_ops = {
    .send = on_send,
    .event = on_event,
};

/* The client may submit other requests inside these calls. */
static void push_grants(struct hf_post *post)
{
    struct hf_voting *voting =
        HF_CONTAINER(post, struct hf_voting, push_grants);
    struct hf_host *host = voting->net.host;
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&voting->to_push))) {
        struct hf_voting_claim *claim =
            HF_CONTAINER(link, struct hf_voting_claim, to_push);
        struct hf_push_grant grant = claim->grant;
        struct hf_nonce nonce = claim->coordinator->nonce;

        if (claim->refusal)
            host->ops->nudge(host, &nonce);
        else
            host->ops->grant(host, &grant);
    }
}

/* ---- After each call of a coordinator -----------------------------------*/

static bool is_held(const struct hf_voting_claim *claim)
{
    enum hf_coordinator_state state = claim->coordinator->state;

    return claim->coordinator->token > 0 && state != HF_COORDINATOR_END &&
           state != HF_COORDINATOR_DONE;
}

static bool awaits_replies(const struct hf_voting_claim *claim)
{
    enum hf_coordinator_state state = claim->coordinator->state;

    return state != HF_COORDINATOR_IDLE && state != HF_COORDINATOR_HOLD &&
           state != HF_COORDINATOR_DONE;
}

static void set_active(struct hf_voting_claim *claim)
{
    struct hf_voting *voting = claim->voting;
    bool is_active = awaits_replies(claim);

    if (is_active == claim->is_active)
        return;
    if (is_active && voting->active_claims == 0)
        hf_voting_masters_expect(voting);
    claim->is_active = is_active;
    if (is_active)
        voting->active_claims++;
    else
        voting->active_claims--;
}

/* Returns true if nobody needs the claim any more. */
static bool can_be_freed(const struct hf_voting_claim *claim, hf_time now)
{
    if (has_requests(claim) || hf_dlist_is_linked(&claim->to_push) ||
        claim->is_active)
        return false;
    return now >= claim->lapses_at ||
           (claim->coordinator->state == HF_COORDINATOR_DONE &&
            !claim->is_unanswered);
}

/* Keep the claim until the last masters have ended it, too. */
static void let_linger(struct hf_voting_claim *claim)
{
    if (!claim->has_ended || claim->is_unanswered || has_requests(claim) ||
        hf_dlist_is_linked(&claim->lingering))
        return;
    hf_dlist_push_back(&claim->voting->lingering, &claim->lingering);
    claim->voting->lingering_count++;
}

static void forget_lingering(struct hf_voting *voting)
{
    while (voting->lingering_count > LINGERING_MAX) {
        struct hf_voting_claim *oldest =
            HF_CONTAINER(hf_dlist_first(&voting->lingering),
                         struct hf_voting_claim, lingering);

        HF_ASSERT(!has_requests(oldest)); /* they are answered at once */
        free_claim(oldest);
    }
}

static void start_waiting(struct hf_voting_claim *claim);

/* Start requests that wait, set the timer, and free a claim that has ended or
 * that nobody needs any more. */
static void settle_claim(struct hf_voting_claim *claim)
{
    struct hf_voting *voting = claim->voting;
    hf_time now = hf_net_now(&voting->net);
    hf_time at;

    start_waiting(claim);
    set_active(claim);
    if (can_be_freed(claim, now)) {
        free_claim(claim);
        return;
    }
    let_linger(claim);
    at = hf_coordinator_deadline(claim->coordinator);
    if (!claim->is_active && !has_requests(claim))
        at = hf_time_min(at, hf_time_add(claim->lapses_at, 1));
    if (at == HF_NEVER)
        hf_heap_drop(&voting->claim_timers, &claim->timer);
    else
        hf_heap_set(&voting->claim_timers, &claim->timer, at);
    hf_net_wake_at(&voting->net, at);
}

/* ---- Commands -----------------------------------------------------------*/

static void start_lock(struct hf_voting_claim *claim,
                       struct hf_request *request)
{
    struct hf_coordinator *coordinator = claim->coordinator;
    const struct hf_command *command = &request->command;

    claim->slots[SLOT_LOCK] = request;
    if (claim->refusal) {
        claim->is_unanswered = false;
        refuse_lock(claim, claim->refusal);
    } else if (coordinator->state == HF_COORDINATOR_IDLE)
        hf_coordinator_lock(coordinator, hf_net_now(&claim->voting->net),
                            command->lease_ms, command->queue);
    else if (is_held(claim)) {
        (void)take_slot(claim, SLOT_LOCK);
        fill_grant(&request->answer, coordinator->token, &claim->grant.anchor);
        claim->voting->net.host->ops->answer(claim->voting->net.host, request);
    } else if (coordinator->state == HF_COORDINATOR_END ||
               coordinator->state == HF_COORDINATOR_DONE)
        answer_slot(claim, SLOT_LOCK, HF_ECANCELED, NULL);
    else if (coordinator->is_queue_reported)
        answer_queued(claim);
    /* else: an earlier copy is under way */
}

static void start_update(struct hf_voting_claim *claim,
                         struct hf_request *request)
{
    struct hf_command *command = &request->command;
    enum hf_err err;

    hf_coordinator_abandon_update(claim->coordinator);
    claim->update_sequence = 0;
    err = hf_coordinator_update(
        claim->coordinator, hf_net_now(&claim->voting->net),
        command->has_expected ? &command->expected : NULL, command->value);
    if (err) {
        hf_voting_answer(claim->voting, request, err, hf_err_text(err));
        return;
    }
    claim->slots[SLOT_UPDATE] = request;
    claim->update_sequence = command->sequence;
    command->session = SESSION;
}

/* An UPDATE must not be executed twice: in between, the value may have been
 * changed by another one, or may not be the expected one any more. So if an
 * earlier copy is not under way, and its result is not known, the UPDATE stays
 * in doubt. */
static void repeat_update(struct hf_voting_claim *claim,
                          struct hf_request *request)
{
    uint64_t sequence = request->command.sequence;

    if (claim->update_sequence == sequence)
        claim->slots[SLOT_UPDATE] = request;
    else
        hf_voting_answer(claim->voting, request,
                         claim->updated_sequence == sequence
                             ? claim->update_result
                             : HF_EINDOUBT,
                         NULL);
}

/* Commands that are under way are in doubt: END may be faster or slower. */
static void start_end(struct hf_voting_claim *claim, struct hf_request *request)
{
    struct hf_coordinator *coordinator = claim->coordinator;

    for (enum slot slot = 0; slot < SLOT_END; slot++)
        answer_slot(claim, slot, HF_EINDOUBT, NULL);
    claim->update_sequence = 0;
    claim->slots[SLOT_END] = request;
    if (claim->has_ended || coordinator->state == HF_COORDINATOR_DONE) {
        claim->is_unanswered = false;
        if (claim->end_sequence != request->command.sequence)
            claim->was_held = claim->was_waiting = false;
        answer_ended(claim);
        return;
    }
    claim->end_sequence = request->command.sequence;
    claim->is_unlocked = request->command.kind == HF_COMMAND_UNLOCK;
    claim->was_waiting =
        coordinator->token == 0 && coordinator->state != HF_COORDINATOR_IDLE;
    coordinator->is_silent = false;
    hf_coordinator_end(coordinator, hf_net_now(&claim->voting->net));
}

/* A nonce has one token, so a command with another token cannot succeed. */
static bool has_wrong_token(const struct hf_voting_claim *claim,
                            const struct hf_request *request)
{
    enum hf_command_kind kind = request->command.kind;

    return kind != HF_COMMAND_LOCK && kind != HF_COMMAND_CANCEL &&
           request->command.token != claim->coordinator->token;
}

static void start_command(struct hf_voting_claim *claim,
                          struct hf_request *request)
{
    enum slot slot = slot_of(request);

    if (has_wrong_token(claim, request)) {
        hf_voting_answer(claim->voting, request, HF_ENOTOWNER, NULL);
    } else if (slot == SLOT_LOCK) {
        start_lock(claim, request);
    } else if (slot == SLOT_END) {
        start_end(claim, request);
    } else if (slot == SLOT_UPDATE && request->command.session > 0) {
        repeat_update(claim, request);
    } else if (!is_held(claim)) {
        hf_voting_answer(claim->voting, request, HF_ENOTHELD, NULL);
    } else if (slot == SLOT_UPDATE) {
        start_update(claim, request);
    } else {
        claim->slots[SLOT_RENEW] = request;
        hf_coordinator_renew(claim->coordinator,
                             hf_net_now(&claim->voting->net),
                             request->command.lease_ms);
    }
}

/* Start the requests whose slots are free. */
static void start_waiting(struct hf_voting_claim *claim)
{
    struct hf_dlist *link = claim->waiting.next, *next;

    for (; !claim->is_checking && link != &claim->waiting; link = next) {
        struct hf_request *request =
            HF_CONTAINER(link, struct hf_request, link);
        enum slot slot = slot_of(request);

        next = link->next;
        if (claim->slots[slot])
            continue;
        hf_dlist_remove(link);
        start_command(claim, request);
        next = claim->waiting.next; /* others may have been answered */
    }
}

/* ---- Adopted claims -----------------------------------------------------*/

/* CANCEL needs no check: it ends the claim whatever its state is. */
static bool needs_check(const struct hf_request *request)
{
    return request->command.kind != HF_COMMAND_LOCK &&
           request->command.kind != HF_COMMAND_CANCEL;
}

/* Answer the requests that wait for the check of this token. */
static void answer_checked(struct hf_voting_claim *claim, enum hf_err err)
{
    struct hf_dlist *link = claim->waiting.next, *next;

    for (; link != &claim->waiting; link = next) {
        struct hf_request *request =
            HF_CONTAINER(link, struct hf_request, link);

        next = link->next;
        if (!needs_check(request) ||
            request->command.token != claim->checked_token)
            continue;
        hf_dlist_remove(link);
        hf_voting_answer(claim->voting, request, err, NULL);
    }
}

static void begin_requests(struct hf_voting_claim *claim);

static void on_checked(void *arg, enum hf_err err)
{
    struct hf_voting_claim *claim = arg;

    claim->is_checking = false;
    claim->is_adopted = true;
    if (err)
        answer_checked(claim, err);
    else
        hf_coordinator_adopt(claim->coordinator, claim->checked_token);
    extend_lapse(claim);
    if (hf_dlist_is_empty(&claim->waiting))
        free_claim(claim);
    else if (err)
        begin_requests(claim);
    else
        settle_claim(claim);
}

/* Begin the requests that wait for a claim that is IDLE. */
static void begin_requests(struct hf_voting_claim *claim)
{
    const struct hf_request *first =
        HF_CONTAINER(hf_dlist_first(&claim->waiting), struct hf_request, link);

    if (!needs_check(first)) {
        settle_claim(claim);
        return;
    }
    claim->is_checking = true;
    claim->checked_token = first->command.token;
    hf_voting_rounds_check(
        claim->voting,
        (struct hf_key){claim->coordinator->key, claim->coordinator->key_size},
        &claim->coordinator->id, claim->checked_token, on_checked, claim);
}

/* ---- Members of the strategy --------------------------------------------*/

/* Returns true if the claim has ended and this is another command with its nonce
 * and token: whether another claim holds the key now, only the masters know. */
static bool needs_new_check(const struct hf_voting_claim *claim,
                            const struct hf_request *request)
{
    enum hf_command_kind kind = request->command.kind;

    return hf_dlist_is_linked(&claim->lingering) && kind != HF_COMMAND_LOCK &&
           kind != HF_COMMAND_CANCEL &&
           request->command.sequence != claim->end_sequence;
}

void hf_voting_claims_submit(struct hf_voting *voting,
                             struct hf_request *request)
{
    struct hf_voting_claim *claim;

    forget_lingering(voting);
    claim = find_by_nonce(voting, &request->command.nonce);
    if (claim && needs_new_check(claim, request)) {
        free_claim(claim);
        claim = NULL;
    }
    if (claim) {
        hf_dlist_push_back(&claim->waiting, &request->link);
        settle_claim(claim);
        return;
    }
    claim = add_claim(voting, &request->command);
    if (!claim) {
        hf_voting_answer(voting, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    hf_dlist_push_back(&claim->waiting, &request->link);
    begin_requests(claim);
}

bool hf_voting_claims_cancel(struct hf_voting *voting,
                             struct hf_request *request)
{
    struct hf_voting_claim *claim;
    enum slot slot = slot_of(request);
    bool is_sent;

    if (request->kind != HF_REQUEST_COMMAND ||
        request->command.kind == HF_COMMAND_FORCE)
        return false;
    claim = find_by_nonce(voting, &request->command.nonce);
    if (!claim)
        return false;
    is_sent = claim->slots[slot] == request;
    if (is_sent)
        (void)take_slot(claim, slot);
    else
        hf_dlist_remove(&request->link);
    hf_voting_answer(voting, request, is_sent ? HF_EINDOUBT : HF_EUNAVAIL,
                     NULL);
    if (!has_requests(claim) && claim->is_checking)
        free_claim(claim);
    else
        settle_claim(claim);
    return true;
}

/* ---- Input --------------------------------------------------------------*/

static void deliver_reply(struct hf_voting_claim *claim, unsigned master,
                          const struct hf_quorum_reply *reply)
{
    hf_coordinator_receive(claim->coordinator, hf_net_now(&claim->voting->net),
                           master, reply);
    settle_claim(claim);
}

bool hf_voting_claims_has(const struct hf_voting *voting, uint64_t id)
{
    return hf_map_find(&voting->claims_by_number, hf_map_hash_number(id)) !=
           NULL;
}

bool hf_voting_claims_on_reply(struct hf_voting *voting, unsigned master,
                               uint64_t id, const struct hf_quorum_reply *reply)
{
    struct hf_map_link *link =
        hf_map_find(&voting->claims_by_number, hf_map_hash_number(id));

    if (!link)
        return false;
    deliver_reply(HF_CONTAINER(link, struct hf_voting_claim, by_number), master,
                  reply);
    return true;
}

void hf_voting_claims_on_push(struct hf_voting *voting, unsigned master,
                              const struct hf_claim_id *id,
                              const struct hf_quorum_reply *reply)
{
    struct hf_voting_claim *claim = find_by_id(voting, id);

    if (claim)
        deliver_reply(claim, master, reply);
}

/* settle_claim() may free the claim, but no other one. */
void hf_voting_claims_on_master(struct hf_voting *voting, unsigned master,
                                bool is_usable)
{
    hf_time now = hf_net_now(&voting->net);
    struct hf_dlist *link = voting->claims.next, *next;

    for (; link != &voting->claims; link = next) {
        struct hf_voting_claim *claim =
            HF_CONTAINER(link, struct hf_voting_claim, link);

        next = link->next;
        if (is_usable)
            hf_coordinator_connect(claim->coordinator, now, master);
        else
            hf_coordinator_disconnect(claim->coordinator, now, master);
        settle_claim(claim);
    }
}

void hf_voting_claims_fail(struct hf_voting *voting, const struct hf_error *why)
{
    struct hf_dlist *link = voting->claims.next, *next;

    for (; link != &voting->claims; link = next) {
        struct hf_voting_claim *claim =
            HF_CONTAINER(link, struct hf_voting_claim, link);

        next = link->next;
        fail_slots(claim, HF_EINDOUBT, why->text);
        answer_waiting(claim, HF_EUNAVAIL, why->text);
        if (claim->is_checking)
            free_claim(claim);
        else
            settle_claim(claim);
    }
}

void hf_voting_claims_tick(struct hf_voting *voting)
{
    hf_time now = hf_net_now(&voting->net);

    while (hf_heap_top_key(&voting->claim_timers) <= now) {
        struct hf_voting_claim *claim = HF_CONTAINER(
            hf_heap_top(&voting->claim_timers), struct hf_voting_claim, timer);

        hf_coordinator_tick(claim->coordinator, now);
        settle_claim(claim);
    }
}

void hf_voting_claims_init(struct hf_voting *voting)
{
    hf_map_init(&voting->claims_by_number);
    hf_map_init(&voting->claims_by_id);
    hf_dlist_init(&voting->claims);
    hf_dlist_init(&voting->to_push);
    hf_dlist_init(&voting->lingering);
    voting->push_grants.run = push_grants;
}

void hf_voting_claims_fini(struct hf_voting *voting)
{
    struct hf_dlist *link;

    voting->net.host->ops->unpost(voting->net.host, &voting->push_grants);
    while ((link = hf_dlist_first(&voting->claims)))
        free_claim(HF_CONTAINER(link, struct hf_voting_claim, link));
    hf_map_fini(&voting->claims_by_number);
    hf_map_fini(&voting->claims_by_id);
    hf_heap_fini(&voting->claim_timers);
}
