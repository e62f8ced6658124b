/* Several clients of one store, thousands of times, each time from a seed: how
 * they are used, what the network does to them, when they are stopped, cut off
 * or closed. What must be true is asked after every turn, and of the whole
 * history at the end.
 *
 *   HF_SEEDS=N   run N seeds a case, not the usual number
 *   HF_SEED=N    run this one alone, and tell what happens */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "checker/check.h"
#include "checker/recorder.h"
#include "checker/report.h"
#include "client/withdrawal.h"
#include "lib/runner.h"
#include "lib/world.h"

enum {
    CLIENTS_MAX = 4,
    CLAIMS_A_CLIENT = 3,
    KEYS_MAX = 3,
    TTL_MAX_MS = 3000,
    TIMEOUT_MAX_MS = 3000,
    ANSWERS_MS = 8000, /* until a call notices that all is well again */
};

/* What a case is about: which kinds of trouble its seeds may draw. */
struct plan {
    bool network, clocks, stops, cuts, closes;
};

/* One handle, used for one claim after another. */
struct claim {
    struct sim *sim;
    unsigned client, key;
    struct hf_lock *lock; /* NULL: none */
    struct hf_future *future;
    bool own_handle; /* made idle first, so that it can be freed at any time */
    bool listens;
    bool claiming, held, releasing;
    bool mine; /* the answer was "granted", and it was not given back since */
    unsigned told;
    uint64_t token;
    size_t lock_op;
    hf_time claimed_at;
    uint32_t lease_ms;
    unsigned open; /* calls */
};

/* One call that is not answered yet. */
struct call {
    struct sim *sim;
    struct claim *claim; /* NULL: of no handle */
    unsigned client;
    enum history_kind kind;
    bool recorded;
    size_t op;
    uint64_t token;
    struct hf_info info;
    enum hf_freed freed;
    char nonce[2 * HF_NONCE_SIZE + 1];
};

struct sim {
    uint64_t seed;
    const struct plan *plan;
    struct hf_world world;
    struct hf_random random;
    struct recorder recorder;
    struct hf_client *clients[CLIENTS_MAX];
    hf_time next_action[CLIENTS_MAX];
    bool closed[CLIENTS_MAX];
    unsigned client_count, key_count;
    struct claim claims[CLIENTS_MAX * CLAIMS_A_CLIENT];
    struct hf_faulty_odds odds;
    uint64_t top[KEYS_MAX]; /* the largest token granted so far */
    uint64_t started, answered;
    bool ending;
    bool talk;
};

static const char *const keys[KEYS_MAX] = {"a", "b", "c"};
static uint64_t running; /* the seed, for whoever fails */
static const char *running_case = "";

/* ---- Saying what went wrong ---------------------------------------------*/

static void say_seed(void)
{
    char text[200];
    int size = snprintf(text, sizeof(text),
                        "\nseed %llu; to replay it:\n"
                        "    HF_SEED=%llu test_simulation --serial %s\n",
                        (unsigned long long)running,
                        (unsigned long long)running, running_case);

    if (running && write(STDERR_FILENO, text, (size_t)size) < 0)
        return;
}

static void on_crash(int number)
{
    say_seed();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Called by the sanitizers' runtime, where there is one. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    say_seed();
}

#define TALK(sim, ...)                                                         \
    do {                                                                       \
        if ((sim)->talk) {                                                     \
            printf("%10lld  ",                                                 \
                   (long long)((sim)->world.now - HF_WORLD_START));            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
        }                                                                      \
    } while (0)

#define DEMAND(sim, condition, ...)                                            \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%lld ms: ",                                                \
                   (long long)((sim)->world.now - HF_WORLD_START));            \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
            fail();                                                            \
        }                                                                      \
    } while (0)

static uint32_t below(struct sim *sim, uint32_t bound)
{
    return hf_random_below(&sim->random, bound);
}

static bool chance(struct sim *sim, uint32_t in_a_hundred)
{
    return below(sim, 100) < in_a_hundred;
}

static uint64_t nanoseconds(hf_time at)
{
    return at <= HF_WORLD_START ? 1
                                : (uint64_t)(at - HF_WORLD_START) * 1000000 + 1;
}

static uint64_t now_of(const struct sim *sim)
{
    return nanoseconds(sim->world.now);
}

