/* A handle acts only on its own claim, and a loss is final. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "client/client.h"
#include "client/lock.h"
#include "client/two_clients.h"

static struct hf_lock *acquire_lock(struct hf_client *client, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, 0);
    struct hf_lock *lock;

    assert_int_equal(hf_world_acquire(&world, client, "k", &opts, &lock),
                     HF_OK);
    return lock;
}

static struct hf_lock *adopt(struct hf_client *client,
                             const struct hf_lock *from, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, 0);
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock;

    hf_lock_nonce(from, nonce);
    assert_int_equal(hf_lock_adopt(client, hf_key_of("k"), nonce,
                                   hf_lock_token(from), &opts, &lock),
                     HF_OK);
    return lock;
}

static enum hf_err claim(struct hf_lock *lock)
{
    struct hf_future *future;
    enum hf_err err = hf_lock_acquire_start(lock, NULL, NULL, &future);

    return err ? err : hf_world_wait(&world, future);
}

/* ---- Detaching and adopting ---------------------------------------------*/

static void a_detached_handle_that_claims_again_keeps_the_old_claim(
    void **state)
{
    struct hf_lock *first = acquire_lock(a, 300);
    struct hf_lock *adopted = adopt(b, first, 10000);

    (void)state;
    assert_int_equal(hf_lock_detach(first), HF_OK);
    assert_int_equal(hf_world_renew(&world, adopted, 10000), HF_OK);
    hf_world_run(&world, 400);
    assert_int_equal(claim(first), HF_EBUSY);
    assert_true(hf_lock_valid_for(adopted, 1000));
    assert_true(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(first);
    hf_lock_free(adopted);
}

static void a_lost_adopter_that_claims_again_keeps_the_old_claim(void **state)
{
    struct hf_lock *first = acquire_lock(a, 300);
    struct hf_lock *adopted = adopt(b, first, 300);

    (void)state;
    assert_int_equal(hf_world_renew(&world, adopted, 300), HF_OK);
    assert_int_equal(hf_world_renew(&world, first, 10000), HF_OK);
    hf_world_run(&world, 400);
    assert_false(hf_lock_valid_for(adopted, 0));
    assert_true(hf_lock_valid_for(first, 0));
    assert_int_equal(claim(adopted), HF_EBUSY);
    hf_world_run(&world, 100);
    assert_true(hf_lock_valid_for(first, 1000));
    assert_true(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(first);
    hf_lock_free(adopted);
}

static void detaching_ends_validity_permanently(void **state)
{
    struct hf_lock *first = acquire_lock(a, 10000);
    struct hf_lock *adopted = adopt(b, first, 10000), *third;
    struct hf_future *renewal;

    (void)state;
    /* A renewal that is confirmed after the handle was detached does not make
     * the handle valid again. */
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY_ANSWER, 1, 100);
    assert_int_equal(hf_renew_start(first, 0, NULL, NULL, &renewal), HF_OK);
    assert_int_equal(hf_lock_detach(first), HF_OK);
    assert_false(hf_lock_valid_for(first, 0));
    assert_int_equal(hf_world_wait(&world, renewal), HF_OK);
    assert_false(hf_lock_valid_for(first, 0));
    assert_int_equal(hf_lock_remaining_ms(first), 0);
    assert_int_equal(hf_lock_state(first), HF_LOCK_IDLE);

    assert_int_equal(hf_world_release(&world, adopted), HF_OK);
    third = acquire_lock(b, 10000);
    hf_world_run(&world, 5000);
    assert_false(hf_lock_valid_for(first, 0));
    assert_true(hf_lock_valid_for(third, 0));
    hf_lock_free(first);
    hf_lock_free(adopted);
    hf_lock_free(third);
}

static void a_detached_handle_cannot_act_on_its_old_claim(void **state)
{
    struct hf_lock *lock = acquire_lock(a, 10000);
    uint8_t before[HF_NONCE_SIZE], after[HF_NONCE_SIZE];

    (void)state;
    assert_int_equal(hf_lock_detach(lock), HF_OK);
    assert_true(hf_lock_token(lock) > 0); /* an adopter needs the token */
    hf_lock_nonce(lock, before);
    assert_int_equal(hf_world_release(&world, lock), HF_ESTATE);
    assert_int_equal(hf_world_renew(&world, lock, 0), HF_ESTATE);
    assert_int_equal(claim(lock), HF_EBUSY);
    hf_lock_nonce(lock, after);
    assert_true(memcmp(before, after, sizeof(before)) != 0);
    hf_lock_free(lock);
    hf_world_run(&world, 1000);
    assert_true(hf_world_is_held(&world, "k", NULL));
}

/* ---- A loss is final ----------------------------------------------------*/

static void run_until_left(const struct hf_lock *lock, uint32_t ms)
{
    hf_world_run(&world, hf_lock_remaining_ms(lock) - ms);
}

/* The turn begins before the end of validity and the answer arrives after it,
 * so the renewal is too late. */
static void a_renewal_is_judged_when_its_answer_arrives(void **state)
{
    struct hf_lock *lock = acquire_lock(a, 1000);

    (void)state;
    run_until_left(lock, 5);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_STALL, 1, 50);
    assert_int_equal(hf_world_renew(&world, lock, 10000), HF_EEXPIRED);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
}

