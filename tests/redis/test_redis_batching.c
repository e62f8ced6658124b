/* The fast path, and batches: the commands of one turn are sent as one script,
 * and each command has its own result. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/one_server.h"

#define CALLS_MAX 40
#define PAIRS 10

/* One call of a turn: if `key` is set, acquire it; otherwise release `lock`. */
struct call {
    const char *key;
    struct hf_lock *lock;
    struct hf_lock_opts opts;
    struct hf_future *future;
};

struct turn {
    struct call calls[CALLS_MAX];
    unsigned count;
    bool silenced; /* the server is stopped before the calls are started */
};

static struct hf_lock *take_lock(const char *key)
{
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(client, hf_key_of(key), NULL, &lock));
    return lock;
}

static struct call *add_call(struct turn *turn)
{
    struct call *call = &turn->calls[turn->count++];

    *call = (struct call){
        .opts = hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS)};
    return call;
}

static struct call *add_lock(struct turn *turn, const char *key)
{
    struct call *call = add_call(turn);

    call->key = key;
    return call;
}

static struct call *add_unlock(struct turn *turn, struct hf_lock *lock)
{
    struct call *call = add_call(turn);

    call->lock = lock;
    return call;
}

/* This runs as a callback, so all calls that it starts belong to one turn. */
static void start_all(enum hf_err err, void *arg)
{
    struct turn *turn = arg;

    expect_ok(err);
    if (turn->silenced)
        (void)kill(redis.pid, SIGSTOP);
    for (struct call *call = turn->calls; call < turn->calls + turn->count;
         call++) {
        if (call->key)
            expect_ok(hf_acquire_start(client, hf_key_of(call->key),
                                       &call->opts, &call->lock, NULL, NULL,
                                       &call->future));
        else
            expect_ok(hf_release_start(call->lock, NULL, NULL, &call->future));
    }
}

static void run_turn(struct turn *turn)
{
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err;

    expect_ok(hf_acquire_start(client, hf_key_of("first"), NULL, &lock,
                               start_all, turn, &future));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
}

static void expect_answer(struct call *call, enum hf_err wanted)
{
    enum hf_err err = HF_OK;

    expect_ok(hf_future_wait(call->future, HF_FOREVER, &err));
    expect_err(err, wanted);
}

static void free_all(struct turn *turn)
{
    for (unsigned i = 0; i < turn->count; i++) {
        hf_future_free(turn->calls[i].future);
        hf_lock_free(turn->calls[i].lock);
    }
}

#define expect_reply(command, wanted)                                          \
    assert_string_equal(hf_test_redis_command(&redis, command), wanted)

/* Returns true if batch.lua was executed exactly once. Only that script uses
 * INCRBY, so its calls are counted. */
static bool was_one_script(void)
{
    return strstr(hf_test_redis_command(&redis, "INFO commandstats"),
                  "cmdstat_incrby:calls=1,") != NULL;
}

static void each_command_of_a_batch_has_its_own_result(void **state)
{
    struct turn turn = {.count = 0};
    struct call *held = add_unlock(&turn, take_lock("held"));
    struct call *gone = add_unlock(&turn, take_lock("gone"));
    struct call *taken = add_unlock(&turn, take_lock("taken"));
    struct call *list = add_unlock(&turn, take_lock("list"));
    struct call *free_key = add_lock(&turn, "free");
    struct call *one = add_lock(&turn, "same"), *two = add_lock(&turn, "same");
    struct call *busy = add_lock(&turn, "taken");
    struct call *not_a_lock = add_lock(&turn, "list");
    struct call *again = add_lock(&turn, "held");

    (void)state;
    expect_reply("DEL gone", "1");
    expect_reply("SET taken mine PX 60000", "OK");
    expect_reply("DEL list", "1");
    expect_reply("RPUSH list a", "1");
    run_turn(&turn);

    expect_answer(gone, HF_EEXPIRED);
    expect_answer(taken, HF_EEXPIRED);
    expect_answer(list, HF_EINVAL);
    expect_answer(busy, HF_EBUSY);
    expect_answer(not_a_lock, HF_EINVAL);
    expect_answer(two, HF_EBUSY);
    expect_answer(held, HF_OK);
    expect_answer(free_key, HF_OK);
    expect_answer(one, HF_OK);
    expect_answer(again, HF_OK);
    assert_true(hf_lock_token(again->lock) > hf_lock_token(free_key->lock));
    expect_reply("GET taken", "mine");
    assert_true(was_one_script());
    free_all(&turn);
}

