#include "raft/rounds.h"

#include "base/assert.h"

void hf_rounds_init(struct hf_rounds *rounds, uint64_t id,
                    const struct hf_membership *voters)
{
    HF_ASSERT(hf_membership_is_valid(voters));
    *rounds = (struct hf_rounds){.voters = *voters, .id = id};
}

void hf_rounds_fini(struct hf_rounds *rounds)
{
    hf_ring_fini(&rounds->reads);
    *rounds = (struct hf_rounds){0};
}

/* `number` is not reset, so that no echo of an earlier round counts. */
void hf_rounds_lead(struct hf_rounds *rounds, uint64_t term)
{
    rounds->term = term;
    rounds->wanted = false;
    hf_ring_clear(&rounds->reads);
    memset(rounds->echoed, 0, sizeof(rounds->echoed));
}

static enum hf_err reserve_read(struct hf_rounds *rounds)
{
    if (rounds->reads.count >= HF_RAFT_ROUNDS_MAX)
        return HF_ELIMIT;
    return hf_ring_reserve(&rounds->reads, sizeof(struct hf_read));
}

/* The read waits for the next round: the last one may have been echoed before
 * the read arrived. */
enum hf_err hf_rounds_add(struct hf_rounds *rounds, uint64_t commit,
                          uint64_t tag)
{
    enum hf_err err = rounds->term > 0 ? reserve_read(rounds) : HF_ESTATE;
    struct hf_read *read;

    if (err)
        return err;
    read = hf_ring_push(&rounds->reads, sizeof(*read));
    *read = (struct hf_read){rounds->number + 1, commit, tag};
    rounds->wanted = true;
    return HF_OK;
}

static void note_echo(struct hf_rounds *rounds, uint64_t voter, uint64_t number)
{
    for (size_t i = 0; i < rounds->voters.count; i++) {
        if (rounds->voters.voters[i] == voter && rounds->echoed[i] < number)
            rounds->echoed[i] = number;
    }
}

uint64_t hf_rounds_start(struct hf_rounds *rounds, bool again)
{
    if (!rounds->wanted && !(again && rounds->reads.count > 0))
        return 0;
    rounds->wanted = false;
    rounds->number++;
    note_echo(rounds, rounds->id, rounds->number);
    return rounds->number;
}

void hf_rounds_echo(struct hf_rounds *rounds, uint64_t voter, uint64_t term,
                    uint64_t number)
{
    if (rounds->term > 0 && term == rounds->term && number <= rounds->number)
        note_echo(rounds, voter, number);
}

static bool is_echoed(const struct hf_rounds *rounds, uint64_t number)
{
    size_t echoes = 0;

    for (size_t i = 0; i < rounds->voters.count; i++)
        echoes += rounds->echoed[i] >= number;
    return echoes > rounds->voters.count / 2;
}

bool hf_rounds_take(struct hf_rounds *rounds, uint64_t applied,
                    struct hf_read *read)
{
    const struct hf_read *first;

    if (rounds->reads.count == 0)
        return false;
    first = hf_ring_at(&rounds->reads, sizeof(*first), 0);
    if (first->index > applied || !is_echoed(rounds, first->round))
        return false;
    *read = *first;
    hf_ring_drop_first(&rounds->reads);
    return true;
}