static void nonce_text(const struct hf_lock *lock, char *text)
{
    uint8_t nonce[HF_NONCE_SIZE];

    hf_nonce(lock, nonce);
    for (unsigned i = 0; i < HF_NONCE_SIZE; i++)
        (void)sprintf(text + 2 * (size_t)i, "%02x", nonce[i]);
}

/* ---- What must be true after every turn ---------------------------------*/

static bool is_stopped(const struct sim *sim, unsigned client)
{
    return sim->world.stopped[client] > sim->world.now;
}

/* Whether the loss of this lock ought to have been told by now. */
static bool lost_untold(const struct claim *claim)
{
    return claim->mine && claim->listens && !claim->releasing &&
           !hf_valid_for(claim->lock, 0) &&
           !(claim->told & (1u << HF_LOCK_EVENT_LOST));
}

/* One that was stopped hears LOST before anything else. */
static void check_lost_first(struct sim *sim, unsigned client)
{
    for (unsigned i = 0; i < CLAIMS_A_CLIENT; i++)
        DEMAND(sim, !lost_untold(&sim->claims[client * CLAIMS_A_CLIENT + i]),
               "client %u hears of something before its lost lock", client);
}

static void observe(struct hf_world *world, void *arg)
{
    struct sim *sim = arg;
    const struct claim *holder[KEYS_MAX] = {0};

    (void)world;
    for (unsigned i = 0; i < CLIENTS_MAX * CLAIMS_A_CLIENT; i++) {
        struct claim *claim = &sim->claims[i];

        if (!claim->lock)
            continue;
        if (hf_valid_for(claim->lock, 0)) {
            DEMAND(sim, !holder[claim->key],
                   "clients %u and %u both hold '%s' (tokens %llu, %llu)",
                   holder[claim->key]->client, claim->client, keys[claim->key],
                   (unsigned long long)holder[claim->key]->token,
                   (unsigned long long)hf_token(claim->lock));
            holder[claim->key] = claim;
        } else if (!is_stopped(sim, claim->client) &&
                   !sim->closed[claim->client] &&
                   hf_loop_next(sim->clients[claim->client]) > sim->world.now) {
            DEMAND(sim,
                   !lost_untold(claim) ||
                       !hf_list_empty(
                           &sim->clients[claim->client]->loop.callbacks),
                   "client %u was not told that '%s' is lost", claim->client,
                   keys[claim->key]);
        }
    }
}

/* ---- Calls --------------------------------------------------------------*/

static struct call *new_call(struct sim *sim, struct claim *claim,
                             unsigned client)
{
    struct call *call = calloc(1, sizeof(*call));

    assert_non_null(call);
    call->sim = sim;
    call->claim = claim;
    call->client = client;
    return call;
}

static void started(struct call *call)
{
    call->sim->started++;
    if (call->claim)
        call->claim->open++;
}

/* The operation begins now, in the history. */
static void record(struct call *call, enum history_kind kind, unsigned key)
{
    struct sim *sim = call->sim;
    bool named = kind != HISTORY_LOCK && kind != HISTORY_READ;

    call->kind = kind;
    call->recorded = true;
    call->op =
        recorder_begin(&sim->recorder, &(struct recorder_call){
                                           .kind = kind,
                                           .client = call->client + 1,
                                           .key = keys[key],
                                           .key_len = strlen(keys[key]),
                                           .nonce = named ? call->nonce : NULL,
                                           .token = named ? call->token : 0,
                                           .now = now_of(sim),
                                       });
}

/* What an answer says about whether it was done. What was given up may have
 * been done for a while. */
static enum history_result result_of(enum hf_err err)
{
    switch (err) {
    case HF_OK:
        return HISTORY_OK;
    case HF_ETIMEDOUT:
    case HF_EINDOUBT:
    case HF_ECANCELED:
    case HF_ECLOSED:
        return HISTORY_UNKNOWN;
    default:
        return HISTORY_FAIL;
    }
}

