#include "client/keeper.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/client.h"
#include "client/drift.h"

#define DEFAULT_RENEW_PART 3

static void on_renewal_settled(struct hf_call *call);
static void on_attempt_failed(struct hf_call *call);

enum hf_err hf_keeper_init(struct hf_lock *lock)
{
    enum hf_err err;

    if (!lock->renew)
        return HF_OK;
    lock->renewal = calloc(1, sizeof(*lock->renewal));
    if (!lock->renewal)
        return HF_ENOMEM;
    err = hf_call_init(lock->renewal, lock->client, on_renewal_settled);
    if (err) {
        free(lock->renewal);
        lock->renewal = NULL;
        return err;
    }
    lock->renewal->owner = lock;
    lock->renewal->failed = on_attempt_failed;
    return HF_OK;
}

void hf_keeper_fini(struct hf_lock *lock)
{
    if (!lock->renewal)
        return;
    hf_call_fini(lock->renewal);
    free(lock->renewal);
    lock->renewal = NULL;
}

static hf_time valid_until_of(const struct hf_lock *lock)
{
    return atomic_load_explicit(&lock->valid_until, memory_order_relaxed);
}

/* What the keeper's own renewals give; less where the lease is shorter. */
static uint32_t renewed_ttl_ms(const struct hf_lock *lock)
{
    return lock->held_ttl_ms < lock->ttl_ms ? lock->held_ttl_ms : lock->ttl_ms;
}

/* When the next renewal is due: with as much left as the user asked for, or when
 * a part of the lease has gone, give or take a tenth of that. Counted from the
 * end, because hf_renew() may have moved that beyond the ttl. */
static hf_time renew_at(const struct hf_lock *lock)
{
    unsigned parts = lock->client->strategy->renew_part;
    uint32_t elapsed =
        renewed_ttl_ms(lock) / (parts > 0 ? parts : DEFAULT_RENEW_PART);
    uint32_t tenth = elapsed / 10;

    if (lock->renew_ms > 0)
        return valid_until_of(lock) - lock->renew_ms;
    return valid_until_of(lock) - renewed_ttl_ms(lock) + elapsed - tenth +
           hf_random_below(&lock->client->random, 2 * tenth + 1);
}

/* Half the ttl has gone without a renewal; or, where they were asked for late,
 * half of what was left for them. */
static hf_time risk_at(const struct hf_lock *lock)
{
    hf_time half = valid_until_of(lock) - renewed_ttl_ms(lock) / 2;
    hf_time late = valid_until_of(lock) - lock->renew_ms / 2;

    return lock->renew_ms > 0 && late > half ? late : half;
}

/* When a renewal that starts now, and is not answered, counts as failing: after
 * the time for an answer, or half-way to the next warning if that is earlier. */
static hf_time overdue_at(const struct hf_lock *lock)
{
    hf_time now = hf_client_now(lock->client);
    hf_time warning =
        now < risk_at(lock) ? risk_at(lock) : valid_until_of(lock);
    hf_time half = now + (warning - now) / 2;
    hf_time answer = hf_handle_call_deadline(lock);

    return half < answer ? half : answer;
}

static bool can_become_overdue(const struct hf_lock *lock)
{
    return lock->renewal && hf_call_is_open(lock->renewal) && !lock->failing;
}

static bool has_reported(const struct hf_lock *lock, enum hf_lock_event event)
{
    return (lock->reported_events & (1u << event)) != 0;
}

/* The next instant at which there is something to do or to tell. */
static void set_keeper_timer(struct hf_lock *lock)
{
    struct hf_host *host = &lock->client->host;
    hf_time at = valid_until_of(lock);

    if (lock->renewal && !has_reported(lock, HF_LOCK_EVENT_AT_RISK) &&
        risk_at(lock) < at)
        at = risk_at(lock);
    if (can_become_overdue(lock) && lock->overdue_at < at)
        at = lock->overdue_at;
    if (lock->renewal && !lock->forced && !hf_call_is_open(lock->renewal) &&
        lock->next_renewal < at)
        at = lock->next_renewal;
    hf_timer_set(host, &lock->timer, at);
}

void hf_keeper_start(struct hf_lock *lock)
{
    /* Where nobody is to be told and nothing to be renewed, validity ends
     * without anyone's help. */
    if (lock->renewal || lock->on_event)
        hf_keeper_on_renewed(lock);
}

/* Renewals succeed again. */
static void clear_failure(struct hf_lock *lock)
{
    lock->failing = false;
    lock->overdue_at = overdue_at(lock);
    if (lock->renewal_failure)
        hf_handle_set_failure(lock, HF_OK, NULL);
}

void hf_keeper_on_renewed(struct hf_lock *lock)
{
    hf_time soonest = hf_client_now(lock->client) + 1;

    if (!lock->renewal && !lock->on_event)
        return;
    clear_failure(lock);
    /* However short the ttl is, renewals do not follow each other at once. */
    lock->next_renewal = renew_at(lock);
    if (lock->next_renewal < soonest)
        lock->next_renewal = soonest;
    set_keeper_timer(lock);
}

