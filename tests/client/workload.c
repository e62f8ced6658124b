/* workload.c - what the clients of a simulation do. */
#include "client/workload.h"

#include <stdlib.h>
#include <string.h>

const char *const sim_keys[KEYS_MAX] = {"a", "b", "c"};

uint32_t sim_below(struct sim *sim, uint32_t bound)
{
    return hf_random_below(&sim->random, bound);
}

bool sim_chance(struct sim *sim, uint32_t percent)
{
    return sim_below(sim, 100) < percent;
}

/* ---- Releasing ----------------------------------------------------------*/

static void drop_future(struct claim *claim)
{
    hf_future_free(claim->future);
    claim->future = NULL;
}

void sim_free_handle(struct claim *claim)
{
    struct hf_lock *lock = claim->lock;

    TRACE(claim->sim, "client %u frees %s", claim->client,
          sim_keys[claim->key]);
    sim_record_background_release(claim);
    claim->lock = NULL;
    claim->granted = claim->held = claim->releasing = claim->claiming = false;
    claim->has_events = claim->adopted = false;
    drop_future(claim);
    hf_lock_free(lock);
}

static void on_unlock_done(enum hf_err err, void *arg)
{
    struct call *call = arg;
    struct claim *claim = call->claim;
    struct sim *sim = call->sim;

    TRACE(sim, "client %u unlocked %s: %s", call->client, sim_keys[claim->key],
          hf_err_name(err));
    REQUIRE(
        sim,
        err == HF_OK || err == HF_EEXPIRED || err == HF_EINDOUBT ||
            err == HF_EUNAVAIL || err == HF_ECLOSED ||
            (call->of_adopted && (err == HF_ENOTOWNER || err == HF_ENOTHELD)),
        "unlock returned %s", hf_err_name(err));
    sim_check_unlock(call, err);
    sim_call_end(call, err, 0);
    claim->releasing = false;
    sim_call_complete(call, err);
    if (claim->lock && !claim->claiming && !claim->held && sim_chance(sim, 70))
        sim_free_handle(claim);
}

void sim_unlock(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct call *call = sim_call_new(sim, claim, claim->client);

    sim_nonce_text(claim->lock, call->nonce);
    call->token = claim->token;
    if (hf_release_start(claim->lock, on_unlock_done, call, NULL)) {
        free(call);
        return;
    }
    TRACE(sim, "client %u unlocks %s %llu", claim->client, sim_keys[claim->key],
          (unsigned long long)claim->token);
    sim_call_started(call);
    call->of_adopted = claim->adopted;
    if (!claim->adopted)
        sim_call_begin(call, HF_OP_UNLOCK, claim->key);
    REQUIRE(sim, !hf_lock_valid_for(claim->lock, 0),
            "the lock is valid after the unlock has started");
    claim->granted = claim->held = false;
    claim->releasing = true;
}

/* ---- Acquiring ----------------------------------------------------------*/

static void note_grant(struct call *call)
{
    struct claim *claim = call->claim;
    struct sim *sim = call->sim;

    claim->token = call->token = hf_lock_token(claim->lock);
    sim_nonce_text(claim->lock, call->nonce);
    claim->held = claim->granted = true;
    claim->grants++;
    claim->count = 0;
    claim->is_counting = true;
    claim->is_updating = false;
    REQUIRE(sim, claim->token > 0, "granted without a token");
    TRACE(sim, "client %u holds %s, token %llu, for %u ms", claim->client,
          sim_keys[claim->key], (unsigned long long)claim->token,
          hf_lock_remaining_ms(claim->lock));
}