static void record_end(struct call *call, enum hf_err err, hf_time deadline)
{
    struct sim *sim = call->sim;
    enum history_result result = result_of(err);
    bool grants = err == HF_OK && call->kind != HISTORY_UNLOCK;
    bool timed =
        grants && (call->kind == HISTORY_LOCK || call->kind == HISTORY_RENEW);

    if (!call->recorded)
        return;
    /* A renewal that comes too late here may have been in time there. */
    if (err == HF_EEXPIRED && call->kind != HISTORY_UNLOCK)
        result = HISTORY_UNKNOWN;
    /* Granted, but over before this was heard: until when is not known. */
    if (timed && deadline <= sim->world.now)
        result = HISTORY_UNKNOWN;
    grants = grants && result == HISTORY_OK;
    recorder_end(&sim->recorder, call->op,
                 &(struct recorder_answer){
                     .result = result,
                     .error = result == HISTORY_FAIL ? hf_err_name(err) : NULL,
                     .nonce = call->nonce[0] ? call->nonce : NULL,
                     .token = grants ? call->token : 0,
                     .deadline = timed && grants ? nanoseconds(deadline) : 0,
                     .now = now_of(sim),
                 });
}

/* Every answer passes here, once: `call` is gone after it. */
static void answered(struct call *call, enum hf_err err)
{
    struct sim *sim = call->sim;

    check_lost_first(sim, call->client);
    sim->answered++;
    if (call->claim) {
        assert_true(call->claim->open > 0);
        call->claim->open--;
    }
    hf_world_note(&sim->world, (uint64_t)(-err) * 16 + call->kind);
    free(call);
}

static void drop_future(struct claim *claim)
{
    hf_future_free(claim->future);
    claim->future = NULL;
}

/* What is held is given back behind, and nobody hears how that ends. */
static void record_unheard(struct claim *claim)
{
    struct call unheard = {
        .sim = claim->sim,
        .client = claim->client,
        .token = claim->token,
    };

    if (!claim->mine)
        return;
    nonce_text(claim->lock, unheard.nonce);
    record(&unheard, HISTORY_UNLOCK, claim->key);
}

static void free_handle(struct claim *claim)
{
    struct hf_lock *lock = claim->lock;

    TALK(claim->sim, "client %u frees %s", claim->client, keys[claim->key]);
    record_unheard(claim);
    claim->lock = NULL;
    claim->mine = claim->held = claim->releasing = claim->claiming = false;
    claim->listens = false;
    drop_future(claim);
    hf_lock_free(lock);
}

/* ---- Giving back --------------------------------------------------------*/

static void unlocked(enum hf_err err, void *arg)
{
    struct call *call = arg;
    struct claim *claim = call->claim;
    struct sim *sim = call->sim;

    TALK(sim, "client %u unlocked %s: %s", call->client, keys[claim->key],
         hf_err_name(err));
    DEMAND(sim,
           err == HF_OK || err == HF_EEXPIRED || err == HF_EINDOUBT ||
               err == HF_EUNAVAIL || err == HF_ECLOSED,
           "unlock answered %s", hf_err_name(err));
    record_end(call, err, 0);
    claim->releasing = false;
    answered(call, err);
    if (claim->lock && !claim->claiming && !claim->held && chance(sim, 70))
        free_handle(claim);
}

static void unlock(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct call *call = new_call(sim, claim, claim->client);

    nonce_text(claim->lock, call->nonce);
    call->token = claim->token;
    if (hf_unlock_start(claim->lock, unlocked, call, NULL)) {
        free(call);
        return;
    }
    TALK(sim, "client %u unlocks %s %llu", claim->client, keys[claim->key],
         (unsigned long long)claim->token);
    started(call);
    record(call, HISTORY_UNLOCK, claim->key);
    DEMAND(sim, !hf_valid_for(claim->lock, 0),
           "valid after the start of unlock");
    claim->mine = claim->held = false;
    claim->releasing = true;
}

/* ---- Taking -------------------------------------------------------------*/

static void granted(struct call *call)
{
    struct claim *claim = call->claim;
    struct sim *sim = call->sim;

    claim->token = call->token = hf_token(claim->lock);
    nonce_text(claim->lock, call->nonce);
    claim->held = claim->mine = true;
    DEMAND(sim, claim->token > 0, "granted without a token");
    if (claim->token > sim->top[claim->key])
        sim->top[claim->key] = claim->token;
    TALK(sim, "client %u holds %s, token %llu, for %u ms", claim->client,
         keys[claim->key], (unsigned long long)claim->token,
         hf_remaining_ms(claim->lock));
}

/* Who waited may have had its turn before, unheard, and lost it again: each
 * lease that fits into the wait may have been such a one. */