void hf_keeper_stop(struct hf_lock *lock)
{
    struct hf_host *host = &lock->client->host;

    hf_timer_set(host, &lock->timer, HF_NEVER);
    if (lock->renewal)
        hf_call_abandon(lock->renewal);
}

static void send_renewal(struct hf_lock *lock)
{
    struct hf_call *call = lock->renewal;

    hf_handle_fill_command(lock, call, HF_COMMAND_RENEW);
    call->request.command.lease_ms = hf_drift_lease_ms(lock->ttl_ms);
    /* Several attempts fit into the rest of the lease. */
    call->back_off_ms = lock->ttl_ms / 96 + 1;
    lock->overdue_at = overdue_at(lock);
    hf_call_start(call, valid_until_of(lock));
}

/* A store that is damaged, or gone, refuses every renewal: name it. */
static void lose_unrenewed(struct hf_lock *lock)
{
    static const char why[] = "the lease was not renewed in time";
    char *text = NULL;

    if (lock->failure == HF_EPROTO && lock->failure_text &&
        asprintf(&text, "%s: %s", why, lock->failure_text) < 0)
        text = NULL;
    hf_validity_lose(lock, HF_EEXPIRED, text ? text : why);
    free(text);
}

static void set_renewal_failure(struct hf_lock *lock, enum hf_err err,
                                const char *text)
{
    hf_handle_set_failure(lock, err, text);
    lock->renewal_failure = true;
    lock->failing = true;
}

/* The renewal under way has failed so far: hf_lock_error() reports why, from the
 * first failed attempt until a renewal succeeds. */
static void report_failing(struct hf_lock *lock)
{
    const struct hf_call *call = lock->renewal;
    const char *cause = call->request.answer.cause;
    char text[256];

    lock->failing = true;
    if (lock->failure == HF_EPROTO) /* the store is damaged: keep the cause */
        return;
    cause = cause ? cause : call->cause;
    (void)snprintf(text, sizeof(text), "renewals fail: %s",
                   cause ? cause : "no answer");
    set_renewal_failure(lock, HF_EUNAVAIL, text);
}

static void on_attempt_failed(struct hf_call *call)
{
    report_failing(call->owner);
}

void hf_keeper_on_timer(struct hf_lock *lock)
{
    hf_time now = hf_client_now(lock->client);

    if (now >= valid_until_of(lock)) {
        lose_unrenewed(lock);
        return;
    }
    if (can_become_overdue(lock) && now >= lock->overdue_at)
        report_failing(lock);
    if (lock->renewal && now >= risk_at(lock))
        hf_handle_report(lock, HF_LOCK_EVENT_AT_RISK);
    if (lock->renewal && !lock->forced && !hf_call_is_open(lock->renewal) &&
        now >= lock->next_renewal)
        send_renewal(lock);
    set_keeper_timer(lock);
}

/* An adopted lock has no keeper before its first renewal by hand, and no end of
 * validity that could have passed. */
static bool can_recheck(const struct hf_lock *lock)
{
    return lock->state == HF_LOCK_HELD && lock->renewal &&
           valid_until_of(lock) != HF_VALIDITY_NONE;
}

/* A renewal that is under way may have been answered before the lock was broken,
 * so another one follows it. One is sent even where renewals are refused already:
 * the lock may have been passed on since. */
static void recheck_lock(struct hf_lock *lock)
{
    if (!can_recheck(lock))
        return;
    lock->recheck = hf_call_is_open(lock->renewal);
    lock->forced = false;
    lock->next_renewal = hf_client_now(lock->client);
    set_keeper_timer(lock);
}

void hf_keeper_recheck(struct hf_host *host, uint64_t token)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);

    for (struct hf_dlist *link = client->locks.next; link != &client->locks;
         link = link->next) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, link);

        if (token == HF_ANY_TOKEN || token == atomic_load(&lock->token))
            recheck_lock(lock);
    }
}

static void extend_lock(struct hf_lock *lock, const struct hf_call *call)
{
    hf_time base =
        hf_drift_lease_base(&call->request.answer.anchor, call->first_sent);

    (void)hf_validity_extend(lock, base, lock->ttl_ms);
}

static void on_renewal_settled(struct hf_call *call)
{
    struct hf_lock *lock = call->owner;
    const struct hf_answer *answer = &call->request.answer;

    switch (answer->result.err) {
    case HF_OK:
        extend_lock(lock, call);
        break;
    case HF_EFORCED:
        lock->forced = true;
        hf_handle_set_failure(lock, HF_EFORCED, NULL);
        hf_handle_report(lock, HF_LOCK_EVENT_AT_RISK);
        set_keeper_timer(lock);
        break;
    case HF_ENOTHELD:
    case HF_ENOTOWNER:
        hf_validity_lose(lock, HF_EEXPIRED, "it was taken away");
        break;
    default:
        /* Tried until the end, or refused for want of memory: the lease may
         * last a little longer, so try again while it does. */
        set_renewal_failure(lock, answer->result.err, answer->cause);
        lock->next_renewal =
            hf_client_now(lock->client) + lock->ttl_ms / 24 + 1;
        set_keeper_timer(lock);
        break;
    }
    if (lock->recheck)
        recheck_lock(lock);
}
