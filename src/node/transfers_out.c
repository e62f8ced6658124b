/* transfers_out.c - the leader's half of transfers.h: send a snapshot. */
#include <stdlib.h>

#include "log/snapshot_file.h"
#include "node/state.h"

void hf_transfers_start(struct hf_node *node, struct hf_peer *peer)
{
    struct hf_transfer_out *out = &peer->transfer;

    if (out->is_wanted)
        return;
    *out = (struct hf_transfer_out){
        .is_wanted = true,
        .number = ++node->transfers.last_number,
    };
}

/* If a job uses the file, end_send() closes it, because the transfer of this
 * peer has another number by then. */
void hf_transfers_stop(struct hf_node *node, struct hf_peer *peer)
{
    hf_transfers_close(node, peer->transfer.file);
    peer->transfer = (struct hf_transfer_out){0};
}

void hf_transfers_on_ack(struct hf_node *node, struct hf_peer *peer,
                         const struct hf_packet_snapshot_ack *ack)
{
    struct hf_transfer_out *out = &peer->transfer;

    if (!out->is_wanted || ack->index != out->index || ack->have > out->size)
        return;
    if (ack->have == out->size) {
        hf_transfers_stop(node, peer);
        return;
    }
    if (ack->have != out->acked || !out->is_reading)
        out->is_sent = false;
    out->acked = ack->have;
}

/* ---- Reading a part -----------------------------------------------------*/

struct send_job {
    struct hf_node_job job;
    struct hf_disk *disk;
    struct hf_log_cluster cluster;
    uint64_t peer, number;
    struct hf_snapshot_file *file;
    uint64_t offset;
    size_t size; /* bytes in `data` */
    enum hf_err err;
    struct hf_error error;
    uint8_t data[HF_NODE_SNAPSHOT_PART];
};

static void run_send(struct hf_node_job *base)
{
    struct send_job *job = (struct send_job *)base;
    struct hf_error damaged;
    uint64_t left;

    if (!job->file)
        job->err = hf_snapshot_file_open(job->disk, &job->cluster, &job->file,
                                         &damaged, &job->error);
    if (job->err || !job->file)
        return;
    left = hf_snapshot_file_size(job->file) - job->offset;
    job->size = left < sizeof(job->data) ? (size_t)left : sizeof(job->data);
    job->err = hf_snapshot_file_read(job->file, job->offset, job->data,
                                     job->size, &job->error);
}

static void send_snapshot_part(struct hf_node *node, struct hf_peer *peer,
                               const struct send_job *job)
{
    const struct hf_snapshot_meta *meta = hf_snapshot_file_meta(job->file);
    struct hf_transfer_out *out = &peer->transfer;
    struct hf_packet_snapshot part = {
        .term = node->leading_term,
        .index = meta->index,
        .index_term = meta->term,
        .size = hf_snapshot_file_size(job->file),
        .offset = job->offset,
        .data = {job->data, job->size},
    };

    out->file = job->file;
    out->is_reading = false;
    out->index = part.index;
    out->index_term = part.index_term;
    out->size = part.size;
    out->sent_at = node->now;
    hf_packet_encode_snapshot(hf_peers_message(node), &part);
    (void)hf_peers_send(node, peer, HF_PACKET_SNAPSHOT);
}

/* Memory or descriptors are short: try again after HF_NODE_REPEAT_MS. */
static void repeat_later(struct hf_node *node, struct hf_peer *peer)
{
    peer->transfer.is_reading = false;
    peer->transfer.sent_at = node->now;
}

static void end_send(struct hf_node *node, struct hf_node_job *base)
{
    struct send_job *job = (struct send_job *)base;
    struct hf_peer *peer = hf_peers_find(node, job->peer);
    bool is_stopped = peer->transfer.number != job->number;

    if (!job->err && job->file && !is_stopped) {
        send_snapshot_part(node, peer, job);
        free(job);
        return;
    }
    hf_transfers_close(node, job->file);
    if (job->err && job->err != HF_ENOMEM)
        hf_node_fail(node, &job->error);
    else if (job->err && !is_stopped)
        repeat_later(node, peer);
    else if (!is_stopped)
        hf_transfers_stop(node, peer); /* there is no snapshot */
    free(job);
}

static bool is_due(const struct hf_node *node, const struct hf_peer *peer)
{
    const struct hf_transfer_out *out = &peer->transfer;

    if (!out->is_wanted || peer->link == 0)
        return false;
    return !out->is_reading &&
           (!out->is_sent || node->now >= out->sent_at + HF_NODE_REPEAT_MS);
}

static struct hf_node_job *new_send_job(struct hf_node *node,
                                        struct hf_peer *peer)
{
    struct hf_transfer_out *out = &peer->transfer;
    struct send_job *job = malloc(sizeof(*job));

    if (!job)
        return NULL;
    job->job = (struct hf_node_job){run_send, end_send};
    job->disk = node->disk;
    job->cluster = node->opts.cluster;
    job->peer = peer->id;
    job->number = out->number;
    job->file = out->file;
    job->offset = out->acked;
    job->size = 0;
    job->err = HF_OK;
    out->file = NULL;
    out->is_reading = true;
    out->is_sent = true;
    return &job->job;
}

struct hf_node_job *hf_transfers_send_job(struct hf_node *node)
{
    for (size_t i = 0; i < node->peers.count; i++) {
        if (is_due(node, &node->peers.list[i]))
            return new_send_job(node, &node->peers.list[i]);
    }
    return NULL;
}

hf_time hf_transfers_deadline(const struct hf_node *node)
{
    hf_time deadline = HF_NEVER;

    if (node->has_job)
        return HF_NEVER; /* a turn follows the end of the job */
    for (size_t i = 0; i < node->peers.count; i++) {
        const struct hf_peer *peer = &node->peers.list[i];
        const struct hf_transfer_out *out = &peer->transfer;

        if (out->is_wanted && out->is_sent && peer->link != 0 &&
            out->sent_at + HF_NODE_REPEAT_MS < deadline)
            deadline = out->sent_at + HF_NODE_REPEAT_MS;
    }
    return deadline;
}
