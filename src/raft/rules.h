/* rules.h - what the engine does so that known defects of libraft 0.22 do no
 * harm.
 *
 * The numbers are those of docs/decisions/0031-libraft-behind-a-seam.md. Each
 * rule is one function, so that a planted bug can switch it off. Rule 5 is
 * frames.c. */
#ifndef HF_RAFT_RULES_H
#define HF_RAFT_RULES_H

#include "raft/library.h"
#include "raft/membership.h"

/* Rule 3. A sole voter leads without a new term, so before it starts, its term
 * is raised and it votes for itself; both are stored first. Otherwise, after a
 * crash, one term has two leaders: entries of equal index and term differ.
 * Returns whether `*term` and `*vote` were changed. */
bool hf_rules_raise_term(const struct hf_membership *members, uint64_t id,
                         uint64_t *term, uint64_t *vote);

/* Rule 4. Drop the entries of `append` that the snapshot (index, term)
 * contains, and let the rest begin right after it. Without it, a follower that
 * has compacted its log beyond the leader's match index rejects for ever, or
 * takes entries that it has applied for new ones. Not while a snapshot is
 * being installed, and not for a leader of an older term, which is rejected. */
void hf_rules_trim_append(struct hf_message_append *append, uint64_t index,
                          uint64_t term);

/* Rule 6. The library answers a pre-vote with the candidate's term. A refusal
 * must contain our term if it is higher. Otherwise, a candidate with the better
 * log and an older term never learns the term, and nobody is elected although a
 * majority is alive. */
void hf_rules_tell_term(struct hf_message *result, uint64_t term);

/* Rule 7. Only a candidate may see the result of a vote. A follower reads a
 * field of the candidate's state through a union, so that a stale result raises
 * its term or not, depending on a heap address. */
bool hf_rules_takes_vote_result(const struct raft *raft);

/* Rule 8. Before a timeout, a candidate returns to the pre-vote. Otherwise,
 * after one successful pre-vote it raises its term at every timeout, and
 * deposes healthy leaders for ever. */
void hf_rules_restart_pre_vote(struct raft *raft);

/* Rule 9, as far as all members are voters. Forget a leader that was silent for
 * the minimum election timeout. The library remembers it until its own random
 * timeout, so that the slowest voter decides how long an election takes. This
 * is the rule of Ongaro's dissertation, section 4.2.3. */
void hf_rules_forget_leader(struct raft *raft, hf_time now);

/* Rule 10. The commit index never decreases. The library lowers it for a
 * delayed append. */
uint64_t hf_rules_raise_commit(uint64_t commit, uint64_t of_library);

/* Rule 11. The next timeout is computed after every step. Right after a timeout
 * it is never in the past, or the caller would loop. */
hf_time hf_rules_next_timeout(const struct raft *raft, hf_time now,
                              bool after_timeout);

/* Rule 13. Any error of a step is fatal: the state is half changed, and the
 * library's assertions are compiled out. What a caller may get wrong is checked
 * before the step. */
bool hf_rules_is_fatal(int error);

#endif