static void record_missed_turns(struct claim *claim)
{
    struct sim *sim = claim->sim;
    hf_time waited = sim->world.now - claim->claimed_at;

    for (hf_time i = waited / claim->lease_ms; i > 0; i--)
        (void)recorder_begin(&sim->recorder,
                             &(struct recorder_call){
                                 .kind = HISTORY_LOCK,
                                 .client = claim->client + 1,
                                 .key = keys[claim->key],
                                 .key_len = strlen(keys[claim->key]),
                                 .now = nanoseconds(claim->claimed_at),
                             });
}

static void claimed(enum hf_err err, void *arg)
{
    struct call *call = arg;
    struct claim *claim = call->claim;
    struct sim *sim = call->sim;
    hf_time deadline = 0;

    TALK(sim, "client %u claimed %s: %s", call->client, keys[claim->key],
         hf_err_name(err));
    DEMAND(sim,
           err == HF_OK || err == HF_EBUSY || err == HF_ETIMEDOUT ||
               err == HF_EUNAVAIL || err == HF_EINDOUBT ||
               err == HF_ECANCELED || err == HF_ECLOSED,
           "a claim was answered %s", hf_err_name(err));
    claim->claiming = false;
    if (!err && claim->lock) {
        granted(call);
        deadline = hf_deadline(claim->lock);
        record_end(call, err, deadline);
    } else {
        /* Freed between the grant and this: who knows what it was. */
        record_end(call, err ? err : HF_ECANCELED, 0);
    }
    if (err && claim->lock && !claim->own_handle)
        claim->lock = NULL;
    answered(call, err);
    record_missed_turns(claim);
    drop_future(claim);
    if (claim->mine && (sim->ending || chance(sim, 20)))
        unlock(claim);
    else if (err && claim->lock && (sim->ending || chance(sim, 50)))
        free_handle(claim);
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    struct claim *claim = arg;
    struct sim *sim = claim->sim;

    TALK(sim, "client %u, %s: event %d", claim->client, keys[claim->key],
         (int)event);
    DEMAND(sim, claim->listens, "an event for a handle that was freed");
    DEMAND(sim, !(claim->told & (1u << event)), "event %d comes twice",
           (int)event);
    claim->told |= 1u << event;
    if (event == HF_LOCK_EVENT_LOST) {
        DEMAND(sim, !hf_valid_for(lock, 0), "lost, and still valid");
        DEMAND(sim, claim->held || claim->claiming, "lost what was not held");
        recorder_lost(&sim->recorder, claim->client + 1, keys[claim->key],
                      strlen(keys[claim->key]), hf_token(lock), now_of(sim));
    } else {
        check_lost_first(sim, claim->client);
    }
    if (event == HF_LOCK_EVENT_WAITING && claim->claiming)
        recorder_queued(&sim->recorder, claim->lock_op, now_of(sim));
    if (event == HF_LOCK_EVENT_LOST && claim->lock && claim->held) {
        if (chance(sim, 30))
            free_handle(claim);
        else if (chance(sim, 50))
            unlock(claim);
    }
}

static void draw_options(struct claim *claim, struct hf_lock_opts *opts)
{
    struct sim *sim = claim->sim;
    static const uint32_t ttls[] = {100, 300, 1000, TTL_MAX_MS};

    hf_lock_opts_init(opts);
    opts->ttl_ms = 40 + below(sim, ttls[below(sim, 4)] - 39);
    opts->timeout_ms = 100 + below(sim, TIMEOUT_MAX_MS - 100);
    opts->wait_ms = chance(sim, 25)   ? 0
                    : chance(sim, 15) ? HF_FOREVER
                                      : 1 + below(sim, 3000);
    opts->renew = chance(sim, 50);
    if (opts->renew && chance(sim, 20))
        opts->renew_ms = below(sim, opts->ttl_ms);
    claim->lease_ms = opts->ttl_ms;
    claim->listens = chance(sim, 80);
    if (claim->listens) {
        opts->on_event = on_event;
        opts->arg = claim;
    }
}

