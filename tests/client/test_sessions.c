/* What the client does when the server has closed its session: no command of
 * the old session is repeated as it is in the next one. */
#include <string.h>

#include "client/handle.h"
#include "client/two_clients.h"

static unsigned count_sent(enum hf_faulty_what what)
{
    return hf_faulty_sent(hf_faulty_of(b), what);
}

static void cue(enum hf_faulty_what what, enum hf_fault fault, uint32_t ms)
{
    hf_faulty_cue(hf_faulty_of(b), what, fault, 1, ms);
}

static struct hf_lock *acquire(struct hf_client *client, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, 0);
    struct hf_lock *lock;

    assert_int_equal(hf_world_acquire(&world, client, "k", &opts, &lock),
                     HF_OK);
    return lock;
}

static struct hf_future *start_claim(uint32_t ttl_ms, uint32_t wait_ms,
                                     struct hf_lock **lock)
{
    struct hf_lock_opts opts = options(ttl_ms, wait_ms);
    struct hf_future *future;

    opts.idle = true;
    assert_int_equal(hf_lock_new(b, hf_key_of("k"), &opts, lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(*lock, NULL, NULL, &future), HF_OK);
    return future;
}

static enum hf_err update(struct hf_lock *lock, const char *expected,
                          const char *value)
{
    struct hf_bytes bytes = hf_bytes_of(expected);
    struct hf_future *future;

    assert_int_equal(
        hf_update_start(lock, &bytes, hf_bytes_of(value), NULL, NULL, &future),
        HF_OK);
    return hf_world_wait(&world, future);
}

static void assert_value(const char *value)
{
    struct hf_future *future;
    struct hf_info info;

    assert_int_equal(hf_read_start(a, hf_key_of("k"), HF_LINEARIZABLE, &info,
                                   NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(info.value.size, strlen(value));
    assert_memory_equal(info.value.data, value, strlen(value));
    hf_info_fini(&info);
}

static void assert_waiters(unsigned expected)
{
    uint32_t waiters;

    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, expected);
}

/* ---- LOCK ---------------------------------------------------------------*/

static void a_lock_that_was_not_executed_is_claimed_again(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct hf_nonce nonce;

    (void)state;
    cue(HF_ON_LOCK, HF_CLOSE_SESSION, 0);
    future = start_claim(60000, 0, &lock);
    nonce = lock->nonce;
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(count_sent(HF_ON_LOCK), 2);
    assert_int_equal(count_sent(HF_ON_LOOKUP), 1);
    assert_memory_not_equal(&lock->nonce, &nonce, sizeof(nonce));
    hf_lock_free(lock);
}

/* The lease started when the LOCK was executed, which may be long ago. */
static void a_lock_that_was_executed_is_renewed_first(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct hf_nonce nonce;

    (void)state;
    cue(HF_ON_LOCK, HF_CLOSE_SESSION_AFTER, 0);
    cue(HF_ON_LOOKUP, HF_DELAY_ANSWER, 4000);
    cue(HF_ON_RENEW, HF_DELAY_ANSWER, 1000);
    future = start_claim(10000, 0, &lock);
    nonce = lock->nonce;
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(count_sent(HF_ON_LOCK), 1);
    assert_int_equal(count_sent(HF_ON_RENEW), 1);
    assert_memory_equal(&lock->nonce, &nonce, sizeof(nonce));
    /* 98 % of a lease of 10675 ms, counted from the send of the RENEW. */
    assert_int_equal(hf_lock_deadline(lock), world.now - 1000 + 10461);
    hf_lock_free(lock);
}

static void a_queued_lock_is_claimed_again(void **state)
{
    struct hf_lock *first = acquire(a, 600000), *second;
    struct hf_future *future;

    (void)state;
    cue(HF_ON_LOCK, HF_CLOSE_SESSION_AFTER, 0);
    future = start_claim(60000, HF_FOREVER, &second);
    hf_world_run(&world, 10);
    assert_int_equal(count_sent(HF_ON_LOCK), 2);
    assert_waiters(1);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    hf_lock_free(first);
    hf_lock_free(second);
}

/* CLOSE withdraws the waiters of its session. No request of the client is open
 * then, so the client does not notice before it next checks its claim. */
static void a_waiter_of_a_closed_session_claims_again(void **state)
{
    struct hf_lock *first = acquire(a, 600000), *second;
    struct hf_future *future = start_claim(60000, HF_FOREVER, &second);

    (void)state;
    hf_world_run(&world, 1);
    hf_faulty_close_session(hf_faulty_of(b));
    assert_waiters(0);
    hf_world_run(&world, 1300);
    assert_waiters(1);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    hf_lock_free(first);
    hf_lock_free(second);
}

static void a_lock_that_cannot_be_looked_up_is_in_doubt(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;

    (void)state;
    cue(HF_ON_LOCK, HF_CLOSE_SESSION_AFTER, 0);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOOKUP, HF_LOSE, 99, 0);
    future = start_claim(600000, 0, &lock);
    assert_int_equal(hf_world_wait(&world, future), HF_EINDOUBT);
    hf_world_run(&world, 100);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

static void a_lock_is_not_claimed_again_after_its_wait(void **state)
{
    struct hf_lock *first = acquire(a, 600000), *second;
    struct hf_future *future;

    (void)state;
    cue(HF_ON_LOCK, HF_CLOSE_SESSION, 0);
    cue(HF_ON_LOOKUP, HF_DELAY_ANSWER, 2000);
    future = start_claim(60000, 1000, &second);
    assert_int_equal(hf_world_wait(&world, future), HF_ETIMEDOUT);
    assert_int_equal(count_sent(HF_ON_LOCK), 1);
    assert_waiters(0);
    hf_lock_free(first);
    hf_lock_free(second);
}

/* ---- UNLOCK -------------------------------------------------------------*/

static void an_unlock_that_was_not_executed_is_sent_again(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);

    (void)state;
    cue(HF_ON_UNLOCK, HF_CLOSE_SESSION, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    assert_int_equal(count_sent(HF_ON_UNLOCK), 2);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

static void an_unlock_that_was_executed_is_done(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);

    (void)state;
    cue(HF_ON_UNLOCK, HF_CLOSE_SESSION_AFTER, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    assert_int_equal(count_sent(HF_ON_UNLOCK), 1);
    assert_int_equal(count_sent(HF_ON_LOOKUP), 1);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

/* The client cannot tell whether the UNLOCK or the end of the lease has
 * released the key. */
static void an_unlock_is_in_doubt_once_the_lease_may_have_ended(void **state)
{
    struct hf_lock *lock = acquire(b, 1000);

    (void)state;
    cue(HF_ON_UNLOCK, HF_CLOSE_SESSION, 0);
    cue(HF_ON_LOOKUP, HF_DELAY, 2000);
    assert_int_equal(hf_world_release(&world, lock), HF_EINDOUBT);
    assert_int_equal(count_sent(HF_ON_UNLOCK), 1);
    hf_lock_free(lock);
}

/* The handle does not know when the lease ends. */
static void an_unlock_of_an_adopted_lock_is_in_doubt(void **state)
{
    struct hf_lock *lock = acquire(a, 60000), *adopted;
    struct hf_lock_opts opts = options(60000, 0);

    (void)state;
    assert_int_equal(hf_lock_adopt(b, hf_key_of("k"), lock->nonce.bytes,
                                   hf_lock_token(lock), &opts, &adopted),
                     HF_OK);
    cue(HF_ON_UNLOCK, HF_CLOSE_SESSION_AFTER, 0);
    assert_int_equal(hf_world_release(&world, adopted), HF_EINDOUBT);
    hf_lock_free(lock);
    hf_lock_free(adopted);
}

static void an_unlock_that_cannot_be_looked_up_is_in_doubt(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);

    (void)state;
    cue(HF_ON_UNLOCK, HF_CLOSE_SESSION_AFTER, 0);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOOKUP, HF_LOSE, 99, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_EINDOUBT);
    hf_lock_free(lock);
}

static enum hf_err closed_with = HF_EINVAL;

static void on_closed(enum hf_err err, void *arg)
{
    (void)arg;
    closed_with = err;
}

static void a_close_waits_for_the_lookup_of_a_release(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);
    struct hf_future *future;
    enum hf_err released = HF_EINVAL;

    (void)state;
    cue(HF_ON_UNLOCK, HF_CLOSE_SESSION, 0);
    cue(HF_ON_LOOKUP, HF_DELAY_ANSWER, 500);
    cue(HF_ON_UNLOCK, HF_DELAY_ANSWER, 500);
    assert_int_equal(hf_release_start(lock, NULL, NULL, &future), HF_OK);
    assert_int_equal(hf_close_start(b, 5000, on_closed, NULL), HF_OK);
    hf_world_run(&world, 2000);
    assert_int_equal(closed_with, HF_OK);
    assert_true(hf_future_done(future, &released));
    assert_int_equal(released, HF_OK);
    hf_future_free(future);
    hf_lock_free(lock);
    world.clients[1] = NULL;
    assert_false(hf_world_is_held(&world, "k", NULL));
}

/* ---- RENEW and CANCEL ---------------------------------------------------*/

/* The validity counts from the first send of the new command, and not from that
 * of the old one. */
static void a_renewal_is_sent_again_as_a_new_command(void **state)
{
    struct hf_faulty_odds odds = {.hide_anchor = 1000};
    struct hf_lock *lock = acquire(b, 10000);
    struct hf_future *future;
    struct hf_command first;

    (void)state;
    hf_faulty_odds(hf_faulty_of(b), &odds);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_RENEW, HF_CLOSE_SESSION_AFTER, 4, 0);
    assert_int_equal(hf_renew_start(lock, 0, NULL, NULL, &future), HF_OK);
    first = hf_faulty_last(hf_faulty_of(b), HF_ON_RENEW);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(count_sent(HF_ON_RENEW), 5);
    assert_true(hf_faulty_last(hf_faulty_of(b), HF_ON_RENEW).sequence >
                first.sequence);
    assert_int_equal(hf_lock_deadline(lock), world.now + 10000);
    hf_lock_free(lock);
}

