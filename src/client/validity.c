/* validity.c - how long a held lock is valid, by the local clock. */
#include "client/validity.h"

#include "client/client.h"
#include "client/drift.h"
#include "client/keeper.h"

void hf_validity_clear(struct hf_lock *lock)
{
    atomic_store_explicit(&lock->valid_until, HF_VALIDITY_NONE,
                          memory_order_release);
}

static hf_time load_valid_until(const struct hf_lock *lock)
{
    return atomic_load_explicit(&lock->valid_until, memory_order_acquire);
}

/* Set the end of validity to `to` if it is still `from`. Returns false if it is
 * not. */
static bool replace_end(const struct hf_lock *lock, hf_time from, hf_time to)
{
    /* Cast away const: the getters take a const lock, and the user cannot see
     * this change. */
    struct hf_lock *mutable_lock = (struct hf_lock *)(uintptr_t)lock;

    return atomic_compare_exchange_strong(&mutable_lock->valid_until, &from,
                                          to);
}

/* Returns the end of validity if it is later than `now`, or HF_VALIDITY_NONE.
 * If the end has passed, sets it to HF_VALIDITY_ENDED, which is final for all
 * threads, and returns that. */
static hf_time latch_end(const struct hf_lock *lock, hf_time now)
{
    hf_time end = load_valid_until(lock);

    while (end > 0 && now >= end) {
        if (replace_end(lock, end, HF_VALIDITY_ENDED))
            return HF_VALIDITY_ENDED;
        end = load_valid_until(lock);
    }
    return end;
}

static bool has_ended(const struct hf_lock *lock)
{
    hf_time end = latch_end(lock, hf_client_clock(lock->client));

    return end == HF_VALIDITY_ENDED ||
           (end == HF_VALIDITY_NONE && !lock->adopted);
}

enum hf_state hf_validity_state(const struct hf_lock *lock)
{
    if (lock->state == HF_LOCK_HELD && has_ended(lock))
        return HF_LOCK_LOST;
    return lock->state;
}

void hf_validity_begin(struct hf_lock *lock, hf_time base)
{
    hf_time end =
        hf_drift_valid_until(base, hf_client_clock(lock->client), lock->ttl_ms);

    if (end > lock->limit)
        end = lock->limit;
    lock->held_ttl_ms = lock->ttl_ms;
    hf_handle_set_state(lock, HF_LOCK_HELD);
    atomic_store_explicit(&lock->valid_until, end, memory_order_release);
    hf_keeper_start(lock);
}

enum hf_err hf_validity_check(struct hf_lock *lock)
{
    if (hf_validity_state(lock) == HF_LOCK_LOST) {
        hf_validity_lose(lock, HF_EEXPIRED, NULL);
        return HF_EEXPIRED;
    }
    return lock->state == HF_LOCK_HELD ? HF_OK : HF_ESTATE;
}

/* Read the clock, because the turn's time may be too old: validity may have
 * ended while the strategy waited for a mutex. */
enum hf_err hf_validity_extend(struct hf_lock *lock, hf_time base,
                               uint32_t ttl_ms)
{
    hf_time now = hf_client_clock(lock->client);
    hf_time before = latch_end(lock, now);
    hf_time end = hf_drift_valid_until(base, now, ttl_ms);

    if (lock->state != HF_LOCK_HELD)
        return HF_EEXPIRED;
    if (before == HF_VALIDITY_ENDED ||
        (end > before && !replace_end(lock, before, end))) {
        hf_validity_lose(lock, HF_EEXPIRED, NULL);
        return HF_EEXPIRED;
    }
    if (end > before)
        lock->held_ttl_ms = ttl_ms;
    hf_keeper_on_renewed(lock);
    return HF_OK;
}

void hf_validity_lose(struct hf_lock *lock, enum hf_err why, const char *text)
{
    if (lock->state != HF_LOCK_HELD)
        return;
    hf_validity_clear(lock);
    hf_keeper_stop(lock);
    hf_handle_set_failure(lock, why, text);
    hf_handle_set_state(lock, HF_LOCK_LOST);
    hf_handle_report(lock, HF_LOCK_EVENT_LOST);
}

enum hf_err hf_validity_map_error(const struct hf_lock *lock, enum hf_err err)
{
    if (lock->adopted || (err != HF_ENOTHELD && err != HF_ENOTOWNER))
        return err;
    return HF_EEXPIRED;
}

/* ---- Getters ------------------------------------------------------------*/

bool hf_lock_valid_for(const struct hf_lock *lock, uint32_t ms)
{
    hf_time now;

    if (!lock || *lock->client->alive == 0)
        return false; /* a forked child does not hold its parent's locks */
    now = hf_client_clock(lock->client);
    return now + (hf_time)ms < latch_end(lock, now);
}

uint32_t hf_lock_remaining_ms(const struct hf_lock *lock)
{
    hf_time now;

    if (!lock || *lock->client->alive == 0)
        return 0;
    now = hf_client_clock(lock->client);
    return hf_time_left(latch_end(lock, now), now);
}

int64_t hf_lock_deadline(const struct hf_lock *lock)
{
    hf_time end = lock && *lock->client->alive ? load_valid_until(lock) : 0;

    if (end <= 0)
        return 0;
    return lock->client->clock_id == CLOCK_MONOTONIC ? end + hf_time_suspended()
                                                     : end;
}
