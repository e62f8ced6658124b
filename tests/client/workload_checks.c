/* workload_checks.c - the invariants of a simulation. */
#include "client/workload.h"

#include "base/hex.h"
#include "hf-check/check.h"
#include "hf-check/report.h"

/* ---- After every turn ---------------------------------------------------*/

/* Returns true if the lock is lost, has an event callback, and LOST is not
 * reported yet. */
static bool is_unreported_loss(const struct claim *claim)
{
    return claim->granted && claim->has_events && !claim->releasing &&
           !hf_lock_valid_for(claim->lock, 0) &&
           !(claim->events & (1u << HF_LOCK_EVENT_LOST));
}

void sim_check_lost_first(struct sim *sim, unsigned client)
{
    for (unsigned i = 0; i < CLAIMS_PER_CLIENT; i++)
        REQUIRE(
            sim,
            !is_unreported_loss(&sim->claims[client * CLAIMS_PER_CLIENT + i]),
            "client %u gets another callback before LOST", client);
}

void sim_observe(struct hf_world *world, void *arg)
{
    struct sim *sim = arg;
    const struct claim *holder[KEYS_MAX] = {0};

    (void)world;
    for (unsigned i = 0; i < CLIENTS_MAX * CLAIMS_PER_CLIENT; i++) {
        struct claim *claim = &sim->claims[i];

        if (!claim->lock)
            continue;
        if (hf_lock_valid_for(claim->lock, 0)) {
            REQUIRE(sim, !holder[claim->key] || sim->plan->loses_data,
                    "clients %u and %u both hold '%s' (tokens %llu, %llu)",
                    holder[claim->key]->client, claim->client,
                    sim_keys[claim->key],
                    (unsigned long long)holder[claim->key]->token,
                    (unsigned long long)hf_lock_token(claim->lock));
            holder[claim->key] = claim;
        } else if (!sim_is_stopped(sim, claim->client) &&
                   !sim->closed[claim->client] &&
                   hf_loop_next_timer(sim->clients[claim->client]) >
                       sim->world.now) {
            REQUIRE(sim,
                    !is_unreported_loss(claim) ||
                        !hf_dlist_is_empty(
                            &sim->clients[claim->client]->loop.callbacks),
                    "client %u lost '%s', and LOST was not reported",
                    claim->client, sim_keys[claim->key]);
        }
    }
}

void sim_check_unlock(const struct call *call, enum hf_err err)
{
    uint8_t nonce[HF_NONCE_SIZE];

    REQUIRE(call->sim, hf_hex_decode(nonce, sizeof(nonce), call->nonce),
            "client %u: an unlock without a nonce", call->client);
    REQUIRE(call->sim,
            err != HF_OK || hf_faulty_has_ended(&call->sim->world.net, nonce),
            "client %u: an unlock returned HF_OK that the server has not "
            "executed",
            call->client);
}

/* ---- At the end ---------------------------------------------------------*/

#define ORPHANS_MAX 20

static bool count_one(const struct hf_info *info, void *arg)
{
    unsigned *count = arg;

    (void)info;
    *count += 1;
    return true;
}

static unsigned count_held(struct sim *sim, struct hf_client *client)
{
    struct hf_future *future;
    unsigned count = 0;

    assert_int_equal(hf_list_start(client, hf_key_of(""), count_one, &count,
                                   NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&sim->world, future), HF_OK);
    return count;
}

/* A server that loses its data forgets that a claim was canceled, too. A LOCK
 * that it receives later may then be queued, or granted, for a client that does
 * not know about it. Such claims end one after another with their leases. */
void sim_check_nothing_is_left(struct sim *sim)
{
    struct hf_client *client = hf_world_open(&sim->world);
    unsigned rounds = sim->plan->loses_data ? ORPHANS_MAX : 0;
    unsigned count = count_held(sim, client);

    for (; count > 0 && rounds > 0; rounds--) {
        hf_world_run(&sim->world, 2 * TTL_MAX_MS);
        count = count_held(sim, client);
    }
    REQUIRE(sim, count == 0, "%u keys are still held at the end", count);
    REQUIRE(sim, hf_world_close(&sim->world, client) == HF_OK,
            "the close of an idle client is in doubt");
}

void sim_check_history(struct sim *sim)
{
    const struct hf_check_history *history =
        hf_recorder_history(&sim->recorder);
    struct hf_check_report report;

    if (sim->plan->loses_data)
        return;
    hf_check_run(history, &report);
    if (report.violation_count == 0)
        return;
    hf_report_text(history, &report, "simulation", stdout);
    (void)fflush(stdout);
    fail();
}
