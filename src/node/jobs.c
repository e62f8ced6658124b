#include "node/jobs.h"

#include "node/state.h"

/* Transfers come before snapshots of this node: a follower needs them to catch
 * up. */
struct hf_node_job *hf_node_job_begin(struct hf_node *node)
{
    struct hf_node_job *job = NULL;

    if (node->has_failed || node->has_job)
        return NULL;
    hf_transfers_drop_old(node);
    job = hf_transfers_clean_job(node);
    if (!job)
        job = hf_transfers_receive_job(node);
    if (!job)
        job = hf_transfers_send_job(node);
    if (!job)
        job = hf_compaction_job(node);
    node->has_job = job != NULL;
    return job;
}

void hf_node_job_run(struct hf_node_job *job)
{
    job->run(job);
}

void hf_node_job_end(struct hf_node *node, struct hf_node_job *job)
{
    node->has_job = false;
    job->end(node, job);
}
