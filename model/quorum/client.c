#include "client.h"

#include "bounds.h"
#include "master.h"

#include <string.h>

/* ---- requests ----------------------------------------------------------- */

/* A lease that a claim asks for counts from this very send. An update leaves
 * the lease as it is: masters that have missed it get the longest deadline that
 * another has reported. */
static hf_send next_send(struct hf_client *client, enum hf_message_type type)
{
    if (type == PREPARE || type == END)
        return 0;
    if (client->phase != UPDATE_COMMITTING)
        client->sends++;
    return client->sends;
}

void hf_client_send(struct hf_state *state, uint8_t c,
                    enum hf_message_type type)
{
    struct hf_client *client = &state->clients[c];
    struct hf_message message = {
        .type = (uint8_t)type,
        .claim = claim_of(c),
        .client = c,
        .send = next_send(client, type),
    };

    memset(client->answers, 0, sizeof client->answers);
    if (client->number > client->number_max)
        client->number_max = client->number;
    if (type == COMMIT && client->number > client->ballot_max)
        client->ballot_max = client->number;
    if (type == COMMIT || type == RENEW)
        message.token = client->token;
    if (type == COMMIT)
        message.value = client->value;
    if (type == ASK)
        message.slow = client->slow;
    if (type == END)
        message.ballot = client->ballot_max;
    if (type != RENEW)
        message.number = type == END ? client->number_max : client->number;
    hf_state_send(state, &message);
}

/* ---- answers ------------------------------------------------------------ */

static bool awaits_answer(const struct hf_client *client,
                          const struct hf_message *message)
{
    switch ((enum hf_phase)client->phase) {
    case ASKING:
        return message->type == ASK && message->number == client->number;
    case PREPARING:
    case REPAIR_PREPARING:
    case UPDATE_PREPARING:
        return message->type == PREPARE && message->number == client->number;
    case COMMITTING:
    case REPAIR_COMMITTING:
    case UPDATE_COMMITTING:
        return message->type == COMMIT && message->number == client->number;
    case RENEWING:
        return message->type == RENEW && message->send == client->sends;
    case ENDING:
        return message->type == END;
    default:
        return false;
    }
}

static bool has_finished(const struct hf_client *client)
{
    return client->phase == ENDING || client->phase == ENDED ||
           client->phase == UPDATED;
}

void hf_client_receive(struct hf_client *client, uint8_t i,
                       const struct hf_message *message, bool positive,
                       const struct hf_master *master)
{
    struct hf_answer *answer = &client->answers[i];

    if (positive && awaits_answer(client, message)) {
        answer->positive = true;
        if (message->type == PREPARE)
            answer->report = hf_master_report(master);
        if (message->type == RENEW)
            answer->report.lease.ballot = master->lease.ballot;
    }
    /* Every answer shows the highest number that the master has promised. */
    if (!has_finished(client) && master->promise.number > client->highest)
        client->highest = master->promise.number;
}

unsigned hf_client_count_positive(const struct hf_client *client)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MASTERS; i++)
        count += client->answers[i].positive;
    return count;
}

uint8_t hf_client_next_number(const struct hf_client *client)
{
    uint8_t highest = client->highest;

    if (client->number_max > highest)
        highest = client->number_max;
    return (uint8_t)(highest + 1);
}

hf_set hf_client_next_majority(const struct hf_client *client, hf_set set,
                               uint8_t self, struct hf_verdict *verdict)
{
    struct hf_report reports[MASTERS];
    hf_set promised = 0;

    for (unsigned i = 0; i < MASTERS; i++) {
        reports[i] = client->answers[i].report;
        if (client->answers[i].positive)
            promised |= 1u << i;
    }
    do {
        set = (set - promised) & promised; /* the next subset */
    } while (set != 0 && set_size(set) < MAJORITY);
    if (set != 0)
        *verdict = hf_verdict_reach(reports, set, self);
    return set;
}

void hf_client_steps(struct hf_steps *steps, uint8_t c)
{
    if (is_updater(c))
        hf_updater_steps(steps, c);
    else if (steps->from->clients[c].phase < HOLDING)
        hf_lock_steps(steps, c);
    else
        hf_keep_steps(steps, c);
}