static void on_claim_done(enum hf_err err, void *arg)
{
    struct call *call = arg;
    struct claim *claim = call->claim;
    struct sim *sim = call->sim;
    hf_time deadline = 0;

    TRACE(sim, "client %u claimed %s: %s", call->client, sim_keys[claim->key],
          hf_err_name(err));
    REQUIRE(sim,
            err == HF_OK || err == HF_EBUSY || err == HF_ETIMEDOUT ||
                err == HF_EUNAVAIL || err == HF_EINDOUBT ||
                err == HF_ECANCELED || err == HF_ECLOSED,
            "a claim returned %s", hf_err_name(err));
    claim->claiming = false;
    if (!err && claim->lock) {
        note_grant(call);
        deadline = hf_lock_deadline(claim->lock);
        sim_call_end(call, err, deadline);
    } else {
        /* If the call succeeded, the handle was freed after the grant and the
         * token is not known, so record an unknown result. */
        sim_call_end(call, err ? err : HF_ECANCELED, 0);
    }
    if (err && claim->lock && !claim->own_handle)
        claim->lock = NULL;
    sim_call_complete(call, err);
    sim_record_missed_grants(claim);
    drop_future(claim);
    if (claim->granted && (sim->ending || sim_chance(sim, 20)))
        sim_unlock(claim);
    else if (err && claim->lock && (sim->ending || sim_chance(sim, 50)))
        sim_free_handle(claim);
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    struct claim *claim = arg;
    struct sim *sim = claim->sim;

    TRACE(sim, "client %u, %s: event %d", claim->client, sim_keys[claim->key],
          (int)event);
    REQUIRE(sim, claim->has_events, "an event for a handle that was freed");
    REQUIRE(sim, !(claim->events & (1u << event)), "event %d is reported twice",
            (int)event);
    claim->events |= 1u << event;
    if (event == HF_LOCK_EVENT_LOST) {
        REQUIRE(sim, !hf_lock_valid_for(lock, 0), "LOST, and still valid");
        REQUIRE(sim, claim->held || claim->claiming, "LOST, and was not held");
        hf_recorder_lost(&sim->recorder, claim->client + 1,
                         sim_keys[claim->key], strlen(sim_keys[claim->key]),
                         hf_lock_token(lock), sim_now(sim));
    } else {
        sim_check_lost_first(sim, claim->client);
    }
    if (event == HF_LOCK_EVENT_WAITING && claim->claiming)
        hf_recorder_queued(&sim->recorder, claim->lock_op, sim_now(sim));
    if (event == HF_LOCK_EVENT_LOST && claim->lock && claim->held) {
        if (sim_chance(sim, 30))
            sim_free_handle(claim);
        else if (sim_chance(sim, 50))
            sim_unlock(claim);
    }
}

static void draw_options(struct claim *claim, struct hf_lock_opts *opts)
{
    struct sim *sim = claim->sim;
    static const uint32_t ttls[] = {100, 300, 1000, TTL_MAX_MS};

    hf_lock_opts_init(opts);
    opts->ttl_ms = 40 + sim_below(sim, ttls[sim_below(sim, 4)] - 39);
    opts->timeout_ms = 100 + sim_below(sim, TIMEOUT_MAX_MS - 100);
    opts->wait_ms = sim_chance(sim, 25)   ? 0
                    : sim_chance(sim, 15) ? HF_FOREVER
                                          : 1 + sim_below(sim, 3000);
    opts->renew = sim_chance(sim, 50);
    if (opts->renew && sim_chance(sim, 20))
        opts->renew_ms = sim_below(sim, opts->ttl_ms);
    claim->lease_ms = opts->ttl_ms;
    claim->has_events = sim_chance(sim, 80);
    if (claim->has_events) {
        opts->on_event = on_event;
        opts->arg = claim;
    }
}

static void start_claim(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct hf_client *client = sim->clients[claim->client];
    struct call *call = sim_call_new(sim, claim, claim->client);
    struct hf_lock_opts opts;
    enum hf_err err = HF_OK;

    if (!claim->lock) {
        claim->key = sim_below(sim, sim->key_count);
        draw_options(claim, &opts);
        claim->own_handle = sim_chance(sim, 50);
        opts.idle = claim->own_handle;
        if (claim->own_handle)
            err = hf_lock_new(client, hf_key_of(sim_keys[claim->key]), &opts,
                              &claim->lock);
        assert_int_equal(err, HF_OK);
    }
    if (claim->lock) {
        claim->own_handle = true;
        sim_record_background_release(claim);
    }
    if (claim->lock)
        err = hf_lock_acquire_start(claim->lock, on_claim_done, call,
                                    &claim->future);
    else
        err =
            hf_acquire_start(client, hf_key_of(sim_keys[claim->key]), &opts,
                             &claim->lock, on_claim_done, call, &claim->future);
    if (err) {
        assert_int_equal(err, HF_ESTATE);
        free(call);
        return;
    }
    TRACE(sim, "client %u claims %s", claim->client, sim_keys[claim->key]);
    claim->claiming = true;
    claim->held = claim->granted = claim->adopted = false;
    claim->events = 0;
    sim_call_started(call);
    sim_call_begin(call, HF_OP_LOCK, claim->key);
    claim->lock_op = call->op;
    claim->claimed_at = sim->world.now;
}

/* ---- Other calls --------------------------------------------------------*/

static void on_renew_done(enum hf_err err, void *arg);

