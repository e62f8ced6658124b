/* An updater is another process that knows the nonce and the token of claim A:
 * it compares the value of the key and sets a new one. The lease stays as it
 * is. The steps are those of a repair, and three rules keep the value
 * linearizable, whatever the other updater does:
 *
 *   1. A ballot belongs to one process, so the two never share one.
 *   2. The value that was compared is that of the highest ballot. It may be on
 *      one master only. So a failed compare is committed, too, with the value
 *      as it is, before it is reported.
 *   3. A process that has sent COMMIT, has no majority of OKs, and finds a
 *      higher ballot than its own, cannot know whether its value was replaced
 *      or never seen: the update is in doubt, and is not compared again. */
#include "client.h"

#include "bounds.h"
#include "invariants.h"
#include "mutants.h"
#include "value.h"

#include <string.h>

/* ---- steps -------------------------------------------------------------- */

static void begin_ballot(struct hf_steps *steps, uint8_t c, uint8_t number,
                         enum hf_update update)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = UPDATE_PREPARING;
    client->update = (uint8_t)update;
    client->value_seen = next->value_observed;
    client->token = next->clients[0].token;
    client->number = number;
    client->ballots++;
    hf_client_send(next, c, PREPARE);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_UPDATE_PREPARE,
                                          .client = c,
                                          .number = client->number});
}

/* The first ballot is above the token, which the updater knows. */
static void begin_update(struct hf_steps *steps, uint8_t c,
                         enum hf_update update)
{
    uint8_t token = steps->from->clients[0].token;

    for (unsigned i = 1; i <= hf_bounds.first_numbers[c]; i++)
        begin_ballot(steps, c, (uint8_t)(token + i), update);
}

static void retry_update(struct hf_steps *steps, uint8_t c)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];
    uint8_t number = hf_client_next_number(client);

    if (client->ballots == hf_bounds.ballots[c] || number > NUMBER_MAX)
        return;
    client->phase = UPDATE_PREPARING;
    client->number = number;
    client->ballots++;
    hf_client_send(next, c, PREPARE);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_UPDATE_PREPARE,
                                          .client = c,
                                          .number = number});
}

static void commit_value(struct hf_steps *steps, uint8_t c, uint8_t value,
                         hf_send send)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = UPDATE_COMMITTING;
    client->value = value;
    client->sends = send;
    hf_client_send(next, c, COMMIT);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_UPDATE_COMMIT,
                                          .client = c,
                                          .number = client->number,
                                          .value = value});
}

static void finish_update(struct hf_steps *steps, uint8_t c, uint8_t value)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = UPDATED;
    memset(client->answers, 0, sizeof client->answers);
    hf_invariants_on_value(next, value, client->value_seen);
    hf_steps_take(
        steps,
        (struct hf_step){.kind = STEP_UPDATED, .client = c, .value = value});
}

static void end_in_doubt(struct hf_steps *steps, uint8_t c)
{
    struct hf_client *client = &hf_steps_begin(steps)->clients[c];

    client->phase = UPDATED;
    memset(client->answers, 0, sizeof client->answers);
    hf_steps_take(steps,
                  (struct hf_step){.kind = STEP_UPDATE_IN_DOUBT, .client = c});
}

/* ---- phases ------------------------------------------------------------- */

/* The longest deadline of a copy that a master in `set` has reported. */
static hf_send longest_lease(const struct hf_client *client, hf_set set)
{
    hf_send longest = 0;

    for (unsigned i = 0; i < MASTERS; i++) {
        const struct hf_report *report = &client->answers[i].report;

        if (!contains(set, i))
            continue;
        if (report->lease.state == LEASE_HELD && report->lease.claim == 0 &&
            report->lease.send > longest)
            longest = report->lease.send;
        if (report->vote.claim == 0 && report->vote.send > longest)
            longest = report->vote.send;
    }
    return longest;
}

/* Returns true if this process has sent COMMIT before, and finds a ballot that
 * is higher than its own. */
static bool is_in_doubt(const struct hf_client *client,
                        struct hf_verdict current)
{
    return client->ballot_max > 0 && current.ballot > client->ballot_max &&
           !is_mutant(UPDATE_REPEATED_IN_DOUBT);
}

/* A majority has promised the ballot, and its verdict is claim A. */
static void compare_value(struct hf_steps *steps, uint8_t c,
                          struct hf_verdict current, hf_send send)
{
    const struct hf_client *client = &steps->from->clients[c];
    bool is_own =
        client->ballot_max > 0 && current.ballot == client->ballot_max;
    bool matches = hf_value_matches(current.value, client->update);
    uint8_t value = current.value;

    if (is_in_doubt(client, current)) {
        end_in_doubt(steps, c);
        return;
    }
    if (is_mutant(FAILED_COMPARE_NOT_CONFIRMED) && !is_own && !matches) {
        finish_update(steps, c, value);
        return;
    }
    if (!is_own && matches)
        value = (uint8_t)hf_value_apply(current.value, client->update);
    commit_value(steps, c, value, send);
}

static void continue_preparing(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];
    struct hf_verdict verdict;
    hf_set set = 0;

    while ((set = hf_client_next_majority(client, set, NOBODY, &verdict)) != 0)
        if (verdict.claim == 0 && verdict.token == client->token)
            compare_value(steps, c, verdict, longest_lease(client, set));
}

void hf_updater_steps(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];
    const struct hf_client *holder = &steps->from->clients[0];

    switch (client->phase) {
    case IDLE:
        if (holder->phase < HOLDING || holder->phase >= ENDING)
            return;
        if (c == hf_bounds.claims) {
            begin_update(steps, c, UPDATE_P);
        } else {
            begin_update(steps, c, UPDATE_Q);
            begin_update(steps, c, UPDATE_R);
        }
        return;
    case UPDATE_PREPARING:
        continue_preparing(steps, c);
        break;
    case UPDATE_COMMITTING:
        if (hf_client_count_positive(client) >= MAJORITY)
            finish_update(steps, c, client->value);
        break;
    default:
        return;
    }
    retry_update(steps, c);
}