static void take(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct hf_client *client = sim->clients[claim->client];
    struct call *call = new_call(sim, claim, claim->client);
    struct hf_lock_opts opts;
    enum hf_err err = HF_OK;

    if (!claim->lock) {
        claim->key = below(sim, sim->key_count);
        draw_options(claim, &opts);
        claim->own_handle = chance(sim, 50);
        opts.idle = claim->own_handle;
        if (claim->own_handle)
            err = hf_lock_new(client, hf_key(keys[claim->key]), &opts,
                              &claim->lock);
        assert_int_equal(err, HF_OK);
    }
    if (claim->lock) {
        claim->own_handle = true;
        record_unheard(claim);
    }
    if (claim->lock)
        err = hf_claim_start(claim->lock, claimed, call, &claim->future);
    else
        err = hf_lock_start(client, hf_key(keys[claim->key]), &opts,
                            &claim->lock, claimed, call, &claim->future);
    if (err) {
        assert_int_equal(err, HF_ESTATE);
        free(call);
        return;
    }
    TALK(sim, "client %u claims %s", claim->client, keys[claim->key]);
    claim->claiming = true;
    claim->held = claim->mine = false;
    claim->told = 0;
    started(call);
    record(call, HISTORY_LOCK, claim->key);
    claim->lock_op = call->op;
    claim->claimed_at = sim->world.now;
}

/* ---- Other calls --------------------------------------------------------*/

static void renewed(enum hf_err err, void *arg)
{
    struct call *call = arg;

    DEMAND(call->sim,
           err == HF_OK || err == HF_EEXPIRED || err == HF_EFORCED ||
               err == HF_EINDOUBT || err == HF_EUNAVAIL || err == HF_ECLOSED,
           "renew or update answered %s", hf_err_name(err));
    TALK(call->sim, "client %u renewed %s: %s", call->client,
         keys[call->claim->key], hf_err_name(err));
    /* What the handle says now may be of another grant. */
    record_end(call, err,
               call->claim->lock && call->claim->mine &&
                       call->claim->token == call->token
                   ? hf_deadline(call->claim->lock)
                   : 0);
    answered(call, err);
}

static void renew_or_update(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct call *call = new_call(sim, claim, claim->client);
    bool update = chance(sim, 40);
    uint32_t ttl_ms = chance(sim, 50) ? 0 : 40 + below(sim, TTL_MAX_MS - 40);
    enum hf_err err;

    nonce_text(claim->lock, call->nonce);
    call->token = claim->token;
    if (update)
        err = hf_update_start(claim->lock, NULL, hf_bytes("v"), renewed, call,
                              NULL);
    else
        err = hf_renew_start(claim->lock, ttl_ms, renewed, call, NULL);
    if (err) {
        assert_true(err == HF_ESTATE || err == HF_EEXPIRED);
        free(call);
        return;
    }
    started(call);
    record(call, update ? HISTORY_UPDATE : HISTORY_RENEW, claim->key);
}

static void looked(enum hf_err err, void *arg)
{
    struct call *call = arg;
    struct sim *sim = call->sim;

    DEMAND(sim,
           err == HF_OK || err == HF_ETIMEDOUT || err == HF_EINDOUBT ||
               err == HF_EUNAVAIL || err == HF_ECANCELED || err == HF_ECLOSED,
           "a look answered %s", hf_err_name(err));
    if (!err && call->info.held)
        call->token = call->info.token;
    record_end(call, err, 0);
    hf_info_fini(&call->info);
    answered(call, err);
}

static void look(struct sim *sim, unsigned client)
{
    struct call *call = new_call(sim, NULL, client);
    unsigned key = below(sim, sim->key_count);
    struct hf_client *at = sim->clients[client];
    uint32_t wait_ms = below(sim, 2000);
    unsigned kind = below(sim, 4);
    enum hf_err err;

    if (kind == 0)
        err = hf_wait_held_start(at, hf_key(keys[key]), wait_ms, &call->info,
                                 looked, call, NULL);
    else if (kind == 1)
        err = hf_wait_free_start(at, hf_key(keys[key]), wait_ms, &call->freed,
                                 looked, call, NULL);
    else
        err = hf_read_start(at, hf_key(keys[key]), HF_LINEARIZABLE, &call->info,
                            looked, call, NULL);
    assert_int_equal(err, HF_OK);
    started(call);
    if (kind > 1)
        record(call, HISTORY_READ, key);
}

static void forced(enum hf_err err, void *arg)
{
    answered(arg, err);
}