static void a_renewed_lock_survives_its_session(void **state)
{
    struct hf_lock_opts opts = options(1000, 0);
    struct hf_lock *lock;

    (void)state;
    opts.renew = true;
    assert_int_equal(hf_world_acquire(&world, b, "k", &opts, &lock), HF_OK);
    for (unsigned i = 0; i < 20; i++) {
        cue(HF_ON_RENEW, i % 2 ? HF_CLOSE_SESSION : HF_CLOSE_SESSION_AFTER, 0);
        hf_world_run(&world, 700);
        assert_true(hf_lock_valid_for(lock, 0));
    }
    hf_lock_free(lock);
}

static void a_withdrawal_is_sent_again(void **state)
{
    struct hf_lock *first = acquire(a, 600000), *second;
    struct hf_future *future;

    (void)state;
    cue(HF_ON_CANCEL, HF_CLOSE_SESSION, 0);
    cue(HF_ON_CANCEL, HF_CLOSE_SESSION_AFTER, 0);
    future = start_claim(60000, 500, &second);
    assert_int_equal(hf_world_wait(&world, future), HF_ETIMEDOUT);
    assert_int_equal(count_sent(HF_ON_CANCEL), 3);
    assert_waiters(0);
    hf_lock_free(first);
    hf_lock_free(second);
}

