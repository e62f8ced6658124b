#include "state.h"

#include "bounds.h"
#include "master.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hf_state_init(struct hf_state *state)
{
    memset(state, 0, sizeof *state);
    for (unsigned i = 0; i < MASTERS; i++)
        hf_master_init(&state->masters[i]);
}

void hf_state_send(struct hf_state *state, const struct hf_message *message)
{
    unsigned at = 0, count = state->message_count;
    int order = 1;

    while (at < count) {
        order = memcmp(message, &state->messages[at], sizeof *message);
        if (order <= 0)
            break;
        at++;
    }
    if (order == 0)
        return;
    if (count == MESSAGES_MAX) {
        fprintf(stderr, "a state has more than %d messages\n", MESSAGES_MAX);
        exit(2);
    }
    memmove(&state->messages[at + 1], &state->messages[at],
            (count - at) * sizeof *message);
    state->messages[at] = *message;
    state->message_count++;
}

/* ---- fingerprints ------------------------------------------------------- */

#define PRIME_1 0xff51afd7ed558ccdull
#define PRIME_2 0xc4ceb9fe1a85ec53ull

static uint64_t mix_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * PRIME_1;
    return hash ^ hash >> 32;
}

static uint64_t mix_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const char *at = bytes;
    uint64_t word;

    for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = mix_word(hash, word);
    }
    word = size;
    memcpy((char *)&word + 1, at, size);
    return mix_word(hash, word);
}

static uint64_t finish(uint64_t hash)
{
    hash = (hash ^ hash >> 29) * PRIME_2;
    return hash ^ hash >> 32;
}

/* A master, and the answers of this master that the clients have recorded. */
static uint64_t mix_master(const struct hf_state *state, unsigned i)
{
    const struct hf_reader *reader = &state->reader;
    uint64_t hash = 0;

    hash = mix_bytes(hash, &state->masters[i], sizeof state->masters[i]);
    for (unsigned c = 0; c < client_count(); c++)
        hash = mix_bytes(hash, &state->clients[c].answers[i],
                         sizeof state->clients[c].answers[i]);
    if (hf_bounds.reads > 0)
        hash =
            mix_bytes(hash, &reader->readings[i], sizeof reader->readings[i]);
    return finish(hash);
}

uint64_t hf_state_fingerprint(const struct hf_state *state)
{
    uint64_t hash = 0, sum = 0, check = 0;

    /* Sums do not depend on the order. */
    for (unsigned i = 0; i < MASTERS; i++) {
        uint64_t master = mix_master(state, i);

        sum += master;
        check += finish(master ^ PRIME_1);
    }
    hash = mix_word(mix_word(hash, sum), check);
    for (unsigned c = 0; c < client_count(); c++)
        hash = mix_bytes(hash, &state->clients[c],
                         offsetof(struct hf_client, answers));
    if (hf_bounds.reads > 0)
        hash = mix_bytes(hash, &state->reader,
                         offsetof(struct hf_reader, readings));
    hash = mix_bytes(hash, &state->restarts,
                     offsetof(struct hf_state, messages) -
                         offsetof(struct hf_state, restarts));
    hash = mix_bytes(hash, state->messages,
                     state->message_count * sizeof state->messages[0]);
    return finish(hash);
}
