#include "raft/rules.h"

#define RETRY_MS 10 /* wait this long instead of a timeout in the past */

bool hf_rules_raise_term(const struct hf_membership *members, uint64_t id,
                         uint64_t *term, uint64_t *vote)
{
    if (members->count != 1 || members->voters[0] != id)
        return false;
    *term += 1;
    *vote = id;
    return true;
}

void hf_rules_trim_append(struct hf_message_append *append, uint64_t index,
                          uint64_t term)
{
    uint64_t known;

    if (append->prev_index >= index)
        return;
    known = index - append->prev_index;
    if (known > append->count)
        known = append->count;
    append->entries = append->entries ? append->entries + known : NULL;
    append->count -= (uint32_t)known;
    append->prev_index = index;
    append->prev_term = term;
}

void hf_rules_tell_term(struct hf_message *result, uint64_t term)
{
    if (result->vote_result.pre_vote && !result->vote_result.granted &&
        result->term < term)
        result->term = term;
}

bool hf_rules_takes_vote_result(const struct raft *raft)
{
    return raft->state == RAFT_CANDIDATE;
}

void hf_rules_restart_pre_vote(struct raft *raft)
{
    if (raft->state != RAFT_CANDIDATE)
        return;
    raft->candidate_state.in_pre_vote = raft->pre_vote;
    raft->candidate_state.disrupt_leader = false;
}

void hf_rules_forget_leader(struct raft *raft, hf_time now)
{
    if (raft->state == RAFT_FOLLOWER &&
        (uint64_t)now - raft->election_timer_start >= raft->election_timeout)
        raft->follower_state.current_leader.id = 0;
}

uint64_t hf_rules_raise_commit(uint64_t commit, uint64_t of_library)
{
    return of_library > commit ? of_library : commit;
}

hf_time hf_rules_next_timeout(const struct raft *raft, hf_time now,
                              bool after_timeout)
{
    hf_time timeout = (hf_time)raft_timeout(raft);

    return after_timeout && timeout <= now ? now + RETRY_MS : timeout;
}

bool hf_rules_is_fatal(int error)
{
    return error != 0;
}
