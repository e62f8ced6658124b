/* jobs.h - work on snapshots that a thread does while the node continues. */
#ifndef HF_NODE_JOBS_H
#define HF_NODE_JOBS_H

struct hf_node;

/* The first member of every job. `run` is called in any thread, so it must not
 * use state of the node that changes. `end` is called afterwards in the thread
 * of the node, and frees the job. */
struct hf_node_job {
    void (*run)(struct hf_node_job *job);
    void (*end)(struct hf_node *node, struct hf_node_job *job);
};

#endif
