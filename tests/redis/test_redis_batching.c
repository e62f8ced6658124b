/* What is quick, and what is asked for in one turn, which goes to the server as
 * one script: each is told its own, whatever becomes of the others. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/one_server.h"

#define ASKED_MAX 40
#define PAIRS 10

/* A call of a turn: an unlock if it has a lock, else a lock of a key. */
struct asked {
    const char *key;
    struct hf_lock *lock;
    struct hf_lock_opts opts;
    struct hf_future *future;
};

struct turn {
    struct asked asked[ASKED_MAX];
    unsigned count;
    bool silenced; /* the server is stopped before they are asked for */
};

static struct hf_lock *hold(const char *key)
{
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(client, hf_key_of(key), NULL, &lock));
    return lock;
}

static struct asked *add(struct turn *turn)
{
    struct asked *asked = &turn->asked[turn->count++];

    *asked = (struct asked){
        .opts = hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS)};
    return asked;
}

static struct asked *add_lock(struct turn *turn, const char *key)
{
    struct asked *asked = add(turn);

    asked->key = key;
    return asked;
}

static struct asked *add_unlock(struct turn *turn, struct hf_lock *lock)
{
    struct asked *asked = add(turn);

    asked->lock = lock;
    return asked;
}

/* All that a callback asks for is asked for in one turn. */
static void ask_all(enum hf_err err, void *arg)
{
    struct turn *turn = arg;

    expect_ok(err);
    if (turn->silenced)
        (void)kill(redis.pid, SIGSTOP);
    for (struct asked *asked = turn->asked; asked < turn->asked + turn->count;
         asked++) {
        if (asked->key)
            expect_ok(hf_acquire_start(client, hf_key_of(asked->key),
                                       &asked->opts, &asked->lock, NULL, NULL,
                                       &asked->future));
        else
            expect_ok(
                hf_release_start(asked->lock, NULL, NULL, &asked->future));
    }
}

static void run(struct turn *turn)
{
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err;

    expect_ok(hf_acquire_start(client, hf_key_of("first"), NULL, &lock, ask_all,
                               turn, &future));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
}

static void expect_answer(struct asked *asked, enum hf_err wanted)
{
    enum hf_err err = HF_OK;

    expect_ok(hf_future_wait(asked->future, HF_FOREVER, &err));
    expect_err(err, wanted);
}

static void free_all(struct turn *turn)
{
    for (unsigned i = 0; i < turn->count; i++) {
        hf_future_free(turn->asked[i].future);
        hf_lock_free(turn->asked[i].lock);
    }
}

#define expect_said(words, wanted)                                             \
    assert_string_equal(hf_test_redis_say(&redis, words), wanted)

/* Only this script counts several tokens at once. */
static bool was_one_script(void)
{
    return strstr(hf_test_redis_say(&redis, "INFO commandstats"),
                  "cmdstat_incrby:calls=1,") != NULL;
}

static void each_is_told_its_own(void **state)
{
    struct turn turn = {.count = 0};
    struct asked *held = add_unlock(&turn, hold("held"));
    struct asked *gone = add_unlock(&turn, hold("gone"));
    struct asked *taken = add_unlock(&turn, hold("taken"));
    struct asked *list = add_unlock(&turn, hold("list"));
    struct asked *free_key = add_lock(&turn, "free");
    struct asked *one = add_lock(&turn, "same"), *two = add_lock(&turn, "same");
    struct asked *busy = add_lock(&turn, "taken");
    struct asked *no_lock = add_lock(&turn, "list");
    struct asked *again = add_lock(&turn, "held");

    (void)state;
    expect_said("DEL gone", "1");
    expect_said("SET taken mine PX 60000", "OK");
    expect_said("DEL list", "1");
    expect_said("RPUSH list a", "1");
    run(&turn);

    expect_answer(gone, HF_EEXPIRED);
    expect_answer(taken, HF_EEXPIRED);
    expect_answer(list, HF_EINVAL);
    expect_answer(busy, HF_EBUSY);
    expect_answer(no_lock, HF_EINVAL);
    expect_answer(two, HF_EBUSY);
    expect_answer(held, HF_OK);
    expect_answer(free_key, HF_OK);
    expect_answer(one, HF_OK);
    expect_answer(again, HF_OK);
    assert_true(hf_lock_token(again->lock) > hf_lock_token(free_key->lock));
    expect_said("GET taken", "mine");
    assert_true(was_one_script());
    free_all(&turn);
}

