/* workload_faults.c - the faults of a simulation. */
#include "client/workload.h"

#include <stdio.h>

void sim_draw_faults(struct sim *sim)
{
    const struct plan *plan = sim->plan;
    struct hf_faulty_odds *odds = &sim->odds;

    if (plan->clocks) {
        sim->world.net.shared_clock = false;
        sim->world.net.rate_ppm = ((int)sim_below(sim, 41) - 20) * 1000;
    }
    if (plan->sessions)
        odds->close_session = sim_below(sim, 80);
    if (!plan->network)
        return;
    odds->quick_ms = sim_chance(sim, 70) ? sim_below(sim, 60) : 0;
    odds->slow = sim_chance(sim, 50) ? sim_below(sim, 200) : 0;
    odds->slow_ms =
        100 + sim_below(sim, sim_chance(sim, 50) ? 900 : SLOW_MS - 100);
    odds->lose = sim_chance(sim, 50) ? sim_below(sim, 200) : 0;
    odds->lose_answer = sim_chance(sim, 50) ? sim_below(sim, 200) : 0;
    odds->refuse = sim_chance(sim, 30) ? sim_below(sim, 200) : 0;
    odds->forget = sim_chance(sim, 30) ? sim_below(sim, 100) : 0;
    odds->repeat = sim_chance(sim, 50) ? sim_below(sim, 300) : 0;
    odds->strand = sim_chance(sim, 30) ? sim_below(sim, 200) : 0;
    odds->hide_anchor = sim_chance(sim, 30) ? sim_below(sim, 500) : 0;
    odds->stale = sim_chance(sim, 50) ? sim_below(sim, 400) : 0;
    odds->lose_grant = sim_chance(sim, 50) ? sim_below(sim, 400) : 0;
    odds->repeat_grant = sim_chance(sim, 50) ? sim_below(sim, 300) : 0;
    odds->lose_event = sim_chance(sim, 50) ? sim_below(sim, 400) : 0;
}

bool sim_is_stopped(const struct sim *sim, unsigned client)
{
    return sim->world.stopped[client] > sim->world.now;
}

static void close_client(struct sim *sim, unsigned client)
{
    TRACE(sim, "client %u closes", client);
    sim->closed[client] = true;
    hf_recorder_death(&sim->recorder, client + 1, sim_now(sim));
    for (unsigned i = 0; i < CLAIMS_PER_CLIENT; i++)
        sim->claims[client * CLAIMS_PER_CLIENT + i].has_events = false;
    (void)hf_world_close(&sim->world, sim->clients[client]);
    for (unsigned i = 0; i < CLAIMS_PER_CLIENT; i++) {
        struct claim *claim = &sim->claims[client * CLAIMS_PER_CLIENT + i];

        REQUIRE(sim, claim->open == 0, "hf_close() did not complete a call");
        if (claim->lock)
            sim_free_handle(claim);
    }
}

void sim_inject_fault(struct sim *sim, unsigned client)
{
    const struct plan *plan = sim->plan;
    struct hf_faulty *faulty = hf_faulty_of(sim->clients[client]);

    if (plan->stops && sim_chance(sim, 4)) {
        uint32_t ms = 1 + sim_below(sim, 2 * TTL_MAX_MS);

        TRACE(sim, "client %u is stopped for %u ms", client, ms);
        hf_world_stop(&sim->world, sim->clients[client], ms);
    }
    if (plan->cuts && sim_chance(sim, 6)) {
        TRACE(sim, "client %u: the network changes", client);
        hf_faulty_cut(faulty, sim_chance(sim, 60)
                                  ? HF_CUT_NONE
                                  : (enum hf_faulty_cut)sim_below(
                                        sim, HF_CUT_ANSWERS + 1));
    }
    if (plan->sessions && sim_chance(sim, 3)) {
        TRACE(sim, "client %u: its session is closed", client);
        hf_faulty_close_session(faulty);
    }
    if (plan->closes && sim_chance(sim, 1))
        close_client(sim, client);
    if (plan->loses_data && sim_chance(sim, 1)) {
        TRACE(sim, "the server loses its data");
        hf_faulty_forget(&sim->world.net);
    }
}

void sim_heal(struct sim *sim)
{
    TRACE(sim, "all faults end");
    sim->ending = true;
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (sim->closed[i])
            continue;
        hf_faulty_odds(hf_faulty_of(sim->clients[i]), NULL);
        hf_faulty_cut(hf_faulty_of(sim->clients[i]), HF_CUT_NONE);
        sim->world.stopped[i] = 0;
        for (unsigned j = 0; j < CLAIMS_PER_CLIENT; j++) {
            struct claim *claim = &sim->claims[i * CLAIMS_PER_CLIENT + j];

            if (claim->held)
                sim_unlock(claim);
        }
    }
}