static void a_grant_is_judged_when_its_answer_arrives(void **state)
{
    struct hf_lock_opts opts = options(100, 0);
    struct hf_error error;
    struct hf_lock *lock;
    enum hf_err err;

    (void)state;
    opts.ttl_includes_wait = true;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_STALL, 1, 500);
    err = hf_world_acquire(&world, a, "k", &opts, &lock);
    assert_int_equal(err, HF_EUNAVAIL);
    hf_client_error(a, &error);
    assert_non_null(strstr(error.text, "ttl"));
}

/* Simulate a process that is stopped for half a second after it read the
 * clock. */
static void stall_after_clock(struct hf_world *at)
{
    hf_world_jump(at, 500);
}

/* The process was stopped for longer than the lease. A claim that restarts in
 * the same turn must read the clock again; otherwise every grant would be
 * late. */
static void a_restarted_claim_reads_the_clock_again(void **state)
{
    struct hf_lock_opts opts = options(100, HF_FOREVER);
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    world.plain = true; /* requests are answered in the same turn */
    client = hf_world_open(&world);
    world.on_clock = stall_after_clock;
    assert_int_equal(hf_world_acquire(&world, client, "k", &opts, &lock),
                     HF_OK);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

static const struct hf_lock *watched;

/* Act as another thread, which finds that validity has ended. */
static void check_after_the_end(struct hf_world *at)
{
    hf_world_jump(at, 50);
    assert_false(hf_lock_valid_for(watched, 0));
}

/* A renewal is confirmed and the clock is read. Before the new end of validity
 * is stored, another thread sees that the old end has passed. The renewal must
 * then fail. */
static void a_lock_that_a_thread_saw_expire_is_not_renewed(void **state)
{
    struct hf_lock *lock = acquire_lock(a, 1000);
    hf_time base = world.now;
    enum hf_err err;

    (void)state;
    watched = lock;
    run_until_left(lock, 5);
    assert_int_equal(hf_client_enter(a), HF_OK);
    world.on_clock = check_after_the_end;
    err = hf_validity_extend(lock, base + 900, 10000);
    hf_client_leave(a);
    assert_int_equal(err, HF_EEXPIRED);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

/* ---- A server that loses its data ---------------------------------------*/

static void a_release_that_may_have_been_lost_is_in_doubt(void **state)
{
    struct hf_lock *first = acquire_lock(a, 60000), *second;
    struct hf_future *unlock;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_LOSE, 1, 0);
    assert_int_equal(hf_release_start(first, NULL, NULL, &unlock), HF_OK);
    hf_faulty_forget(&world.net);
    second = acquire_lock(b, 60000);
    assert_int_equal(hf_world_wait(&world, unlock), HF_EINDOUBT);
    assert_true(hf_lock_valid_for(second, 0));
    hf_lock_free(first);
    hf_lock_free(second);
}

static void a_lost_answer_is_resolved_by_a_server_with_its_data(void **state)
{
    struct hf_lock *lock = acquire_lock(a, 60000);

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_LOSE_ANSWER, 1, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    hf_lock_free(lock);
}

/* ---- Refused claims -----------------------------------------------------*/

static void a_refused_claim_has_no_token(void **state)
{
    struct hf_lock_opts opts = options(1000, 30000);
    struct hf_lock *first = acquire_lock(a, 60000), *lock;
    struct hf_future *future;

    (void)state;
    opts.idle = true;
    assert_int_equal(hf_lock_new(b, hf_key_of("k"), &opts, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, &future), HF_OK);
    hf_world_run(&world, 100);
    /* The key is granted, but every renewal that would confirm it is lost. */
    hf_faulty_cue(hf_faulty_of(b), HF_ON_GRANT, HF_HIDE_ANCHOR, 1, 0);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_RENEW, HF_LOSE, 99, 0);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_EINDOUBT);
    assert_true(hf_faulty_sent(hf_faulty_of(b), HF_ON_RENEW) > 1);
    assert_int_equal(hf_lock_token(lock), 0);
    hf_lock_free(first);
    hf_lock_free(lock);
}

