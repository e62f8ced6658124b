/* transfers_in.c - the follower's half of transfers.h: receive a snapshot. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/snapshot_file.h"
#include "log/snapshot_transfer.h"
#include "node/state.h"

static void acknowledge_part(struct hf_node *node, uint64_t peer_id,
                             uint64_t index, uint64_t have)
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
        acknowledge_part(node, peer->id, part->index, part->size);
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
    struct hf_state_machine *machine; /* to create a store; not changed */
    hf_time now;
    uint32_t version; /* newest table version that this node knows */
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

    job->store = hf_state_machine_new_store(job->machine);
    if (data && job->store)
        err = hf_snapshot_file_read_data(job->snapshot, 0, data, size,
                                         &job->error);
    if (!err)
        err = hf_versions_check_snapshot(job->version, job->part.index,
                                         (struct hf_bytes){data, size},
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
    enum hf_err err = hf_snapshot_transfer_finish(job->file, &job->error);

    job->file = NULL;
    if (!err)
        err =
            hf_snapshot_file_open_at(job->disk, &job->cluster, job->part.index,
                                     &job->snapshot, &job->error);
    if (!err)
        err = build_store(job);
    if (err) {
        hf_state_machine_free_store(job->store);
        job->store = NULL;
    }
    return err;
}

static void run_receive(struct hf_node_job *base)
{
    struct receive_job *job = (struct receive_job *)base;

    job->err = write_part(job);
    if (!job->err && job->have == job->part.size) {
        job->is_complete = true;
        job->err = finish_file(job);
    }
    if (job->err) {
        hf_snapshot_transfer_cancel(job->file);
        job->file = NULL;
    }
}

/* ---- The end of a job ---------------------------------------------------*/

/* Let a job free `store`, because that takes long; or free it here, if another
 * store waits for such a job. */
static void discard_store(struct hf_transfers *in, struct hf_store *store)
{
    if (in->trash)
        hf_state_machine_free_store(store);
    else
        in->trash = store;
}

static void pass_to_engine(struct hf_node *node, struct receive_job *job)
{
    struct hf_transfers *in = &node->transfers;
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

    HF_ASSERT(!in->store);
    in->store = job->store;
    in->store_size = hf_snapshot_file_data_size(job->snapshot);
    job->store = NULL;
    if (hf_consensus_step(node, event) || !node->engine.installing) {
        discard_store(in, in->store);
        in->store = NULL;
        in->refused = meta->index;
    }
}

/* Returns true for errors after which the leader can send the snapshot again
 * from the start; after other errors the node stops. */
static bool is_passing(enum hf_err err)
{
    return err == HF_ELIMIT || err == HF_ENOMEM || err == HF_EPROTO;
}

static void end_receive(struct hf_node *node, struct hf_node_job *base)
{
    struct receive_job *job = (struct receive_job *)base;
    struct hf_transfers *in = &node->transfers;

    in->is_busy = false;
    in->file = job->file;
    in->index = job->file ? job->part.index : 0;
    if (!job->file)
        hf_wal_reserve_return(node->journal.wal);
    if (job->err && job->is_complete)
        in->refused = job->part.index; /* the file may be in place already */
    if (job->err && !is_passing(job->err))
        hf_node_fail(node, &job->error);
    else if (!job->err && job->is_complete)
        pass_to_engine(node, job);
    if (!job->err)
        acknowledge_part(node, job->from, job->part.index, job->have);
    hf_snapshot_file_close(job->snapshot);
    hf_buf_fini(&job->bytes);
    free(job);
}

struct hf_node_job *hf_transfers_receive_job(struct hf_node *node)
{
    struct hf_transfers *in = &node->transfers;
    struct hf_reader reader = {.data = in->part.data, .size = in->part.size};
    struct receive_job *job;