/* An operator marks a lock: it runs out, so no promise is waived. */
static void force(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct call *call = new_call(sim, NULL, claim->client);

    assert_int_equal(hf_force_start(sim->clients[claim->client],
                                    hf_key(keys[claim->key]), claim->token,
                                    false, forced, call, NULL),
                     HF_OK);
    started(call);
}

/* ---- One seed -----------------------------------------------------------*/

static void act_on(struct claim *claim)
{
    struct sim *sim = claim->sim;

    if (claim->claiming) {
        if (claim->future && chance(sim, 10)) {
            TALK(sim, "client %u cancels %s", claim->client, keys[claim->key]);
            hf_future_cancel(claim->future);
        } else if (claim->own_handle && chance(sim, 5)) {
            free_handle(claim);
        }
    } else if (claim->held) {
        if (chance(sim, 40))
            unlock(claim);
        else if (chance(sim, 60))
            renew_or_update(claim);
        else if (chance(sim, 10))
            force(claim);
        else if (chance(sim, 10))
            free_handle(claim);
        else if (!hf_valid_for(claim->lock, 0) && chance(sim, 30))
            take(claim); /* claimed anew, once it is lost */
    } else if (!claim->releasing && claim->open == 0) {
        take(claim);
    } else if (claim->releasing && claim->lock && chance(sim, 5)) {
        free_handle(claim);
    }
}

static void close_client(struct sim *sim, unsigned client)
{
    TALK(sim, "client %u closes", client);
    sim->closed[client] = true;
    recorder_death(&sim->recorder, client + 1, now_of(sim));
    for (unsigned i = 0; i < CLAIMS_A_CLIENT; i++)
        sim->claims[client * CLAIMS_A_CLIENT + i].listens = false;
    (void)hf_world_close(&sim->world, sim->clients[client]);
    for (unsigned i = 0; i < CLAIMS_A_CLIENT; i++) {
        struct claim *claim = &sim->claims[client * CLAIMS_A_CLIENT + i];

        DEMAND(sim, claim->open == 0, "a call is not answered by hf_close()");
        if (claim->lock)
            free_handle(claim);
    }
}

static void trouble(struct sim *sim, unsigned client)
{
    const struct plan *plan = sim->plan;
    struct hf_faulty *faulty = hf_faulty_of(sim->clients[client]);

    if (plan->stops && chance(sim, 4)) {
        uint32_t ms = 1 + below(sim, 2 * TTL_MAX_MS);

        TALK(sim, "client %u is stopped for %u ms", client, ms);
        hf_world_stop(&sim->world, sim->clients[client], ms);
    }
    if (plan->cuts && chance(sim, 6)) {
        TALK(sim, "client %u: the network changes", client);
        hf_faulty_cut(faulty, chance(sim, 60) ? HF_CUT_NONE
                                              : (enum hf_faulty_cut)below(
                                                    sim, HF_CUT_DEAF + 1));
    }
    if (plan->closes && chance(sim, 1))
        close_client(sim, client);
}

static void act(struct sim *sim, unsigned client)
{
    sim->next_action[client] = sim->world.now + 1 + below(sim, 200);
    if (sim->closed[client] || is_stopped(sim, client))
        return;
    if (chance(sim, 8))
        look(sim, client);
    else
        act_on(&sim->claims[client * CLAIMS_A_CLIENT +
                            below(sim, CLAIMS_A_CLIENT)]);
    trouble(sim, client);
}

static void run_workload(struct sim *sim, uint32_t ms)
{
    hf_time end = sim->world.now + ms;

    while (sim->world.now < end) {
        unsigned first = 0;

        for (unsigned i = 1; i < sim->client_count; i++) {
            if (sim->next_action[i] < sim->next_action[first])
                first = i;
        }
        while (hf_world_step(&sim->world, sim->next_action[first]))
            ;
        act(sim, first);
        observe(&sim->world, sim);
    }
}

/* All is well from now on, and nobody begins anything new. */
static void heal(struct sim *sim)
{
    TALK(sim, "all is well from now on");
    sim->ending = true;
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (sim->closed[i])
            continue;
        hf_faulty_odds(hf_faulty_of(sim->clients[i]), NULL);
        hf_faulty_cut(hf_faulty_of(sim->clients[i]), HF_CUT_NONE);
        sim->world.stopped[i] = 0;
        for (unsigned j = 0; j < CLAIMS_A_CLIENT; j++) {
            struct claim *claim = &sim->claims[i * CLAIMS_A_CLIENT + j];

            if (claim->held)
                unlock(claim);
        }
    }
}

