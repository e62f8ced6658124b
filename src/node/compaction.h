/* compaction.h - replace log entries by a snapshot of the table. */
#ifndef HF_NODE_COMPACTION_H
#define HF_NODE_COMPACTION_H

struct hf_node;

struct hf_compaction {
    bool is_running;
};

static inline void hf_compaction_fini(struct hf_node *node)
{
    (void)node;
}

#endif
