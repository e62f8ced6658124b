/* transfers.h - snapshots on their way from a leader to a follower. */
#ifndef HF_NODE_TRANSFERS_H
#define HF_NODE_TRANSFERS_H

struct hf_node;
struct hf_peer;

struct hf_transfers {
    bool is_receiving;
};

static inline void hf_transfers_stop(struct hf_node *node, struct hf_peer *peer)
{
    (void)node;
    (void)peer;
}

static inline void hf_transfers_fini(struct hf_node *node)
{
    (void)node;
}

#endif
