#include "raft/rules.h"

#define RETRY_MS 10   /* wait this long instead of a timeout in the past */
#define STORED_MAX 10 /* election timeouts that a slow disk adds at most */

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

void hf_rules_set_snapshot_timeout(struct raft *raft, uint32_t election_ms)
{
    raft_set_install_snapshot_timeout(raft, 2 * election_ms);
}

bool hf_rules_may_time_out(const struct raft *raft, bool is_durable)
{
    return is_durable || raft->state == RAFT_LEADER;
}

void hf_rules_begin_wait(struct raft *raft, hf_time now, hf_time stored_ms)
{
    hf_time most = (hf_time)raft->election_timeout * STORED_MAX;

    if (raft->state == RAFT_LEADER || raft->voted_for == 0)
        return;
    raft->election_timer_start = (raft_time)now;
    if (raft->state == RAFT_CANDIDATE)
        raft->candidate_state.randomized_election_timeout +=
            (unsigned)(stored_ms < most ? stored_ms : most);
}

void hf_rules_take_late_vote(struct raft *raft,
                             const struct hf_membership *members,
                             uint32_t granted)
{
    if (!raft->candidate_state.in_pre_vote)
        return;
    raft->candidate_state.in_pre_vote = false;
    for (size_t i = 0; i < members->count; i++)
        raft->candidate_state.votes[i].grant =
            members->voters[i] == raft->id || (granted >> i & 1);
}

bool hf_rules_is_fatal(int error)
{
    return error != 0;
}