/* ---- UPDATE and FORCE ---------------------------------------------------*/

static void an_update_of_a_closed_session_is_in_doubt(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);

    (void)state;
    cue(HF_ON_UPDATE, HF_CLOSE_SESSION_AFTER, 0);
    assert_int_equal(update(lock, "", "1"), HF_EINDOUBT);
    assert_value("1");
    cue(HF_ON_UPDATE, HF_CLOSE_SESSION, 0);
    assert_int_equal(update(lock, "1", "2"), HF_EINDOUBT);
    assert_value("1");
    assert_int_equal(count_sent(HF_ON_UPDATE), 2);
    assert_int_equal(update(lock, "1", "2"), HF_OK);
    hf_lock_free(lock);
}

/* The session is closed while the client backs off. The repeated command names
 * the session in which it was first sent. */
static void an_update_is_not_repeated_in_the_next_session(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);
    struct hf_bytes expected = hf_bytes_of("");
    struct hf_future *future;

    (void)state;
    cue(HF_ON_UPDATE, HF_LOSE_ANSWER, 0);
    assert_int_equal(
        hf_update_start(lock, &expected, hf_bytes_of("1"), NULL, NULL, &future),
        HF_OK);
    hf_faulty_close_session(hf_faulty_of(b));
    assert_int_equal(hf_world_wait(&world, future), HF_EINDOUBT);
    assert_value("1");
    hf_lock_free(lock);
}

