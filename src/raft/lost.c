#include "raft/lost.h"

#include "base/assert.h"

void hf_lost_init(struct hf_lost *lost, uint64_t id,
                  const struct hf_membership *voters)
{
    HF_ASSERT(hf_membership_is_valid(voters));
    *lost = (struct hf_lost){.voters = *voters, .id = id};
}

static void forget_reports(struct hf_lost *lost, uint64_t term)
{
    lost->term = term;
    memset(lost->reports, 0, sizeof(lost->reports));
}

void hf_lost_report(struct hf_lost *lost, uint64_t voter, uint64_t term,
                    uint64_t last_term, uint64_t last_index)
{
    if (term < lost->term)
        return;
    if (term > lost->term)
        forget_reports(lost, term);
    for (size_t i = 0; i < lost->voters.count; i++) {
        if (lost->voters.voters[i] == voter)
            lost->reports[i] =
                (struct hf_lost_report){true, last_term, last_index};
    }
}

void hf_lost_clear(struct hf_lost *lost, uint64_t term)
{
    if (term >= lost->term)
        forget_reports(lost, term);
}

static bool is_more_complete(const struct hf_lost_report *a,
                             const struct hf_lost_report *b)
{
    if (a->last_term != b->last_term)
        return a->last_term > b->last_term;
    return a->last_index > b->last_index;
}

/* Voters are in order of their ids, so the first of equals has the lowest. */
bool hf_lost_elects(const struct hf_lost *lost, uint64_t term)
{
    size_t count = 0;
    size_t best = 0;

    if (term != lost->term)
        return false;
    for (size_t i = 0; i < lost->voters.count; i++) {
        if (!lost->reports[i].reported)
            continue;
        if (count++ == 0 ||
            is_more_complete(&lost->reports[i], &lost->reports[best]))
            best = i;
    }
    return count > lost->voters.count / 2 &&
           lost->voters.voters[best] == lost->id;
}