/* Adjust claim->count to the result of an UPDATE. If the server executed an
 * UPDATE twice, the second execution would not find the expected value and
 * would return HF_EMISMATCH, which on_renew_done() does not accept. */
static void count_update(struct call *call, enum hf_err err)
{
    struct claim *claim = call->claim;

    if (call->grant == 0 || call->grant != claim->grants)
        return;
    claim->is_updating = false;
    claim->is_counting = err == HF_OK || err == HF_EUNAVAIL;
    claim->count += err == HF_OK;
}

static enum hf_err start_update(struct claim *claim, struct call *call)
{
    char expected[12] = "", value[12];
    struct hf_bytes bytes;
    enum hf_err err;

    if (claim->adopted || !claim->is_counting)
        return hf_update_start(claim->lock, NULL, hf_bytes_of("v"),
                               on_renew_done, call, NULL);
    if (claim->count > 0)
        (void)snprintf(expected, sizeof(expected), "%u", claim->count);
    (void)snprintf(value, sizeof(value), "%u", claim->count + 1);
    bytes = hf_bytes_of(expected);
    err = hf_update_start(claim->lock, &bytes, hf_bytes_of(value),
                          on_renew_done, call, NULL);
    if (!err) {
        claim->is_updating = true;
        call->grant = claim->grants;
    }
    return err;
}

static void on_renew_done(enum hf_err err, void *arg)
{
    struct call *call = arg;

    count_update(call, err);
    REQUIRE(
        call->sim,
        err == HF_OK || err == HF_EEXPIRED || err == HF_EFORCED ||
            err == HF_EINDOUBT || err == HF_EUNAVAIL || err == HF_ECLOSED ||
            (call->of_adopted && (err == HF_ENOTOWNER || err == HF_ENOTHELD)),
        "renew or update returned %s", hf_err_name(err));
    TRACE(call->sim, "client %u renewed %s: %s", call->client,
          sim_keys[call->claim->key], hf_err_name(err));
    /* The handle may have been granted again since, so its deadline counts only
     * if the token is still the same. */
    sim_call_end(call, err,
                 call->claim->lock && call->claim->granted &&
                         call->claim->token == call->token
                     ? hf_lock_deadline(call->claim->lock)
                     : 0);
    sim_call_complete(call, err);
}

static void renew_or_update(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct call *call = sim_call_new(sim, claim, claim->client);
    bool update = sim_chance(sim, 40) && !claim->is_updating;
    uint32_t ttl_ms =
        sim_chance(sim, 50) ? 0 : 40 + sim_below(sim, TTL_MAX_MS - 40);
    enum hf_err err;

    sim_nonce_text(claim->lock, call->nonce);
    call->token = claim->token;
    if (update)
        err = start_update(claim, call);
    else
        err = hf_renew_start(claim->lock, ttl_ms, on_renew_done, call, NULL);
    if (err) {
        assert_true(err == HF_ESTATE || err == HF_EEXPIRED);
        free(call);
        return;
    }
    sim_call_started(call);
    call->of_adopted = claim->adopted;
    if (!claim->adopted)
        sim_call_begin(call, update ? HF_OP_UPDATE : HF_OP_RENEW, claim->key);
}

static void on_read_done(enum hf_err err, void *arg)
{
    struct call *call = arg;
    struct sim *sim = call->sim;

    REQUIRE(sim,
            err == HF_OK || err == HF_ETIMEDOUT || err == HF_EINDOUBT ||
                err == HF_EUNAVAIL || err == HF_ECANCELED || err == HF_ECLOSED,
            "read or wait returned %s", hf_err_name(err));
    if (!err && call->info.held)
        call->token = call->info.token;
    sim_call_end(call, err, 0);
    hf_info_fini(&call->info);
    sim_call_complete(call, err);
}

static void read_or_wait(struct sim *sim, unsigned number)
{
    struct call *call = sim_call_new(sim, NULL, number);
    unsigned key = sim_below(sim, sim->key_count);
    struct hf_client *client = sim->clients[number];
    uint32_t wait_ms = sim_below(sim, 2000);
    unsigned kind = sim_below(sim, 4);
    enum hf_err err;

    if (kind == 0)
        err = hf_wait_held_start(client, hf_key_of(sim_keys[key]), wait_ms,
                                 &call->info, on_read_done, call, NULL);
    else if (kind == 1)
        err = hf_wait_free_start(client, hf_key_of(sim_keys[key]), wait_ms,
                                 &call->freed, on_read_done, call, NULL);
    else
        err = hf_read_start(client, hf_key_of(sim_keys[key]), HF_LINEARIZABLE,
                            &call->info, on_read_done, call, NULL);
    assert_int_equal(err, HF_OK);
    sim_call_started(call);
    if (kind > 1)
        sim_call_begin(call, HF_OP_READ, key);
}