/* ---- Threads ------------------------------------------------------------*/

static struct hf_client *real; /* a client that uses the real clock */
static struct hf_lock *shared;
static atomic_bool waiting;
static atomic_int owners, failures;

static int open_real(void **state)
{
    struct hf_client_opts opts;

    (void)state;
    hf_client_opts_init(&opts);
    opts.background = true;
    atomic_store(&waiting, false);
    atomic_store(&owners, 0);
    atomic_store(&failures, 0);
    return hf_open("memory:ownership", &opts, &real);
}

static int close_real(void **state)
{
    (void)state;
    return hf_close(real, 10000) == HF_OK ? 0 : -1;
}

static void note_waiting(struct hf_lock *lock, enum hf_lock_event event,
                         void *arg)
{
    (void)lock;
    (void)arg;
    if (event == HF_LOCK_EVENT_WAITING)
        atomic_store(&waiting, true);
}

static void *claim_main(void *arg)
{
    *(enum hf_err *)arg = hf_lock_acquire(shared);
    return NULL;
}

static void *await_main(void *arg)
{
    *(enum hf_err *)arg = hf_lock_wait(shared);
    return NULL;
}

/* Returns true if a thread is blocked in hf_lock_wait(). */
static bool is_awaited(struct hf_lock *lock)
{
    bool awaited;

    assert_int_equal(hf_client_enter(lock->client), HF_OK);
    awaited = !hf_dlist_is_empty(&lock->claim_waiters);
    hf_client_leave(lock->client);
    return awaited;
}

static void a_handle_may_be_freed_while_threads_block_on_it(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    enum hf_err claimed = HF_OK, awaited = HF_OK;
    pthread_t claiming, awaiting;
    struct hf_lock *holder;

    (void)state;
    assert_int_equal(hf_acquire(real, hf_key_of("k"), &opts, &holder), HF_OK);
    opts.idle = true;
    opts.on_event = note_waiting;
    assert_int_equal(hf_lock_new(real, hf_key_of("k"), &opts, &shared), HF_OK);
    assert_int_equal(pthread_create(&claiming, NULL, claim_main, &claimed), 0);
    while (!atomic_load(&waiting))
        sched_yield();
    assert_int_equal(pthread_create(&awaiting, NULL, await_main, &awaited), 0);
    while (!is_awaited(shared))
        sched_yield();
    hf_lock_free(shared);
    assert_int_equal(pthread_join(claiming, NULL), 0);
    assert_int_equal(pthread_join(awaiting, NULL), 0);
    assert_int_equal(claimed, HF_ECANCELED);
    assert_int_equal(awaited, HF_ECANCELED);
    hf_lock_free(holder);
}