static bool is_quiet(const struct sim *sim)
{
    if (sim->started != sim->answered)
        return false;
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (!sim->closed[i] && !hf_list_empty(&sim->clients[i]->calls))
            return false;
    }
    return true;
}

static bool count_one(const struct hf_info *info, void *arg)
{
    unsigned *count = arg;

    (void)info;
    *count += 1;
    return true;
}

/* Nobody holds anything, and nobody waits. */
static void check_nothing_is_left(struct sim *sim)
{
    struct hf_client *client = hf_world_open(&sim->world);
    struct hf_future *future;
    unsigned count = 0;

    assert_int_equal(hf_list_start(client, hf_key(""), count_one, &count, NULL,
                                   NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&sim->world, future), HF_OK);
    DEMAND(sim, count == 0, "%u keys are still held: a ghost", count);
    DEMAND(sim, hf_world_close(&sim->world, client) == HF_OK,
           "closing an idle client is in doubt");
}

static void end(struct sim *sim)
{
    uint32_t lease = (TTL_MAX_MS + TTL_MAX_MS / 16 + 50) * 52 / 50;
    hf_time until = sim->world.now + lease + ANSWERS_MS;

    heal(sim);
    while (!is_quiet(sim) && hf_world_step(&sim->world, until))
        ;
    DEMAND(sim, sim->started == sim->answered, "%llu calls were not answered",
           (unsigned long long)(sim->started - sim->answered));
    DEMAND(sim, is_quiet(sim), "something is still being asked");
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (!sim->closed[i]) {
            for (unsigned j = 0; j < CLAIMS_A_CLIENT; j++)
                if (sim->claims[i * CLAIMS_A_CLIENT + j].lock)
                    free_handle(&sim->claims[i * CLAIMS_A_CLIENT + j]);
        }
    }
    /* What a closed client held ends with its lease. */
    hf_world_run(&sim->world, hf_time_left(until, sim->world.now) + 1);
    check_nothing_is_left(sim);
    for (unsigned i = 0; i < sim->client_count; i++)
        DEMAND(sim,
               sim->closed[i] ||
                   hf_world_close(&sim->world, sim->clients[i]) == HF_OK,
               "closing an idle client is in doubt");
}

static void check_the_history(struct sim *sim)
{
    const struct history *history = recorder_history(&sim->recorder);
    struct check_report report;

    check_history(history, &report);
    if (report.violation_count == 0)
        return;
    report_text(history, &report, "simulation", stdout);
    (void)fflush(stdout);
    fail();
}

static void draw_trouble(struct sim *sim)
{
    const struct plan *plan = sim->plan;
    struct hf_faulty_odds *odds = &sim->odds;

    if (plan->clocks) {
        sim->world.net.shared_clock = false;
        sim->world.net.rate_ppm = ((int)below(sim, 41) - 20) * 1000;
    }
    if (!plan->network)
        return;
    odds->quick_ms = chance(sim, 70) ? below(sim, 60) : 0;
    odds->slow = chance(sim, 50) ? below(sim, 200) : 0;
    odds->slow_ms = 100 + below(sim, chance(sim, 50) ? 900 : 6000);
    odds->lose = chance(sim, 50) ? below(sim, 200) : 0;
    odds->lose_answer = chance(sim, 50) ? below(sim, 200) : 0;
    odds->refuse = chance(sim, 30) ? below(sim, 200) : 0;
    odds->forget = chance(sim, 30) ? below(sim, 100) : 0;
    odds->repeat = chance(sim, 50) ? below(sim, 300) : 0;
    odds->hide_anchor = chance(sim, 30) ? below(sim, 500) : 0;
    odds->lose_grant = chance(sim, 50) ? below(sim, 400) : 0;
    odds->repeat_grant = chance(sim, 50) ? below(sim, 300) : 0;
    odds->lose_event = chance(sim, 50) ? below(sim, 400) : 0;
}

