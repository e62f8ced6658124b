/* transfers_in.c - the follower's half of transfers.h: receive a snapshot. */
#include <stdlib.h>

#include "log/snapshot_file.h"
#include "log/snapshot_transfer.h"
#include "node/state.h"

static void acknowledge(struct hf_node *node, uint64_t peer_id, uint64_t index,
                        uint64_t have)
{
    struct hf_peer *peer = hf_peers_find(node, peer_id);
    struct hf_packet_snapshot_ack ack = {index, have};

    if (!peer)
        return;
    hf_packet_encode_ack(hf_peers_message(node), &ack);
    (void)hf_peers_send(node, peer, HF_PACKET_SNAPSHOT_ACK);
}

/* Keep the part for a job. A part that arrives while another one is handled is
 * dropped; the leader sends it again. If this node has a snapshot that is at
 * least as new, acknowledge the whole file, so that the leader stops. */
void hf_transfers_on_part(struct hf_node *node, struct hf_peer *peer,
                          const struct hf_packet_snapshot *part)
{
    struct hf_transfers *in = &node->transfers;

    if (part->term < hf_engine_term(&node->engine) || hf_node_leads(node))
        return;
    if (node->engine.snapshot.index >= part->index) {
        acknowledge(node, peer->id, part->index, part->size);
        return;
    }
    if (in->is_busy || in->part.size > 0)
        return;
    in->from = peer->id;
    in->term = part->term;
    hf_packet_encode_snapshot(&in->part, part);
    if (in->part.failed)
        hf_buf_fini(&in->part);
}

/* ---- Writing a part -----------------------------------------------------*/

struct receive_job {
    struct hf_node_job job;
    struct hf_disk *disk;
    struct hf_log_cluster cluster;
    struct hf_node_replica *replica; /* to create a store; not changed */
    hf_time now;
    uint64_t from, term;
    struct hf_buf bytes;
    struct hf_packet_snapshot part; /* points into `bytes` */
    struct hf_snapshot_transfer *file;
    bool is_same; /* `file` belongs to the same snapshot as `part` */
    bool is_complete;
    uint64_t have;
    struct hf_snapshot_file *snapshot; /* the complete file */
    struct hf_store *store;
    enum hf_err err;
    struct hf_error error;
};

static enum hf_err write_part(struct receive_job *job)
{
    const struct hf_packet_snapshot *part = &job->part;
    enum hf_err err = HF_OK;

    if (!job->is_same) {
        hf_snapshot_transfer_cancel(job->file);
        job->file = NULL;
        err = hf_snapshot_transfer_open(job->disk, &job->cluster, part->index,
                                        part->index_term, part->size,
                                        &job->file, &job->error);
    }
    if (!err)
        err = hf_snapshot_transfer_add(job->file, part->offset, part->data.data,
                                       part->data.size, &job->error);
    if (!err)
        job->have = hf_snapshot_transfer_have(job->file);
    return err;
}

/* Leases start again at job->now, which is later than all grants in the
 * snapshot, so no lease ends early. */
static enum hf_err build_store(struct receive_job *job)
{
    size_t size = (size_t)hf_snapshot_file_data_size(job->snapshot);
    uint8_t *data = malloc(size + 1);
    enum hf_err err = HF_ENOMEM;

    job->store = hf_node_replica_new_store(job->replica);
    if (data && job->store)
        err = hf_snapshot_file_read_data(job->snapshot, 0, data, size,
                                         &job->error);
    if (!err) {
        err = hf_store_restore(job->store, job->now, data, size);
        if (err)
            (void)hf_error_set(&job->error, err,
                               "a snapshot of the leader is not usable: %s",
                               hf_err_text(err));
    }
    free(data);
    return err;
}

static enum hf_err finish_file(struct receive_job *job)
{
    struct hf_error damaged;
    enum hf_err err = hf_snapshot_transfer_finish(job->file, &job->error);

    job->file = NULL;
    if (!err)
        err = hf_snapshot_file_open(job->disk, &job->cluster, &job->snapshot,
                                    &damaged, &job->error);
    if (!err &&
        (!job->snapshot ||
         hf_snapshot_file_meta(job->snapshot)->index != job->part.index))
        err = hf_error_set(&job->error, HF_EBUSY,
                           "the newest snapshot is another one");
    return err ? err : build_store(job);
}

static void run_receive(struct hf_node_job *base)
{
    struct receive_job *job = (struct receive_job *)base;

    job->err = write_part(job);
    if (!job->err && job->have == job->part.size) {
        job->is_complete = true;
        job->err = finish_file(job);
    }
}

/* ---- The end of a job ---------------------------------------------------*/