    if (in->part.size == 0 || in->dropped || node->engine.installing ||
        (!in->file && !hf_wal_reserve_lend(node->journal.wal)))
        return NULL;
    job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->job = (struct hf_node_job){run_receive, end_receive};
    job->disk = node->disk;
    job->cluster = node->opts.cluster;
    job->machine = &node->machine;
    job->now = node->now;
    job->version = node->opts.version;
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

    if (!in->file || in->dropped || node->machine.applied < in->index)
        return;
    in->dropped = in->file;
    in->file = NULL;
    hf_wal_reserve_return(node->journal.wal);
}

void hf_transfers_install(struct hf_node *node)
{
    struct hf_transfers *in = &node->transfers;

    if (!in->store)
        return;
    discard_store(in, hf_state_machine_replace(&node->machine, in->store,
                                               node->engine.snapshot.index));
    in->store = NULL;
    in->installed++;
    hf_compaction_restart(node, in->store_size);
    if (node->hooks.on_restored)
        node->hooks.on_restored(node->hooks_arg);
}

/* ---- Cleaning up --------------------------------------------------------*/

struct clean_job {
    struct hf_node_job job;
    struct hf_disk *disk;
    struct hf_store *store;
    struct hf_snapshot_transfer *dropped;
    struct hf_snapshot_file *closing[HF_RAFT_VOTERS_MAX];
    size_t closing_count;
    uint64_t index; /* remove the snapshot at this index; 0: none */
    enum hf_err err;
    struct hf_error error;
};

void hf_transfers_close(struct hf_node *node, struct hf_snapshot_file *file)
{
    struct hf_transfers *transfers = &node->transfers;

    if (transfers->closing_count < HF_RAFT_VOTERS_MAX && file)
        transfers->closing[transfers->closing_count++] = file;
    else
        hf_snapshot_file_close(file);
}

static void run_clean(struct hf_node_job *base)
{
    struct clean_job *job = (struct clean_job *)base;

    hf_state_machine_free_store(job->store);
    hf_snapshot_transfer_cancel(job->dropped);
    for (size_t i = 0; i < job->closing_count; i++)
        hf_snapshot_file_close(job->closing[i]);
    if (job->index > 0)
        job->err = hf_snapshot_file_remove(job->disk, job->index, &job->error);
}

static void end_clean(struct hf_node *node, struct hf_node_job *base)
{
    struct clean_job *job = (struct clean_job *)base;

    if (job->err)
        hf_node_fail(node, &job->error);
    free(job);
}

/* Remove a refused snapshot only if it is newer than the engine's. Otherwise
 * the engine may have a snapshot of its own at the same index, and compaction
 * removes older files. */
struct hf_node_job *hf_transfers_clean_job(struct hf_node *node)
{
    struct hf_transfers *in = &node->transfers;
    struct clean_job *job;

    if (in->refused <= node->engine.snapshot.index)
        in->refused = 0;
    if (!in->trash && !in->dropped && in->closing_count == 0 &&
        in->refused == 0)
        return NULL;
    job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->job = (struct hf_node_job){run_clean, end_clean};
    job->disk = node->disk;
    job->store = in->trash;
    job->dropped = in->dropped;
    job->index = in->refused;
    job->closing_count = in->closing_count;
    memcpy(job->closing, in->closing, sizeof(job->closing));
    in->trash = NULL;
    in->dropped = NULL;
    in->closing_count = 0;
    in->refused = 0;
    return &job->job;
}

void hf_transfers_fini(struct hf_node *node)
{
    for (size_t i = 0; i < node->peers.count; i++)
        hf_transfers_stop(node, &node->peers.list[i]);
    for (size_t i = 0; i < node->transfers.closing_count; i++)
        hf_snapshot_file_close(node->transfers.closing[i]);
    hf_snapshot_transfer_cancel(node->transfers.dropped);
    hf_snapshot_transfer_cancel(node->transfers.file);
    hf_buf_fini(&node->transfers.part);
    hf_state_machine_free_store(node->transfers.store);
    hf_state_machine_free_store(node->transfers.trash);
}
