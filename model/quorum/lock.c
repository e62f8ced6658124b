#include "client.h"

#include "bounds.h"
#include "invariants.h"
#include "mutants.h"

#include <string.h>

/* ---- steps -------------------------------------------------------------- */

static void ask(struct hf_steps *steps, uint8_t c, uint8_t number, bool slow)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = ASKING;
    client->number = number;
    client->token = number;
    client->slow = slow;
    client->ballots++;
    hf_client_send(next, c, ASK);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_ASK,
                                          .client = c,
                                          .number = number,
                                          .slow = slow});
}

static void prepare(struct hf_steps *steps, uint8_t c)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = PREPARING;
    client->number = hf_client_next_number(client);
    client->ballots++;
    hf_client_send(next, c, PREPARE);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_PREPARE,
                                          .client = c,
                                          .number = client->number});
}

/* The token of a new grant is the number of the ballot that grants it. */
static void commit(struct hf_steps *steps, uint8_t c)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = COMMITTING;
    client->token = client->number;
    hf_client_send(next, c, COMMIT);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_COMMIT,
                                          .client = c,
                                          .number = client->number});
}

/* Hold the key. Validity counts from the last send that carried a lease; if
 * that has lapsed, the answers came too late. */
static void hold(struct hf_steps *steps, uint8_t c, enum hf_step_kind kind)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    if (client->lapsed == client->sends)
        return;
    client->phase = HOLDING;
    client->valid_send = client->sends;
    if (is_mutant(VALID_FROM_ANSWER))
        client->valid_send++;
    if (client->number > client->ballot_max)
        client->ballot_max = client->number;
    memset(client->answers, 0, sizeof client->answers);
    hf_invariants_on_grant(next, c);
    hf_steps_take(steps, (struct hf_step){.kind = (uint8_t)kind,
                                          .client = c,
                                          .number = client->token});
}

/* ---- phases ------------------------------------------------------------- */

static void begin_lock(struct hf_steps *steps, uint8_t c)
{
    for (uint8_t number = 1; number <= hf_bounds.first_numbers[c]; number++) {
        ask(steps, c, number, false);
        if (hf_bounds.slow)
            ask(steps, c, number, true);
    }
}

static void continue_asking(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];
    unsigned votes = hf_client_count_positive(client);
    unsigned fast_quorum =
        is_mutant(HELD_BELOW_FAST_QUORUM) ? FAST_QUORUM - 1 : FAST_QUORUM;
    unsigned majority = is_mutant(COMMIT_AFTER_ONE_VOTE) ? 1 : MAJORITY;
    bool fast = !client->slow || is_mutant(SLOW_VOTES_HELD_AS_FAST);

    if (fast && !hf_bounds.no_fast && votes >= fast_quorum)
        hold(steps, c, STEP_HOLD_BY_VOTES);
    if (votes >= majority)
        commit(steps, c);
}

/* A claim may commit if no other claim holds the key. It may find itself: its
 * earlier COMMIT has reached some masters. */
static void continue_preparing(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];
    struct hf_verdict verdict;
    hf_set set = 0;

    while ((set = hf_client_next_majority(client, set, c, &verdict)) != 0)
        if (verdict.claim == NOBODY || verdict.claim == c) {
            commit(steps, c);
            return;
        }
}

static void continue_committing(struct hf_steps *steps, uint8_t c)
{
    unsigned majority =
        is_mutant(HELD_BELOW_MAJORITY) ? MAJORITY - 1 : MAJORITY;

    if (hf_client_count_positive(&steps->from->clients[c]) >= majority)
        hold(steps, c, STEP_HOLD);
}

/* Try again with a higher ballot. */
static void retry_lock(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];
    uint8_t number = hf_client_next_number(client);

    if (client->ballots == hf_bounds.ballots[c] || number > NUMBER_MAX)
        return;
    prepare(steps, c);
    if (client->phase == ASKING && client->highest >= client->number)
        ask(steps, c, number, client->slow);
}

void hf_lock_steps(struct hf_steps *steps, uint8_t c)
{
    switch (steps->from->clients[c].phase) {
    case IDLE:
        begin_lock(steps, c);
        return;
    case ASKING:
        continue_asking(steps, c);
        break;
    case PREPARING:
        continue_preparing(steps, c);
        break;
    case COMMITTING:
        continue_committing(steps, c);
        break;
    }
    retry_lock(steps, c);
    hf_keep_end(steps, c, STEP_GIVE_UP);
}
