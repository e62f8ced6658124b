/* jobs.h - what runs in a thread beside the flushes. */
#ifndef HF_NODE_JOBS_H
#define HF_NODE_JOBS_H

struct hf_node;

/* Embedded at the start of what a job needs. `run` must not touch the node;
 * `end` frees the job. */
struct hf_node_job {
    void (*run)(struct hf_node_job *job);
    void (*end)(struct hf_node *node, struct hf_node_job *job);
};

#endif