static void begin(struct sim *sim, uint64_t seed, const struct plan *plan)
{
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->plan = plan;
    sim->talk = getenv("HF_SEED") != NULL;
    hf_random_init(&sim->random, seed * 2 + 12345);
    hf_world_init(&sim->world, seed);
    /* Who misses its turn, because a push was lost or it was stopped itself,
     * goes to the end of the line. */
    recorder_init(&sim->recorder, !plan->network && !plan->stops);
    sim->client_count = 2 + below(sim, CLIENTS_MAX - 1);
    sim->key_count = 1 + below(sim, KEYS_MAX);
    draw_trouble(sim);
    for (unsigned i = 0; i < sim->client_count; i++) {
        sim->clients[i] = hf_world_open(&sim->world);
        hf_faulty_odds(hf_faulty_of(sim->clients[i]), &sim->odds);
        sim->next_action[i] = sim->world.now + below(sim, 100);
    }
    for (unsigned i = 0; i < CLIENTS_MAX * CLAIMS_A_CLIENT; i++) {
        sim->claims[i].sim = sim;
        sim->claims[i].client = i / CLAIMS_A_CLIENT;
    }
    sim->world.observe = observe;
    sim->world.observe_arg = sim;
}

/* Returns the hash of all that happened. */
static uint64_t run_seed(uint64_t seed, const struct plan *plan)
{
    static struct sim sim;

    running = seed;
    begin(&sim, seed, plan);
    run_workload(&sim, 8000);
    end(&sim);
    check_the_history(&sim);
    recorder_fini(&sim.recorder);
    hf_world_fini(&sim.world);
    running = 0;
    return sim.world.trace;
}

/* ---- The cases ----------------------------------------------------------*/

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_seeds(const char *name, uint64_t first, unsigned usual,
                      const struct plan *plan)
{
    uint64_t count = number_from("HF_SEEDS", usual / hf_test_slowness() + 1);
    double began = seconds();

    running_case = name;
    (void)signal(SIGABRT, on_crash);
    (void)signal(SIGSEGV, on_crash);
    if (getenv("HF_SEED")) {
        (void)run_seed(number_from("HF_SEED", 1), plan);
        return;
    }
    for (uint64_t seed = first; seed < first + count; seed++)
        (void)run_seed(seed, plan);
    printf("%llu seeds, %.0f a second\n", (unsigned long long)count,
           (double)count / (seconds() - began));
}

static int say_seed_of_failure(void **state)
{
    (void)state;
    say_seed();
    return 0;
}

static const struct plan quiet = {0};
static const struct plan network = {.network = true};
static const struct plan stops = {.stops = true, .closes = true};
static const struct plan clocks = {.network = true, .clocks = true};
static const struct plan all = {
    .network = true,
    .clocks = true,
    .stops = true,
    .cuts = true,
    .closes = true,
};

static void on_a_quiet_day(void **state)
{
    (void)state;
    run_seeds(__func__, 1, 3000, &quiet);
}

static void over_a_bad_network(void **state)
{
    (void)state;
    run_seeds(__func__, 1000001, 8000, &network);
}

static void with_processes_that_stop(void **state)
{
    (void)state;
    run_seeds(__func__, 2000001, 8000, &stops);
}

static void with_clocks_that_drift(void **state)
{
    (void)state;
    run_seeds(__func__, 3000001, 8000, &clocks);
}

static void with_everything_at_once(void **state)
{
    (void)state;
    run_seeds(__func__, 4000001, 15000, &all);
}

static void a_seed_gives_the_same_trace_twice(void **state)
{
    (void)state;
    running_case = __func__;
    for (uint64_t seed = 5000001; seed < 5000021; seed++)
        assert_true(run_seed(seed, &all) == run_seed(seed, &all));
    assert_true(run_seed(5000001, &all) != run_seed(5000002, &all));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(on_a_quiet_day, say_seed_of_failure),
        cmocka_unit_test_teardown(over_a_bad_network, say_seed_of_failure),
        cmocka_unit_test_teardown(with_processes_that_stop,
                                  say_seed_of_failure),
        cmocka_unit_test_teardown(with_clocks_that_drift, say_seed_of_failure),
        cmocka_unit_test_teardown(with_everything_at_once, say_seed_of_failure),
        cmocka_unit_test_teardown(a_seed_gives_the_same_trace_twice,
                                  say_seed_of_failure),
    };

    return hf_test_main("simulation", cases, HF_TEST_COUNT(cases), 0);
}
