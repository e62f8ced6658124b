/* jobs.c - what runs in a thread beside the flushes. Nothing does so yet. */
#include "node/state.h"

struct hf_node_job *hf_node_job_begin(struct hf_node *node)
{
    (void)node;
    return NULL;
}

void hf_node_job_run(struct hf_node_job *job)
{
    (void)job;
}

void hf_node_job_end(struct hf_node *node, struct hf_node_job *job)
{
    (void)node;
    (void)job;
}
