#include "raft/lost.h"

#include "base/assert.h"

void hf_lost_init(struct hf_lost *lost, uint64_t id,
                  const struct hf_membership *voters, uint32_t valid_ms)
{
    HF_ASSERT(hf_membership_is_valid(voters));
    *lost = (struct hf_lost){
        .voters = *voters,
        .id = id,
        .valid_ms = valid_ms,
    };
}

static struct hf_lost_report *find_report(struct hf_lost *lost, uint64_t voter)
{
    for (size_t i = 0; i < lost->voters.count; i++) {
        if (lost->voters.voters[i] == voter)
            return &lost->reports[i];
    }
    return NULL;
}

void hf_lost_report(struct hf_lost *lost, uint64_t voter, uint64_t term,
                    const struct hf_lost_log *log)
{
    struct hf_lost_report *report = find_report(lost, voter);

    if (!report || term < lost->term)
        return;
    if (term > lost->term)
        memset(lost->reports, 0, sizeof(lost->reports));
    lost->term = term;
    *report = (struct hf_lost_report){
        .until = hf_time_add(log->now, lost->valid_ms),
        .last_term = log->last_term,
        .last_index = log->last_index,
    };
}

void hf_lost_clear(struct hf_lost *lost)
{
    struct hf_lost_report *report = find_report(lost, lost->id);

    if (report)
        report->until = 0;
}

static bool is_more_complete(const struct hf_lost_report *a,
                             const struct hf_lost_report *b)
{
    if (a->last_term != b->last_term)
        return a->last_term > b->last_term;
    return a->last_index > b->last_index;
}

/* Voters are in order of their ids, so of equally complete logs, the first one
 * belongs to the voter with the lowest id. */
bool hf_lost_elects(const struct hf_lost *lost, uint64_t term, hf_time now)
{
    size_t count = 0;
    size_t best = 0;

    if (term != lost->term)
        return false;
    for (size_t i = 0; i < lost->voters.count; i++) {
        if (lost->reports[i].until <= now)
            continue;
        if (count++ == 0 ||
            is_more_complete(&lost->reports[i], &lost->reports[best]))
            best = i;
    }
    return count > lost->voters.count / 2 &&
           lost->voters.voters[best] == lost->id;
}