static void on_force_done(enum hf_err err, void *arg)
{
    sim_call_complete(arg, err);
}

/* Break the lock without `now`: it ends when its lease expires, so all
 * invariants still hold. */
static void force_lock(struct claim *claim)
{
    struct sim *sim = claim->sim;
    struct call *call = sim_call_new(sim, NULL, claim->client);

    assert_int_equal(hf_force_start(sim->clients[claim->client],
                                    hf_key_of(sim_keys[claim->key]),
                                    claim->token, false, on_force_done, call,
                                    NULL),
                     HF_OK);
    sim_call_started(call);
}

/* ---- Transferring a lock to another client ------------------------------*/

static struct claim *find_unused_claim(struct sim *sim, unsigned client)
{
    for (unsigned i = 0; i < CLAIMS_PER_CLIENT; i++) {
        struct claim *claim = &sim->claims[client * CLAIMS_PER_CLIENT + i];

        if (!sim->closed[client] && !claim->lock && !claim->claiming &&
            claim->open == 0)
            return claim;
    }
    return NULL;
}

/* Detach the lock, and let another client adopt it. The history records this as
 * a release without a result, because the adopter may release it at any
 * time. */
static void transfer_lock(struct claim *from)
{
    struct sim *sim = from->sim;
    unsigned client = (from->client + 1) % sim->client_count;
    struct claim *to = find_unused_claim(sim, client);
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock_opts opts;

    if (!to || from->adopted || from->is_updating ||
        hf_lock_state(from->lock) != HF_LOCK_HELD)
        return;
    hf_lock_nonce(from->lock, nonce);
    to->key = from->key;
    draw_options(to, &opts);
    to->has_events = false;
    opts.on_event = NULL;
    assert_int_equal(hf_lock_adopt(sim->clients[client],
                                   hf_key_of(sim_keys[to->key]), nonce,
                                   from->token, &opts, &to->lock),
                     HF_OK);
    to->token = from->token;
    to->held = to->own_handle = to->adopted = true;
    sim_record_background_release(from);
    assert_int_equal(hf_lock_detach(from->lock), HF_OK);
    REQUIRE(sim, !hf_lock_valid_for(from->lock, 0),
            "the lock is valid after it was detached");
    from->granted = from->held = false;
    from->own_handle = true;
    TRACE(sim, "client %u transfers %s to client %u", from->client,
          sim_keys[from->key], client);
    renew_or_update(to);
}

/* ---- Random actions -----------------------------------------------------*/

static void act_on_claim(struct claim *claim)
{
    struct sim *sim = claim->sim;

    if (claim->claiming) {
        if (claim->future && sim_chance(sim, 10)) {
            TRACE(sim, "client %u cancels %s", claim->client,
                  sim_keys[claim->key]);
            hf_future_cancel(claim->future);
        } else if (claim->own_handle && sim_chance(sim, 5)) {
            sim_free_handle(claim);
        }
    } else if (claim->held) {
        if (sim_chance(sim, 40))
            sim_unlock(claim);
        else if (sim_chance(sim, 60))
            renew_or_update(claim);
        else if (sim->plan->transfers && sim_chance(sim, 30))
            transfer_lock(claim);
        else if (sim_chance(sim, 10))
            force_lock(claim);
        else if (sim_chance(sim, 10))
            sim_free_handle(claim);
        else if (!hf_lock_valid_for(claim->lock, 0) && sim_chance(sim, 30))
            start_claim(claim); /* claim again after a loss */
    } else if (!claim->releasing && claim->open == 0) {
        start_claim(claim);
    } else if (claim->releasing && claim->lock && sim_chance(sim, 5)) {
        sim_free_handle(claim);
    }
}

static void act_as_client(struct sim *sim, unsigned client)
{
    sim->next_action[client] = sim->world.now + 1 + sim_below(sim, 200);
    if (sim->closed[client] || sim_is_stopped(sim, client))
        return;
    if (sim_chance(sim, 8))
        read_or_wait(sim, client);
    else
        act_on_claim(&sim->claims[client * CLAIMS_PER_CLIENT +
                                  sim_below(sim, CLAIMS_PER_CLIENT)]);
    sim_inject_fault(sim, client);
}

void sim_run(struct sim *sim, uint32_t ms)
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
        act_as_client(sim, first);
        sim_observe(&sim->world, sim);
    }
}
