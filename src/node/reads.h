/* reads.h - linearizable reads: find an index that is as new as any answer given
 * before the read, and wait until this node has applied it.
 *
 * Reads that wait are asked for together. The leader confirms with a majority
 * that it still leads (raft/rounds), without a log entry. */
#ifndef HF_NODE_READS_H
#define HF_NODE_READS_H

#include "base/dlist.h"
#include "base/time.h"
#include "raft/rounds.h"

struct hf_node;

struct hf_reads {
    struct hf_dlist unsent; /* requests that the leader has to be asked for */
    struct hf_dlist asked;  /* in the order of their questions */
    struct hf_dlist confirmed; /* wait until their index is applied */
    uint64_t question;         /* number of the last one */
    hf_time asked_at;

    /* At the leader. */
    struct hf_rounds rounds;
    hf_time round_at;
    uint64_t *early; /* tags: the leader is not in office yet */
    size_t early_count, early_capacity;
};

void hf_reads_init(struct hf_node *node);
void hf_reads_fini(struct hf_reads *reads);

/* Ask again: the leader is another one, or may not have received it. */
void hf_reads_resend(struct hf_node *node);

/* A question of `origin`. */
void hf_reads_ask(struct hf_node *node, uint64_t origin, uint64_t question);

/* The answer to a question of this node. */
void hf_reads_answer(struct hf_node *node, uint64_t question, uint64_t index);

/* The node leads in `term`, or does not lead any more (0). */
void hf_reads_lead(struct hf_node *node, uint64_t term);

/* Ask, start a round, and answer what can be answered. */
void hf_reads_turn(struct hf_node *node);

hf_time hf_reads_deadline(const struct hf_node *node);

#endif
