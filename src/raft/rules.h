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

/* Rule 3. The library makes a sole voter the leader without a new term. So
 * before the start, raise its term and let it vote for itself; the caller
 * stores both first. Otherwise the node would lead in the same term before and
 * after a crash, and different entries could have the same index and term.
 * Returns true if `*term` and `*vote` were changed. */
bool hf_rules_raise_term(const struct hf_membership *members, uint64_t id,
                         uint64_t *term, uint64_t *vote);

/* Rule 4. Drop the entries of `append` that the snapshot (index, term)
 * contains, and let the rest begin right after it. Otherwise a follower that
 * has compacted its log beyond the leader's match index rejects appends for
 * ever, or takes entries that it has applied for new ones. Do not call this
 * while a snapshot is being installed, or for a leader of an older term, which
 * is rejected. */
void hf_rules_trim_append(struct hf_message_append *append, uint64_t index,
                          uint64_t term);

/* Rule 6. The library answers a pre-vote with the candidate's term. A refusal
 * must contain our term if it is higher. Otherwise, a candidate with the better
 * log and an older term never learns the term, and nobody is elected although a
 * majority is alive. */
void hf_rules_tell_term(struct hf_message *result, uint64_t term);

/* Rule 7. Only a candidate may see the result of a vote. A follower would read
 * a field of the candidate's state through a union: whether a stale result
 * raises its term would depend on a heap address. Returns true for a
 * candidate. */
bool hf_rules_takes_vote_result(const struct raft *raft);

/* Rule 8. Before a timeout, a candidate returns to the pre-vote. Otherwise,
 * after one successful pre-vote it raises its term at every timeout, and
 * deposes healthy leaders for ever. */
void hf_rules_restart_pre_vote(struct raft *raft);

/* Rule 9. Forget a leader that was silent for the minimum election timeout,
 * before a vote is decided. The library remembers the leader until its own
 * random timeout, so the slowest voter would decide how long an election takes.
 * Ongaro's dissertation has this rule in section 4.2.3. */
void hf_rules_forget_leader(struct raft *raft, hf_time now);

/* Rule 10. The commit index never decreases. The library lowers it for a
 * delayed append. */
uint64_t hf_rules_raise_commit(uint64_t commit, uint64_t of_library);

/* Rule 11. The next timeout is computed after every step. Right after a timeout
 * it is never in the past, or the caller would loop. */
hf_time hf_rules_next_timeout(const struct raft *raft, hf_time now,
                              bool after_timeout);

/* Rule 15. A leader that has sent a snapshot and then takes another one ignores
 * the follower's rejections until a timeout, which is half a minute by default.
 * If the snapshot or its acknowledgement was lost, the follower gets nothing
 * until then. With this timeout, it is served after two election timeouts. A
 * timeout while the snapshot is still being sent does no harm: the caller
 * ignores the request to send it again. */
void hf_rules_set_snapshot_timeout(struct raft *raft, uint32_t election_ms);

/* Rule 16. An election must not time out because disks are slow: the candidate
 * stores its vote before it asks for others, and each voter stores its own
 * before it answers. hf_rules_may_time_out() returns false while the term and
 * vote of this node, which does not lead, are not durable. Once they are,
 * hf_rules_begin_wait() lets the timeout of a candidate or voter start from
 * `now`; a candidate waits for `stored_ms` more, the time that its own vote
 * took. Otherwise flushes that take as long as the shortest election timeout
 * let one election follow another for ever. */
bool hf_rules_may_time_out(const struct raft *raft, bool is_durable);
void hf_rules_begin_wait(struct raft *raft, hf_time now, hf_time stored_ms);

/* Rule 17. Count a vote of the current term that arrives after its candidate
 * has returned to the pre-vote (rule 8): nobody can take it back, but the
 * library ignores it. Without this, nobody is elected while voters need longer
 * than the candidate's timeout to store their votes. `granted` are the voters
 * whose votes of this term have arrived so far, a bit for each of `members`;
 * the grants of the pre-vote, which are no votes, are dropped. */
void hf_rules_take_late_vote(struct raft *raft,
                             const struct hf_membership *members,
                             uint32_t granted);

/* Rule 13. Any error of a step is fatal: the state is half changed, and the
 * library's assertions are compiled out. So the engine checks its input before
 * the step. */
bool hf_rules_is_fatal(int error);

#endif
