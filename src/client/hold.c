/* hold.c - for how long a lock is held, by the clock. */
#include "client/hold.h"

#include "client/client.h"
#include "client/keeper.h"
#include "client/validity.h"

void hf_hold_end(struct hf_lock *lock)
{
    atomic_store_explicit(&lock->valid_until, HF_HOLD_NONE,
                          memory_order_release);
}

static hf_time valid_until(const struct hf_lock *lock)
{
    return atomic_load_explicit(&lock->valid_until, memory_order_acquire);
}

/* Replace the end of validity, unless another thread was faster. */
static bool replace_end(const struct hf_lock *lock, hf_time from, hf_time to)
{
    /* The getters take a const lock: to a caller, nothing changes. */
    struct hf_lock *changed = (struct hf_lock *)(uintptr_t)lock;

    return atomic_compare_exchange_strong(&changed->valid_until, &from, to);
}

/* The end of validity; HF_HOLD_NONE or HF_HOLD_ENDED where it is not in the
 * future. What is answered once is final. */
static hf_time end_seen_at(const struct hf_lock *lock, hf_time now)
{
    hf_time end = valid_until(lock);

    while (end > 0 && now >= end) {
        if (replace_end(lock, end, HF_HOLD_ENDED))
            return HF_HOLD_ENDED;
        end = valid_until(lock);
    }
    return end;
}

static bool has_ended(const struct hf_lock *lock)
{
    hf_time end = end_seen_at(lock, hf_client_clock(lock->client));

    return end == HF_HOLD_ENDED || (end == HF_HOLD_NONE && !lock->adopted);
}

enum hf_lock_state hf_lock_state_now(const struct hf_lock *lock)
{
    if (lock->state == HF_LOCK_HELD && has_ended(lock))
        return HF_LOCK_LOST;
    return lock->state;
}

void hf_hold_begin(struct hf_lock *lock, hf_time base)
{
    hf_time end =
        hf_validity_end(base, hf_client_clock(lock->client), lock->ttl_ms);

    if (end > lock->limit)
        end = lock->limit;
    lock->held_ttl_ms = lock->ttl_ms;
    hf_lock_move(lock, HF_LOCK_HELD);
    atomic_store_explicit(&lock->valid_until, end, memory_order_release);
    hf_keeper_start(lock);
}

enum hf_err hf_lock_check_held(struct hf_lock *lock)
{
    if (hf_lock_state_now(lock) == HF_LOCK_LOST) {
        hf_lock_lose(lock, HF_EEXPIRED, NULL);
        return HF_EEXPIRED;
    }
    return lock->state == HF_LOCK_HELD ? HF_OK : HF_ESTATE;
}

/* The clock is read here, and not at the beginning of the turn: a thread may
 * have waited for a mutex since, and validity may have ended meanwhile. */
enum hf_err hf_lock_extend(struct hf_lock *lock, hf_time base, uint32_t ttl_ms)
{
    hf_time now = hf_client_clock(lock->client);
    hf_time before = end_seen_at(lock, now);
    hf_time end = hf_validity_end(base, now, ttl_ms);

    if (lock->state != HF_LOCK_HELD)
        return HF_EEXPIRED;
    if (before == HF_HOLD_ENDED ||
        (end > before && !replace_end(lock, before, end))) {
        hf_lock_lose(lock, HF_EEXPIRED, NULL);
        return HF_EEXPIRED;
    }
    if (end > before)
        lock->held_ttl_ms = ttl_ms;
    hf_keeper_confirmed(lock);
    return HF_OK;
}

void hf_lock_lose(struct hf_lock *lock, enum hf_err why, const char *text)
{
    if (lock->state != HF_LOCK_HELD)
        return;
    hf_hold_end(lock);
    hf_keeper_stop(lock);
    hf_lock_set_failure(lock, why, text);
    hf_lock_move(lock, HF_LOCK_LOST);
    hf_lock_tell(lock, HF_LOCK_EVENT_LOST);
}

enum hf_err hf_lock_ended(const struct hf_lock *lock, enum hf_err err)
{
    if (lock->adopted || (err != HF_ENOTHELD && err != HF_ENOTOWNER))
        return err;
    return HF_EEXPIRED;
}

/* ---- What the user asks -------------------------------------------------*/

bool hf_valid_for(const struct hf_lock *lock, uint32_t ms)
{
    hf_time now;

    if (!lock || *lock->client->alive == 0)
        return false; /* a forked child holds nothing of its parent's */
    now = hf_client_clock(lock->client);
    return now + (hf_time)ms < end_seen_at(lock, now);
}

uint32_t hf_remaining_ms(const struct hf_lock *lock)
{
    hf_time now;

    if (!lock || *lock->client->alive == 0)
        return 0;
    now = hf_client_clock(lock->client);
    return hf_time_left(end_seen_at(lock, now), now);
}

int64_t hf_deadline(const struct hf_lock *lock)
{
    hf_time end = lock && *lock->client->alive ? valid_until(lock) : 0;

    if (end <= 0)
        return 0;
    return lock->client->clock_id == CLOCK_MONOTONIC ? end + hf_time_suspended()
                                                     : end;
}
