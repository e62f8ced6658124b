#include "client.h"

#include "bounds.h"
#include "mutants.h"
#include "value.h"

#include <string.h>

/* ---- renew -------------------------------------------------------------- */

static void renew(struct hf_steps *steps, uint8_t c)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = RENEWING;
    client->renewals++;
    hf_client_send(next, c, RENEW);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_RENEW, .client = c});
}

/* Returns true if a majority has confirmed the lease under the same ballot. An
 * update may have written it to some masters under a higher one. With copies of
 * different ballots, a ballot between them could win against the lower ones. */
static bool is_confirmed(const struct hf_client *client)
{
    if (is_mutant(RENEWED_UNDER_SEVERAL_BALLOTS) ||
        is_mutant(HIGHEST_BALLOT_ALONE))
        return hf_client_count_positive(client) >= MAJORITY;
    for (unsigned i = 0; i < MASTERS; i++) {
        uint8_t ballot = client->answers[i].report.lease.ballot;
        unsigned count = 0;

        for (unsigned j = 0; j < MASTERS; j++)
            count += client->answers[j].positive &&
                     client->answers[j].report.lease.ballot == ballot;
        if (count >= MAJORITY)
            return true;
    }
    return false;
}

/* The lease of the last send is confirmed. If that has lapsed, the confirmation
 * is too late. */
static void extend_validity(struct hf_steps *steps, uint8_t c,
                            enum hf_step_kind kind)
{
    struct hf_client *client = &hf_steps_begin(steps)->clients[c];

    if (client->lapsed == client->sends || !is_confirmed(client))
        return;
    client->phase = HOLDING;
    client->valid_send = client->sends;
    memset(client->answers, 0, sizeof client->answers);
    hf_steps_take(steps, (struct hf_step){.kind = (uint8_t)kind, .client = c});
}

/* ---- repair ------------------------------------------------------------- */

static void repair_prepare(struct hf_steps *steps, uint8_t c)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = REPAIR_PREPARING;
    client->renewals++;
    client->number = hf_client_next_number(client);
    hf_client_send(next, c, PREPARE);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_REPAIR_PREPARE,
                                          .client = c,
                                          .number = client->number});
}

/* The token stays: it is the same grant under a new ballot. So does the value
 * of the highest ballot, which another process may have written. */
static void repair_commit(struct hf_steps *steps, uint8_t c, uint8_t value)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = REPAIR_COMMITTING;
    client->value = is_mutant(REPAIR_WRITES_FIRST_VALUE) ? VALUE_FIRST : value;
    hf_client_send(next, c, COMMIT);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_REPAIR_COMMIT,
                                          .client = c,
                                          .number = client->number});
}

static void continue_repair(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];
    struct hf_verdict verdict;
    unsigned values = 0;
    hf_set set = 0;

    /* It may hold the key by its own votes, so these count, too. */
    while ((set = hf_client_next_majority(client, set, NOBODY, &verdict)) != 0)
        if (verdict.claim == c && verdict.token == client->token &&
            !(values >> verdict.value & 1)) {
            values |= 1u << verdict.value;
            repair_commit(steps, c, verdict.value);
        }
}

/* A mistake: COMMIT at once. */
static void repair_without_prepare(struct hf_steps *steps, uint8_t c)
{
    struct hf_state *next = hf_steps_begin(steps);
    struct hf_client *client = &next->clients[c];

    client->phase = REPAIR_COMMITTING;
    client->renewals++;
    client->number = hf_client_next_number(client);
    hf_client_send(next, c, COMMIT);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_REPAIR_COMMIT,
                                          .client = c,
                                          .number = client->number});
}

/* ---- unlock ------------------------------------------------------------- */

void hf_keep_end(struct hf_steps *steps, uint8_t c, enum hf_step_kind kind)
{
    struct hf_state *next = hf_steps_begin(steps);

    if (!hf_bounds.ends[c])
        return;
    next->clients[c].phase = ENDING;
    next->clients[c].valid_send = 0;
    hf_client_send(next, c, END);
    hf_steps_take(steps, (struct hf_step){.kind = (uint8_t)kind, .client = c});
}

static void finish_end(struct hf_steps *steps, uint8_t c)
{
    struct hf_client *client = &hf_steps_begin(steps)->clients[c];

    if (hf_client_count_positive(client) < MAJORITY)
        return;
    client->phase = ENDED;
    memset(client->answers, 0, sizeof client->answers);
    hf_steps_take(steps, (struct hf_step){.kind = STEP_ENDED, .client = c});
}

/* ---- phases ------------------------------------------------------------- */

/* Renew or repair, at any time: also if the last one was not confirmed. */
static void begin_renewal(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];

    if (client->renewals == hf_bounds.renewals[c])
        return;
    renew(steps, c);
    if (hf_client_next_number(client) > NUMBER_MAX)
        return;
    if (is_mutant(REPAIR_WITHOUT_PREPARE))
        repair_without_prepare(steps, c);
    else
        repair_prepare(steps, c);
}

void hf_keep_steps(struct hf_steps *steps, uint8_t c)
{
    const struct hf_client *client = &steps->from->clients[c];

    if (client->phase == ENDING)
        finish_end(steps, c);
    if (client->phase >= ENDING)
        return;
    hf_keep_end(steps, c, STEP_UNLOCK);
    begin_renewal(steps, c);
    switch (client->phase) {
    case RENEWING:
        extend_validity(steps, c, STEP_RENEWED);
        break;
    case REPAIR_PREPARING:
        continue_repair(steps, c);
        break;
    case REPAIR_COMMITTING:
        extend_validity(steps, c, STEP_REPAIRED);
        break;
    }
}
