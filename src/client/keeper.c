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

/* The ttl that the schedule of renewals is based on. After hf_renew() with a
 * shorter ttl it is the shorter ttl; a longer ttl is ignored. */
static uint32_t renewed_ttl_ms(const struct hf_lock *lock)
{
    return lock->held_ttl_ms < lock->ttl_ms ? lock->held_ttl_ms : lock->ttl_ms;
}

/* When the next renewal is due: renew_ms before the end of validity if the user
 * has set it, otherwise when 1/renew_part of the ttl has passed, with a jitter
 * of up to a tenth of that in either direction. The result counts back from the
 * end of validity, because hf_renew() may have moved the end by more than the
 * ttl. */
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

/* When AT_RISK is due: half the ttl before the end of validity, or half of
 * renew_ms before it if that is later. */
static hf_time risk_at(const struct hf_lock *lock)
{
    hf_time half = valid_until_of(lock) - renewed_ttl_ms(lock) / 2;
    hf_time late = valid_until_of(lock) - lock->renew_ms / 2;

    return lock->renew_ms > 0 && late > half ? late : half;
}

/* When a renewal that starts now counts as failing if it is not answered: after
 * timeout_ms, or halfway to the next event if that is earlier. The next event
 * is AT_RISK, or LOST once AT_RISK is due. */
static hf_time overdue_at(const struct hf_lock *lock)
{
    hf_time now = hf_client_now(lock->client);
    hf_time next_event =
        now < risk_at(lock) ? risk_at(lock) : valid_until_of(lock);
    hf_time halfway = now + (next_event - now) / 2;
    hf_time timeout = hf_handle_call_deadline(lock);

    return halfway < timeout ? halfway : timeout;
}

static bool can_become_overdue(const struct hf_lock *lock)
{
    return lock->renewal && hf_call_is_open(lock->renewal) && !lock->failing;
}

static bool has_reported(const struct hf_lock *lock, enum hf_lock_event event)
{
    return (lock->reported_events & (1u << event)) != 0;
}

/* Set the timer to the next renewal or event, or to when the open renewal is
 * overdue. */
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
    /* Without renewals and events the keeper has nothing to do, because
     * validity ends by the clock alone. */
    if (lock->renewal || lock->on_event)
        hf_keeper_on_renewed(lock);
}

static void clear_failure(struct hf_lock *lock)
{
    lock->failing = false;
    lock->overdue_at = overdue_at(lock);
    if (lock->renewal_failure)
        hf_handle_set_failure(lock, HF_OK, NULL);
}

void hf_keeper_on_renewed(struct hf_lock *lock)
{
    hf_time earliest = hf_client_now(lock->client) + 1;

    if (!lock->renewal && !lock->on_event)
        return;
    clear_failure(lock);
    /* At least 1 ms from now, so that a short ttl does not renew in a loop. */
    lock->next_renewal = renew_at(lock);
    if (lock->next_renewal < earliest)
        lock->next_renewal = earliest;
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
    /* Back off briefly, so that several attempts fit into the rest of the
     * validity. */
    call->back_off_ms = lock->ttl_ms / 96 + 1;
    lock->overdue_at = overdue_at(lock);
    hf_call_start(call, valid_until_of(lock));
}

/* If the store is damaged or was removed, renewals fail with HF_EPROTO and a
 * text that names the store, so include that text. */
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

/* Make hf_lock_error() return why the open renewal has failed so far. */
static void report_failing(struct hf_lock *lock)
{
    const struct hf_call *call = lock->renewal;
    const char *cause = call->request.answer.cause;
    char text[256];

    lock->failing = true;
    /* If the store is damaged, keep the text that names the store. */
    if (lock->failure == HF_EPROTO)
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

/* The keeper of an adopted lock starts with the first hf_renew(). Before that
 * renewal the lock has no end of validity, so a recheck would report a loss. */
static bool can_recheck(const struct hf_lock *lock)
{
    return lock->state == HF_LOCK_HELD && lock->renewal &&
           valid_until_of(lock) != HF_VALIDITY_NONE;
}

/* Renew the lock now. A renewal that is open may have been executed before the
 * lock was broken, so another renewal follows when it settles. Renew even if
 * the last renewal was refused with HF_EFORCED, because the key may have been
 * granted to another client since. */
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
        hf_validity_lose(lock, HF_EEXPIRED,
                         "a renewal was refused: this claim does not hold the "
                         "key any more");
        break;
    default:
        /* The call reached its deadline, or the server had an error such as
         * HF_ENOMEM. Renew again while the lock is valid. */
        set_renewal_failure(lock, answer->result.err, answer->cause);
        lock->next_renewal =
            hf_client_now(lock->client) + lock->ttl_ms / 24 + 1;
        set_keeper_timer(lock);
        break;
    }
    if (lock->recheck)
        recheck_lock(lock);
}