static void pass_to_engine(struct hf_node *node, struct receive_job *job)
{
    const struct hf_snapshot_meta *meta = hf_snapshot_file_meta(job->snapshot);
    struct hf_engine_event event = {
        .kind = HF_ENGINE_SNAPSHOT_RECEIVED,
        .received = {.from = job->from,
                     .term = job->term,
                     .snapshot = {.index = meta->index,
                                  .term = meta->term,
                                  .members_index = meta->config_index,
                                  .members = meta->config}},
    };

    hf_node_replica_free_store(node->transfers.store);
    node->transfers.store = job->store;
    job->store = NULL;
    if (hf_node_step(node, event) || !node->engine.installing) {
        hf_node_replica_free_store(node->transfers.store);
        node->transfers.store = NULL;
    }
}

/* Returns true for errors after which the leader can send the snapshot again
 * from the start; after other errors the node stops. */
static bool is_passing(enum hf_err err)
{
    return err == HF_ELIMIT || err == HF_ENOMEM || err == HF_EPROTO ||
           err == HF_EBUSY;
}

static void end_receive(struct hf_node *node, struct hf_node_job *base)
{
    struct receive_job *job = (struct receive_job *)base;
    struct hf_transfers *in = &node->transfers;

    in->is_busy = false;
    if (job->err) {
        hf_snapshot_transfer_cancel(job->file);
        job->file = NULL;
    }
    in->file = job->file;
    in->index = job->file ? job->part.index : 0;
    if (!job->file)
        hf_wal_reserve_return(node->journal.wal);
    if (job->err && !is_passing(job->err))
        hf_node_fail(node, &job->error);
    else if (!job->err && job->is_complete)
        pass_to_engine(node, job);
    if (!job->err)
        acknowledge(node, job->from, job->part.index, job->have);
    hf_node_replica_free_store(job->store);
    hf_snapshot_file_close(job->snapshot);
    hf_buf_fini(&job->bytes);
    free(job);
}

struct hf_node_job *hf_transfers_receive_job(struct hf_node *node)
{
    struct hf_transfers *in = &node->transfers;
    struct hf_reader reader = {.data = in->part.data, .size = in->part.size};
    struct receive_job *job;

    if (in->part.size == 0 || node->engine.installing ||
        (!in->file && !hf_wal_reserve_lend(node->journal.wal)))
        return NULL;
    job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->job = (struct hf_node_job){run_receive, end_receive};
    job->disk = node->disk;
    job->cluster = node->opts.cluster;
    job->replica = &node->replica;
    job->now = node->now;
    job->from = in->from;
    job->term = in->term;
    job->bytes = in->part;
    (void)hf_packet_decode_snapshot(&reader, &job->part);
    job->file = in->file;
    job->is_same = in->file && in->index == job->part.index;
    in->part = (struct hf_buf){0};
    in->file = NULL;
    in->is_busy = true;
    return &job->job;
}

void hf_transfers_drop_old(struct hf_node *node)
{
    struct hf_transfers *in = &node->transfers;

    if (!in->file || node->replica.applied < in->index)
        return;
    hf_snapshot_transfer_cancel(in->file);
    in->file = NULL;
    hf_wal_reserve_return(node->journal.wal);
}

void hf_transfers_install(struct hf_node *node)
{
    struct hf_transfers *in = &node->transfers;

    if (!in->store)
        return;
    hf_node_replica_free_store(in->trash);
    in->trash = hf_node_replica_replace(&node->replica, in->store,
                                        node->engine.snapshot.index);
    in->store = NULL;
    in->installed++;
    hf_compaction_restart(node);
    if (node->hooks.on_restored)
        node->hooks.on_restored(node->hooks_arg);
}

/* ---- Freeing ------------------------------------------------------------*/

struct free_job {
    struct hf_node_job job;
    struct hf_store *store;
};

static void run_free(struct hf_node_job *base)
{
    hf_node_replica_free_store(((struct free_job *)base)->store);
}

static void end_free(struct hf_node *node, struct hf_node_job *base)
{
    (void)node;
    free(base);
}

struct hf_node_job *hf_transfers_free_job(struct hf_node *node)
{
    struct free_job *job = node->transfers.trash ? malloc(sizeof(*job)) : NULL;

    if (!job)
        return NULL;
    job->job = (struct hf_node_job){run_free, end_free};
    job->store = node->transfers.trash;
    node->transfers.trash = NULL;
    return &job->job;
}

void hf_transfers_fini(struct hf_node *node)
{
    for (size_t i = 0; i < node->peers.count; i++)
        hf_transfers_stop(node, &node->peers.list[i]);
    hf_snapshot_transfer_cancel(node->transfers.file);
    hf_buf_fini(&node->transfers.part);
    hf_node_replica_free_store(node->transfers.store);
    hf_node_replica_free_store(node->transfers.trash);
}
