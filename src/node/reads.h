/* reads.h - linearizable reads: find an index that is as new as any answer
 * given before the read, and wait until this node has applied it.
 *
 * A node asks the leader one question for all its reads that wait. The leader
 * confirms with a majority that it still leads (raft/rounds), without a log
 * entry, and answers with the index. */
#ifndef HF_NODE_READS_H
#define HF_NODE_READS_H

#include "base/dlist.h"
#include "base/time.h"
#include "raft/rounds.h"

struct hf_node;

struct hf_reads {
    struct hf_dlist unsent;    /* reads for which no question was sent yet */
    struct hf_dlist asked;     /* reads whose question has no answer yet */
    struct hf_dlist confirmed; /* reads whose index is not applied yet */
    uint64_t question;         /* number of the last question */
    hf_time asked_at;

    /* Only at the leader. */
    struct hf_rounds rounds;
    hf_time round_at;
    uint64_t *early; /* tags (see reads.c) of questions that came before
                        this leader could answer them */
    size_t early_count, early_capacity;
};

void hf_reads_init(struct hf_node *node);
void hf_reads_fini(struct hf_reads *reads);

/* Ask again for all reads that have no answer, because there is another leader,
 * or because the message with the question or its answer may be lost. */
void hf_reads_resend(struct hf_node *node);

/* The node `origin`, which may be this one, asks this node for an index;
 * `question` is the number of its question. Ignored unless this node leads; the
 * origin asks again. */
void hf_reads_ask(struct hf_node *node, uint64_t origin, uint64_t question);

/* The leader has answered `question` of this node, and so all earlier ones:
 * their reads can be completed when `index` is applied. */
void hf_reads_answer(struct hf_node *node, uint64_t question, uint64_t index);

/* The node leads in `term`, or does not lead any more if `term` is 0. Drops the
 * questions of all nodes, which ask again. */
void hf_reads_lead(struct hf_node *node, uint64_t term);

/* Ask the leader for the reads that were not sent. If this node leads, start a
 * round and answer the questions that a majority has confirmed. Complete the
 * reads whose index this node has applied. */
void hf_reads_turn(struct hf_node *node);

hf_time hf_reads_deadline(const struct hf_node *node);

#endif