static void free_while_waiting(struct hf_lock *lock, enum hf_lock_event event,
                               void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_WAITING)
        hf_lock_free(lock);
}

static void freeing_in_the_waiting_event_cancels_the_claim(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *holder, *lock = NULL;
    struct hf_info info;

    (void)state;
    assert_int_equal(hf_acquire(real, hf_key_of("k"), &opts, &holder), HF_OK);
    opts.on_event = free_while_waiting;
    assert_int_equal(hf_acquire(real, hf_key_of("k"), &opts, &lock),
                     HF_ECANCELED);
    assert_null(lock);
    assert_int_equal(hf_read(real, hf_key_of("k"), HF_LINEARIZABLE, &info),
                     HF_OK);
    assert_int_equal(info.waiters, 0);
    hf_info_fini(&info);
    hf_lock_free(holder);
}

enum {
    CLAIMERS = 3,
    CLAIMS = 300
};

/* A thread that got HF_OK is the only owner until it releases the lock. */
static void *claimer_main(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CLAIMS; i++) {
        enum hf_err err = hf_lock_acquire(shared);

        if (err != HF_OK) {
            if (err != HF_ESTATE && err != HF_EBUSY && err != HF_ETIMEDOUT)
                atomic_fetch_add(&failures, 1);
            continue;
        }
        if (atomic_fetch_add(&owners, 1) != 0)
            atomic_fetch_add(&failures, 1);
        atomic_fetch_sub(&owners, 1);
        if (hf_release(shared))
            atomic_fetch_add(&failures, 1);
    }
    return NULL;
}

static void *contender_main(void *arg)
{
    atomic_bool *stop = arg;
    struct hf_lock_opts opts = options(60000, HF_FOREVER);

    while (!atomic_load(stop)) {
        struct hf_lock *lock;

        if (hf_acquire(real, hf_key_of("k"), &opts, &lock)) {
            atomic_fetch_add(&failures, 1);
            continue;
        }
        hf_release(lock);
        hf_lock_free(lock);
    }
    return NULL;
}

static void a_thread_gets_the_result_of_its_own_claim(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    pthread_t threads[CLAIMERS], contender;
    atomic_bool stop = false;

    (void)state;
    opts.idle = true;
    assert_int_equal(hf_lock_new(real, hf_key_of("k"), &opts, &shared), HF_OK);
    assert_int_equal(pthread_create(&contender, NULL, contender_main, &stop),
                     0);
    for (unsigned i = 0; i < CLAIMERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, claimer_main, NULL),
                         0);
    for (unsigned i = 0; i < CLAIMERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(contender, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    hf_lock_free(shared);
}

#define THREADS(name)                                                          \
    cmocka_unit_test_setup_teardown(name, open_real, close_real)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_detached_handle_that_claims_again_keeps_the_old_claim),
        CASE(a_lost_adopter_that_claims_again_keeps_the_old_claim),
        CASE(detaching_ends_validity_permanently),
        CASE(a_detached_handle_cannot_act_on_its_old_claim),
        CASE(a_renewal_is_judged_when_its_answer_arrives),
        CASE(a_grant_is_judged_when_its_answer_arrives),
        CASE(a_restarted_claim_reads_the_clock_again),
        CASE(a_lock_that_a_thread_saw_expire_is_not_renewed),
        CASE(a_release_that_may_have_been_lost_is_in_doubt),
        CASE(a_lost_answer_is_resolved_by_a_server_with_its_data),
        CASE(a_refused_claim_has_no_token),
        THREADS(a_handle_may_be_freed_while_threads_block_on_it),
        THREADS(freeing_in_the_waiting_event_cancels_the_claim),
        THREADS(a_thread_gets_the_result_of_its_own_claim),
    };

    return hf_test_main("ownership", cases, HF_TEST_COUNT(cases), 0);
}