static void a_batch_grants_the_key_to_the_first_waiter(void **state)
{
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct turn turn = {.count = 0};
    struct call *held = add_unlock(&turn, take_lock("k"));
    struct call *late = add_lock(&turn, "k"), *beside = add_lock(&turn, "b");
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    expect_ok(hf_acquire_start(other, hf_key_of("k"), NULL, &lock, NULL, NULL,
                               &future));
    while (strcmp(hf_test_redis_command(&redis, "ZCARD hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 2, &err);
    run_turn(&turn);

    expect_answer(held, HF_OK);
    expect_answer(late, HF_EBUSY);
    expect_answer(beside, HF_OK);
    assert_true(was_one_script());
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    free_all(&turn);
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* The number of LOCKs on the slow path. Only lock.lua uses ZRANK, once for each
 * LOCK that may wait, so the ZRANK commands are counted. */
static long count_slow_locks(void)
{
    const char *found =
        strstr(hf_test_redis_command(&redis, "INFO commandstats"),
               "cmdstat_zrank:calls=");

    return found ? strtol(strchr(found, '=') + 1, NULL, 10) : 0;
}

static void a_client_that_waited_returns_to_the_fast_path(void **state)
{
    struct hf_lock *held = take_lock("k");
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct hf_lock_opts brief =
        hf_test_opts(HF_TEST_LONG_MS, 300, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    enum hf_err err;
    long before;

    (void)state;
    do /* repeat while the result is in doubt */
        err = hf_acquire(other, hf_key_of("k"), &brief, &lock);
    while (err == HF_EINDOUBT);
    expect_err(err, HF_ETIMEDOUT);
    before = count_slow_locks();
    assert_true(before > 0);
    for (unsigned i = 0; i < PAIRS; i++) {
        expect_ok(hf_acquire(other, hf_key_of("free"), NULL, &lock));
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
    }
    /* At most the first LOCK takes the slow path. On a busy machine, repeated
     * LOCKs may take it as well. */
    assert_in_range(count_slow_locks(), before, before + PAIRS / 2);
    hf_lock_free(held);
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* An unlock and a read that are started in one turn. */
struct unlocking_read {
    struct hf_lock *lock;
    struct hf_info info;
    struct hf_future *unlocked, *read;
};

static void unlock_and_read(enum hf_err err, void *arg)
{
    struct unlocking_read *unlocking_read = arg;

    expect_ok(err);
    expect_ok(hf_release_start(unlocking_read->lock, NULL, NULL,
                               &unlocking_read->unlocked));
    expect_ok(hf_read_start(client, hf_key_of("k"), HF_LINEARIZABLE,
                            &unlocking_read->info, NULL, NULL,
                            &unlocking_read->read));
}

static void a_read_does_not_overtake_a_batch(void **state)
{
    struct unlocking_read unlocking_read = {.lock = take_lock("k")};
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    expect_ok(hf_acquire_start(client, hf_key_of("first"), NULL, &lock,
                               unlock_and_read, &unlocking_read, &future));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(hf_future_wait(unlocking_read.read, HF_FOREVER, &err));
    expect_ok(err);
    assert_false(unlocking_read.info.held);
    expect_ok(hf_future_wait(unlocking_read.unlocked, HF_FOREVER, &err));
    expect_ok(err);
    hf_info_fini(&unlocking_read.info);
    hf_future_free(future);
    hf_future_free(unlocking_read.read);
    hf_future_free(unlocking_read.unlocked);
    hf_lock_free(lock);
    hf_lock_free(unlocking_read.lock);
}

static void more_commands_than_fit_in_a_batch_are_answered(void **state)
{
    struct turn turn = {.count = 0};
    char keys[CALLS_MAX][8];

    (void)state;
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "k%u", i);
        add_lock(&turn, keys[i]);
    }
    run_turn(&turn);
    for (unsigned i = 0; i < CALLS_MAX; i++)
        expect_answer(&turn.calls[i], HF_OK);
    free_all(&turn);
}

static void a_batch_without_a_reply_is_in_doubt(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(60000, 0, 300);
    struct turn turn = {.silenced = true};
    struct hf_lock *held = NULL;

    (void)state;
    while (hf_acquire(client, hf_key_of("held"), &brief, &held) != HF_OK)
        continue; /* 300 ms may be too short on a busy machine */
    add_lock(&turn, "a")->opts = brief;
    add_unlock(&turn, held);
    add_lock(&turn, "b")->opts = brief;
    run_turn(&turn);
    for (unsigned i = 0; i < turn.count; i++)
        expect_answer(&turn.calls[i], HF_EINDOUBT);
    (void)kill(redis.pid, SIGCONT);
    free_all(&turn);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(each_command_of_a_batch_has_its_own_result),
        CASE(a_batch_grants_the_key_to_the_first_waiter),
        CASE(a_client_that_waited_returns_to_the_fast_path),
        CASE(a_read_does_not_overtake_a_batch),
        CASE(more_commands_than_fit_in_a_batch_are_answered),
        CASE(a_batch_without_a_reply_is_in_doubt),
    };

    return hf_test_main("redis batching", cases, HF_TEST_COUNT(cases), 4);
}
