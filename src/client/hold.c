/* hold.c - for how long a lock is held, by the clock. */
#include "client/hold.h"

#include "base/mutant.h"
#include "client/client.h"
#include "client/keeper.h"
#include "client/validity.h"

void hf_hold_until(struct hf_lock *lock, hf_time end)
{
    atomic_store_explicit(&lock->valid_until, end, memory_order_release);
}

static hf_time valid_until(const struct hf_lock *lock)
{
    return atomic_load_explicit(&lock->valid_until, memory_order_acquire);
}

enum hf_lock_state hf_lock_state_now(const struct hf_lock *lock)
{
    bool unknown = lock->adopted && valid_until(lock) == 0;

    if (lock->state == HF_LOCK_HELD && !unknown &&
        hf_client_now(lock->client) >= valid_until(lock))
        return HF_LOCK_LOST;
    return lock->state;
}

void hf_hold_begin(struct hf_lock *lock, hf_time base)
{
    hf_time end =
        hf_validity_end(base, hf_client_now(lock->client), lock->ttl_ms);

    if (end > lock->limit && !HF_MUTANT(120))
        end = lock->limit;
    lock->base = base;
    lock->held_ttl_ms = lock->ttl_ms;
    hf_lock_move(lock, HF_LOCK_HELD);
    hf_hold_until(lock, end);
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

enum hf_err hf_lock_extend(struct hf_lock *lock, hf_time base, uint32_t ttl_ms)
{
    hf_time end = hf_validity_end(base, hf_client_now(lock->client), ttl_ms);

    if (hf_lock_check_held(lock))
        return HF_EEXPIRED;
    if (end > valid_until(lock)) {
        hf_hold_until(lock, end);
        lock->base = base;
        lock->held_ttl_ms = ttl_ms;
    }
    hf_keeper_confirmed(lock);
    return HF_OK;
}

void hf_lock_lose(struct hf_lock *lock, enum hf_err why, const char *text)
{
    if (lock->state != HF_LOCK_HELD)
        return;
    hf_hold_until(lock, 0);
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
    hf_time end;

    if (!lock || *lock->client->alive == 0)
        return false; /* a forked child holds nothing of its parent's */
    end = valid_until(lock);
    return end > 0 && hf_client_clock(lock->client) + (hf_time)ms < end;
}

uint32_t hf_remaining_ms(const struct hf_lock *lock)
{
    if (!lock || *lock->client->alive == 0)
        return 0;
    return hf_time_left(valid_until(lock), hf_client_clock(lock->client));
}

int64_t hf_deadline(const struct hf_lock *lock)
{
    return lock && *lock->client->alive ? valid_until(lock) : 0;
}