static void an_update_that_was_not_sent_may_use_the_next_session(void **state)
{
    struct hf_lock *lock = acquire(b, 60000);
    struct hf_bytes expected = hf_bytes_of("");
    struct hf_future *future;

    (void)state;
    cue(HF_ON_UPDATE, HF_REFUSE, 0);
    assert_int_equal(
        hf_update_start(lock, &expected, hf_bytes_of("1"), NULL, NULL, &future),
        HF_OK);
    hf_world_run(&world, 1);
    hf_faulty_close_session(hf_faulty_of(b));
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_value("1");
    hf_lock_free(lock);
}

static void a_force_of_a_closed_session_is_in_doubt(void **state)
{
    struct hf_lock *lock = acquire(a, 60000);
    struct hf_future *future;

    (void)state;
    cue(HF_ON_FORCE, HF_CLOSE_SESSION_AFTER, 0);
    assert_int_equal(hf_force_start(b, hf_key_of("k"), hf_lock_token(lock),
                                    true, NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_EINDOUBT);
    assert_int_equal(count_sent(HF_ON_FORCE), 1);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_lock_that_was_not_executed_is_claimed_again),
        CASE(a_lock_that_was_executed_is_renewed_first),
        CASE(a_queued_lock_is_claimed_again),
        CASE(a_waiter_of_a_closed_session_claims_again),
        CASE(a_lock_that_cannot_be_looked_up_is_in_doubt),
        CASE(a_lock_is_not_claimed_again_after_its_wait),
        CASE(an_unlock_that_was_not_executed_is_sent_again),
        CASE(an_unlock_that_was_executed_is_done),
        CASE(an_unlock_is_in_doubt_once_the_lease_may_have_ended),
        CASE(an_unlock_of_an_adopted_lock_is_in_doubt),
        CASE(an_unlock_that_cannot_be_looked_up_is_in_doubt),
        CASE(a_close_waits_for_the_lookup_of_a_release),
        CASE(a_renewal_is_sent_again_as_a_new_command),
        CASE(a_renewed_lock_survives_its_session),
        CASE(a_withdrawal_is_sent_again),
        CASE(an_update_of_a_closed_session_is_in_doubt),
        CASE(an_update_is_not_repeated_in_the_next_session),
        CASE(an_update_that_was_not_sent_may_use_the_next_session),
        CASE(a_force_of_a_closed_session_is_in_doubt),
    };

    return hf_test_main("sessions", cases, HF_TEST_COUNT(cases), 0);
}
