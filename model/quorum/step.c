#include "bounds.h"
#include "steps.h"
#include "value.h"

#include <stddef.h>

/* Traces call the claims A, B and C, their clients the same, and the updaters P
 * and Q. Masters have the numbers 1 to 5. */
static char client_name(uint8_t client)
{
    if (is_updater(client))
        return (char)('P' + client - hf_bounds.claims);
    return (char)('A' + client);
}

static const char *value_text(enum hf_value value)
{
    switch (value) {
    case VALUE_FIRST:
        return "0";
    case VALUE_P:
        return "1, by P";
    case VALUE_Q:
        return "2, by Q";
    case VALUE_P_R:
        return "0, by P and Q";
    case VALUE_P_R_P:
        return "1, by P, Q and P again";
    }
    return "?";
}

/* What a client does; a format for its number. NULL: it is no step of one. */
static const char *client_text(enum hf_step_kind kind)
{
    switch (kind) {
    case STEP_ASK:
        return "sends ASK %d to all masters";
    case STEP_PREPARE:
    case STEP_UPDATE_PREPARE:
        return "sends PREPARE %d to all masters";
    case STEP_COMMIT:
        return "sends COMMIT %d to all masters";
    case STEP_HOLD_BY_VOTES:
        return "holds the key by a fast quorum of votes, token %d";
    case STEP_HOLD:
        return "holds the key, token %d";
    case STEP_RENEW:
        return "sends RENEW to all masters";
    case STEP_RENEWED:
        return "has renewed its lease";
    case STEP_REPAIR_PREPARE:
        return "begins a repair and sends PREPARE %d to all masters";
    case STEP_REPAIR_COMMIT:
        return "sends COMMIT %d with its old token to all masters";
    case STEP_REPAIRED:
        return "has repaired its lease";
    case STEP_GIVE_UP:
        return "gives up and sends END to all masters";
    case STEP_UNLOCK:
        return "ends its validity and sends END to all masters";
    case STEP_ENDED:
        return "learns that a majority has ended its claim";
    case STEP_UPDATE_COMMIT:
        return "sends COMMIT %d to all masters, with the value";
    case STEP_UPDATED:
        return "reports the result of its update, with the value";
    case STEP_UPDATE_IN_DOUBT:
        return "reports that its update is in doubt";
    default:
        return NULL;
    }
}

/* What a master does by itself. */
static const char *master_text(enum hf_step_kind kind)
{
    switch (kind) {
    case STEP_EXPIRE_LEASE:
        return "expires the lease of";
    case STEP_EXPIRE_VOTE:
        return "expires the vote for";
    case STEP_EXPIRE_PROMISE:
        return "forgets its promise";
    case STEP_IDLE:
        return "begins to wait before it drops its record of the key";
    case STEP_DROP:
        return "drops its record of the key";
    case STEP_RESTART:
        return "restarts empty";
    case STEP_WAKE:
        return "ends its quiet period";
    default:
        return NULL;
    }
}

static void print_client_step(const struct hf_step *step, FILE *out)
{
    fprintf(out, "%c ", client_name(step->client));
    fprintf(out, client_text(step->kind), step->number);
    if (step->slow)
        fprintf(out, ", for slow votes");
    if (step->kind == STEP_UPDATE_COMMIT || step->kind == STEP_UPDATED)
        fprintf(out, " %s", value_text(step->value));
}

static void print_master_step(const struct hf_step *step, FILE *out)
{
    fprintf(out, "Master %d %s", step->master + 1, master_text(step->kind));
    if (step->kind == STEP_EXPIRE_LEASE || step->kind == STEP_EXPIRE_VOTE)
        fprintf(out, " %c", client_name(step->client));
}

static void print_delivery(const struct hf_step *step, FILE *out)
{
    static const char *const names[] = {
        [ASK] = "ASK",     [PREPARE] = "PREPARE", [COMMIT] = "COMMIT",
        [RENEW] = "RENEW", [END] = "END",
    };
    const struct hf_message *message = &step->message;

    fprintf(out, "Master %d receives %s", step->master + 1,
            names[message->type]);
    if (message->number)
        fprintf(out, " %d", message->number);
    fprintf(out, " of %c", client_name(message->client));
    if (step->kind == STEP_DELIVER_ANSWER_LOST)
        fprintf(out, "; the answer is lost");
}

static void print_read(const struct hf_step *step, FILE *out)
{
    if (step->kind == STEP_READ) {
        fprintf(out, "A reader begins to read");
        return;
    }
    fprintf(out, "Master %d reports to the reader", step->master + 1);
    if (step->kind == STEP_READ_FREE)
        fprintf(out, ", which answers: free");
    if (step->kind == STEP_READ_UNDECIDED)
        fprintf(out, ", which has no answer");
    if (step->kind == STEP_READ_HELD)
        fprintf(out, ", which answers: held by %c, token %d, value %s",
                client_name(step->client), step->number,
                value_text(step->value));
}

void hf_step_print(const struct hf_step *step, FILE *out)
{
    if (client_text(step->kind)) {
        print_client_step(step, out);
    } else if (master_text(step->kind)) {
        print_master_step(step, out);
    } else if (step->kind == STEP_LAPSE) {
        fprintf(out, "Time passes: the validity from send %d of %c ends",
                step->number, client_name(step->client));
    } else if (step->kind == STEP_DELIVER ||
               step->kind == STEP_DELIVER_ANSWER_LOST) {
        print_delivery(step, out);
    } else {
        print_read(step, out);
    }
    fprintf(out, ".\n");
}