static void who_stands_in_line_is_handed_the_key(void **state)
{
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct turn turn = {.count = 0};
    struct asked *held = add_unlock(&turn, hold("k"));
    struct asked *jumps = add_lock(&turn, "k"), *beside = add_lock(&turn, "b");
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    expect_ok(hf_acquire_start(other, hf_key_of("k"), NULL, &lock, NULL, NULL,
                               &future));
    while (strcmp(hf_test_redis_say(&redis, "ZCARD hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 2, &err);
    run(&turn);

    expect_answer(held, HF_OK);
    expect_answer(jumps, HF_EBUSY);
    expect_answer(beside, HF_OK);
    assert_true(was_one_script());
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    free_all(&turn);
    expect_ok(hf_close(other, HF_TEST_PATIENCE_MS));
}

/* What only the script that queues calls. */
static long looks_at_lines(void)
{
    const char *found = strstr(hf_test_redis_say(&redis, "INFO commandstats"),
                               "cmdstat_zrank:calls=");

    return found ? strtol(strchr(found, '=') + 1, NULL, 10) : 0;
}

static void who_has_waited_is_quick_again(void **state)
{
    struct hf_lock *held = hold("k");
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct hf_lock_opts brief =
        hf_test_opts(HF_TEST_LONG_MS, 300, HF_TEST_PATIENCE_MS);
    struct hf_lock *lock = NULL;
    enum hf_err err;
    long before;

    (void)state;
    do /* until the withdrawal is confirmed in time */
        err = hf_acquire(other, hf_key_of("k"), &brief, &lock);
    while (err == HF_EINDOUBT);
    expect_err(err, HF_ETIMEDOUT);
    before = looks_at_lines();
    assert_true(before > 0);
    for (unsigned i = 0; i < PAIRS; i++) {
        expect_ok(hf_acquire(other, hf_key_of("free"), NULL, &lock));
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
    }
    /* The first looked, and whatever was slow and asked for again. */
    assert_in_range(looks_at_lines(), before, before + PAIRS / 2);
    hf_lock_free(held);
    expect_ok(hf_close(other, HF_TEST_PATIENCE_MS));
}

/* In one turn: an unlock, and a look. */
struct look {
    struct hf_lock *lock;
    struct hf_info info;
    struct hf_future *unlocked, *read;
};

static void unlock_and_look(enum hf_err err, void *arg)
{
    struct look *look = arg;

    expect_ok(err);
    expect_ok(hf_release_start(look->lock, NULL, NULL, &look->unlocked));
    expect_ok(hf_read_start(client, hf_key_of("k"), HF_LINEARIZABLE,
                            &look->info, NULL, NULL, &look->read));
}

static void what_comes_behind_overtakes_nothing(void **state)
{
    struct look look = {.lock = hold("k")};
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    expect_ok(hf_acquire_start(client, hf_key_of("first"), NULL, &lock,
                               unlock_and_look, &look, &future));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(hf_future_wait(look.read, HF_FOREVER, &err));
    expect_ok(err);
    assert_false(look.info.held);
    expect_ok(hf_future_wait(look.unlocked, HF_FOREVER, &err));
    expect_ok(err);
    hf_info_fini(&look.info);
    hf_future_free(future);
    hf_future_free(look.read);
    hf_future_free(look.unlocked);
    hf_lock_free(lock);
    hf_lock_free(look.lock);
}

static void more_than_one_script_can_take_are_all_answered(void **state)
{
    struct turn turn = {.count = 0};
    char keys[ASKED_MAX][8];

    (void)state;
    for (unsigned i = 0; i < ASKED_MAX; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "k%u", i);
        add_lock(&turn, keys[i]);
    }
    run(&turn);
    for (unsigned i = 0; i < ASKED_MAX; i++)
        expect_answer(&turn.asked[i], HF_OK);
    free_all(&turn);
}

static void who_hears_nothing_is_in_doubt(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(60000, 0, 300);
    struct turn turn = {.silenced = true};
    struct hf_lock *held = NULL;

    (void)state;
    while (hf_acquire(client, hf_key_of("held"), &brief, &held) != HF_OK)
        continue; /* a busy machine: 300 ms may be over too soon */
    add_lock(&turn, "a")->opts = brief;
    add_unlock(&turn, held);
    add_lock(&turn, "b")->opts = brief;
    run(&turn);
    for (unsigned i = 0; i < turn.count; i++)
        expect_answer(&turn.asked[i], HF_EINDOUBT);
    (void)kill(redis.pid, SIGCONT);
    free_all(&turn);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(each_is_told_its_own),
        CASE(who_stands_in_line_is_handed_the_key),
        CASE(who_has_waited_is_quick_again),
        CASE(what_comes_behind_overtakes_nothing),
        CASE(more_than_one_script_can_take_are_all_answered),
        CASE(who_hears_nothing_is_in_doubt),
    };

    return hf_test_main("redis several", cases, HF_TEST_COUNT(cases), 4);
}
