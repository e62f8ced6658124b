#include "steps.h"

#include "bounds.h"
#include "client.h"
#include "invariants.h"
#include "master.h"
#include "mutants.h"
#include "reader.h"

#include <string.h>

struct hf_state *hf_steps_begin(struct hf_steps *steps)
{
    steps->next = *steps->from;
    return &steps->next;
}

void hf_steps_take(struct hf_steps *steps, struct hf_step step)
{
    if (memcmp(&steps->next, steps->from, sizeof steps->next) == 0)
        return;
    if (steps->next.reader.reading)
        hf_reader_on_step(steps->from, &steps->next);
    steps->take(steps->context, &steps->next, &step);
}

/* ---- the network -------------------------------------------------------- */

static void deliver(struct hf_steps *steps, uint8_t i,
                    const struct hf_message *message, bool answer_lost)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_master *master = &next->masters[i];
    bool positive = hf_master_receive(master, message);

    hf_client_receive(&next->clients[message->client], i, message,
                      positive && !answer_lost, master);
    hf_steps_take(steps, (struct hf_step){
                             .kind = answer_lost ? STEP_DELIVER_ANSWER_LOST
                                                 : STEP_DELIVER,
                             .master = i,
                             .message = *message,
                         });
}

static void deliver_all(struct hf_steps *steps, uint8_t i)
{
    const struct hf_state *from = steps->from;

    for (unsigned at = 0; at < from->message_count; at++) {
        const struct hf_message *message = &from->messages[at];
        const struct hf_client *client = &from->clients[message->client];

        deliver(steps, i, message, false);
        /* A promise that is repeated brings a new report. A client that
         * never receives it keeps the old one. */
        if (message->type == PREPARE && client->answers[i].positive)
            deliver(steps, i, message, true);
    }
}

/* ---- time --------------------------------------------------------------- */

/* The validity from the next send of the client ends. */
static void lapse(struct hf_steps *steps, uint8_t c)
{
    struct hf_client *client = &hf_steps_begin(steps)->clients[c];

    if (hf_bounds.no_time || client->lapsed == client->sends)
        return;
    client->lapsed++;
    hf_steps_take(steps, (struct hf_step){
                             .kind = STEP_LAPSE,
                             .client = c,
                             .number = client->lapsed,
                         });
}

static bool has_lapsed(const struct hf_state *state, uint8_t claim,
                       hf_send send)
{
    return send <= state->clients[claim].lapsed;
}

static void expire(struct hf_steps *steps, uint8_t i)
{
    const struct hf_master *master = &steps->from->masters[i];
    const struct hf_lease *lease = &master->lease;
    const struct hf_vote *vote = &master->vote;

    if (is_held(master) && has_lapsed(steps->from, lease->claim, lease->send)) {
        hf_master_expire_lease(&hf_steps_begin(steps)->masters[i]);
        hf_steps_take(steps, (struct hf_step){.kind = STEP_EXPIRE_LEASE,
                                              .client = lease->claim,
                                              .master = i});
    }
    if (has_vote(master) && (has_lapsed(steps->from, vote->claim, vote->send) ||
                             is_mutant(VOTE_DROPPED_EARLY))) {
        hf_master_expire_vote(&hf_steps_begin(steps)->masters[i]);
        hf_steps_take(steps, (struct hf_step){.kind = STEP_EXPIRE_VOTE,
                                              .client = vote->claim,
                                              .master = i});
    }
}

/* A promise has no deadline; this is a mistake. */
static void expire_promise(struct hf_steps *steps, uint8_t i)
{
    struct hf_master *master = &hf_steps_begin(steps)->masters[i];

    if (!is_mutant(PROMISE_TIMES_OUT) ||
        master->promise.number <= master->lease.ballot)
        return;
    master->promise = (struct hf_promise){master->lease.ballot, NOBODY};
    hf_steps_take(steps,
                  (struct hf_step){.kind = STEP_EXPIRE_PROMISE, .master = i});
}

/* ---- failures ----------------------------------------------------------- */

/* Remember the sends before this moment. */
static void note_sends(const struct hf_state *state, struct hf_master *master)
{
    for (unsigned c = 0; c < hf_bounds.claims; c++)
        master->since[c] = state->clients[c].sends;
}

/* Returns true if the sends before the noted moment have lapsed: the longest
 * lease has passed since then. */
static bool has_waited(const struct hf_state *state, uint8_t i)
{
    for (uint8_t c = 0; c < hf_bounds.claims; c++)
        if (!has_lapsed(state, c, state->masters[i].since[c]))
            return false;
    return true;
}

static void become_idle(struct hf_steps *steps, uint8_t i)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_master *master = &next->masters[i];

    if (next->drops == hf_bounds.drops || master->idle || is_held(master) ||
        has_vote(master))
        return;
    master->idle = true;
    note_sends(next, master);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_IDLE, .master = i});
}

static void drop_record(struct hf_steps *steps, uint8_t i)
{
    struct hf_state *next = hf_steps_begin(steps);

    if (next->drops == hf_bounds.drops || !next->masters[i].idle)
        return;
    if (!has_waited(next, i) && !is_mutant(DROPPED_EARLY))
        return;
    hf_master_drop_record(&next->masters[i]);
    next->drops++;
    hf_steps_take(steps, (struct hf_step){.kind = STEP_DROP, .master = i});
}

static void restart(struct hf_steps *steps, uint8_t i)
{
    struct hf_state *next = hf_steps_begin(steps);

    if (next->restarts == hf_bounds.restarts)
        return;
    hf_master_restart(&next->masters[i]);
    note_sends(next, &next->masters[i]);
    next->restarts++;
    hf_steps_take(steps, (struct hf_step){.kind = STEP_RESTART, .master = i});
}

static void wake(struct hf_steps *steps, uint8_t i)
{
    if (!has_waited(steps->from, i) && !is_mutant(NO_QUIET_PERIOD))
        return;
    hf_master_wake(&hf_steps_begin(steps)->masters[i]);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_WAKE, .master = i});
}

/* ---- all of them -------------------------------------------------------- */

void hf_steps_generate(struct hf_steps *steps)
{
    for (uint8_t c = 0; c < client_count(); c++)
        hf_client_steps(steps, c);
    for (uint8_t c = 0; c < hf_bounds.claims; c++)
        lapse(steps, c);
    if (hf_bounds.reads > 0)
        hf_reader_steps(steps);
    for (uint8_t i = 0; i < MASTERS; i++) {
        if (steps->from->masters[i].quiet) {
            wake(steps, i);
            continue;
        }
        deliver_all(steps, i);
        expire(steps, i);
        expire_promise(steps, i);
        become_idle(steps, i);
        drop_record(steps, i);
        restart(steps, i);
    }
}
