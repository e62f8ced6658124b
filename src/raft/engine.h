/* engine.h - consensus: one node's part of the Raft protocol, without I/O.
 *
 * One step takes an event and returns an update: what to store, what to send,
 * what is committed. The engine reads no clock, has no thread and does no I/O,
 * so a simulator runs the same code as a node. libraft makes the decisions,
 * with the rules in rules.h around it; only the files of the engine use it
 * (library.h).
 *
 * An *entry* of the log is a command of the caller, the barrier of a new
 * leader, or a change of the voters; its *index* is its number in the log. A
 * *term* is the number of a leadership: it has at most one leader. An entry is
 * *committed* when it is permanent, because a majority of the *voters*, which
 * all nodes of a cluster are, has it on disk.
 *
 * What the caller does with an update, in this order:
 *   1. Store what it asks for: hard state, then entries or an installation. All
 *      of it is one write with the number `write`, after all earlier writes.
 *   2. Send the messages, in order, once the write `after` is durable.
 *   3. Apply the entries up to `commit`.
 *   4. Set a timer to `timeout`, and step a TICK then.
 * When a flush is complete, the caller steps PERSISTED with the number of the
 * last write that is durable. Up to HF_RAFT_WRITES_MAX writes may be in flight.
 * No step waits for a write: the step of PERSISTED returns the acknowledgement
 * that a follower sends to its leader.
 *
 * Messages and the entries in them are valid until the next call.
 *
 * An engine that returns HF_ESYSTEM has failed: its state is unknown, the
 * process must stop, and what is on the disk is sound. */
#ifndef HF_RAFT_ENGINE_H
#define HF_RAFT_ENGINE_H

#include "base/time.h"
#include "raft/entries.h"
#include "raft/membership.h"
#include "raft/message.h"
#include "raft/writes.h"

enum hf_engine_role {
    HF_ENGINE_FOLLOWER = 1,
    HF_ENGINE_CANDIDATE,
    HF_ENGINE_LEADER,
};

struct hf_engine_config {
    uint64_t id;
    uint32_t election_ms;  /* minimum; a timeout is up to twice as long */
    uint32_t heartbeat_ms; /* less than half of election_ms */
    uint32_t inflight_max; /* entries sent to a peer and not acknowledged */
    uint32_t trailing;     /* entries kept before a snapshot, for slow peers;
                              fewer if they are large */
    uint32_t seed;         /* of the random timeouts */
};

/* A snapshot, which replaces the entries up to `index`. */
struct hf_engine_snapshot {
    uint64_t index, term;    /* 0, 0: there is none */
    uint64_t members_index;  /* of the entry with the members */
    struct hf_bytes members; /* as of `index`, see membership.h */
};

/* What is on the disk when a node starts, besides the log. */
struct hf_engine_loaded {
    uint64_t term, vote;
    struct hf_engine_snapshot snapshot;
};

enum hf_engine_event_kind {
    HF_ENGINE_TICK = 1,
    HF_ENGINE_RECEIVE,
    HF_ENGINE_PERSISTED,
    HF_ENGINE_SUBMIT,
    HF_ENGINE_SNAPSHOT_TAKEN,
    HF_ENGINE_SNAPSHOT_RECEIVED,
    HF_ENGINE_TRANSFER,
    HF_ENGINE_LEADER_LOST,
};

struct hf_engine_event {
    enum hf_engine_event_kind kind;
    hf_time now; /* never decreases */
    union {
        const struct hf_message *message; /* RECEIVE: from `message->peer` */
        uint64_t write;                   /* PERSISTED: last durable write */
        struct {
            const struct hf_bytes *commands;
            size_t count;
        } submit;
        uint64_t index; /* SNAPSHOT_TAKEN: last entry in the durable file */
        struct {
            uint64_t from, term; /* the leader, and its term */
            struct hf_engine_snapshot snapshot;
        } received;
        uint64_t peer; /* TRANSFER: the new leader; LEADER_LOST: the old one */
    };
};

enum hf_engine_change {
    HF_ENGINE_HARD_STATE = 1, /* store term and vote */
    HF_ENGINE_ENTRIES = 2,    /* store: cut from `first`, append up to `last` */
    HF_ENGINE_INSTALL = 4,    /* store: publish the snapshot that was received,
                                 then reset the log to begin after it */
    HF_ENGINE_RESET = 8,    /* store: reset the log to begin after the snapshot
                                 that was loaded */
    HF_ENGINE_ROLE = 16,    /* role or leader changed */
    HF_ENGINE_COMMIT = 32,  /* the commit index has increased */
    HF_ENGINE_RESTORE = 64, /* the installation is durable: load its state */
};

struct hf_engine_update {
    unsigned changes; /* bits of enum hf_engine_change */
    uint64_t write;   /* number of the write; 0: nothing is to be stored */
    uint64_t term, vote;
    uint64_t first, last; /* ENTRIES: store these, from the engine's log */
    const struct hf_message *messages; /* each to its `peer` */
    size_t message_count;
    uint64_t after; /* send the messages when this write is durable; 0: now */
    /* Send the newest durable snapshot to these peers, and send lost parts
     * again until the peer has all of it, its connection is lost, or this node
     * no longer leads. Ignore a peer that a later update names while its
     * transfer is in progress. */
    uint64_t snapshot_peers[HF_RAFT_VOTERS_MAX];
    size_t snapshot_peer_count;
    enum hf_engine_role role;
    uint64_t leader; /* may be dead; 0: unknown */
    uint64_t commit; /* 0 while a snapshot is being installed */
    hf_time timeout;
    uint64_t submitted; /* SUBMIT: the index of the first command */
};

struct raft;
struct raft_entry;

struct hf_engine {
    struct hf_engine_config config;
    struct raft *raft;
    struct hf_entries log; /* load it before the start, then only read it */
    struct hf_membership members;
    struct hf_engine_snapshot snapshot; /* the newest */
    struct hf_buf members_bytes;
    uint64_t commit;
    uint64_t durable;     /* index up to which the log is known to be durable */
    uint64_t lost_leader; /* replace it once the log is durable; 0: none */
    uint64_t lost_term;
    uint64_t granted_term; /* in this term, ... */
    uint32_t granted;      /* ... these voters, a bit each, voted for us */
    struct hf_writes writes;
    uint64_t last_write, durable_write, hard_state_write;
    hf_time hard_state_at;    /* when hard_state_write was asked for */
    enum hf_engine_role role; /* as of the last update */
    uint64_t leader;
    bool installing; /* from HF_ENGINE_INSTALL until its write is durable */
    bool started;
    bool failed;
    const char *failure; /* why the engine has failed, or NULL */
    uint64_t commit_sent[HF_RAFT_VOTERS_MAX]; /* commit index that was sent, by
                                                 voter */
    uint64_t unanswered[HF_RAFT_VOTERS_MAX];  /* bytes of entries that were sent
                                                 since the last APPEND_RESULT */
    struct hf_batch *arriving; /* entries that a step may append */
    struct raft_entry *library_entries;
    size_t library_capacity;
    struct hf_message *messages;
    size_t message_count, message_capacity;
    struct hf_entry *sending; /* the entries of all messages */
    size_t sending_capacity;
};

/* Returns HF_EINVAL for an invalid configuration, HF_EUNSUPPORTED if the
 * library at run time is of another version, or HF_ENOMEM. */
enum hf_err hf_engine_init(struct hf_engine *engine,
                           const struct hf_engine_config *config);
void hf_engine_fini(struct hf_engine *engine);

/* Make the first entry of a new cluster, which is the same on all of its nodes.
 * Its data is appended to `data`. */
void hf_engine_first_entry(const struct hf_membership *members,
                           struct hf_buf *data, struct hf_entry *entry);

/* Start the engine, after the caller has appended the stored entries to
 * `engine->log`. If the log disagrees with the snapshot, the engine empties it,
 * and the update has HF_ENGINE_RESET. The members are read from the snapshot
 * or, without one, from entry 1. Returns HF_EINVAL if they are missing or
 * malformed, HF_ENOMEM or HF_ESYSTEM. */
enum hf_err hf_engine_start(struct hf_engine *engine,
                            const struct hf_engine_loaded *loaded, hf_time now,
                            struct hf_engine_update *update);

/* Handle one event. After these errors, nothing has changed:
 *   HF_ENOMEM, HF_ELIMIT  the caller may drop the message or refuse the command
 *   HF_ESTATE             SUBMIT, TRANSFER: this node does not lead;
 *                         SNAPSHOT_TAKEN: the entry is not committed, not
 *                         durable or not after the last snapshot, or a received
 *                         snapshot is being installed
 *   HF_EBUSY              SUBMIT: a transfer is in progress; TRANSFER: the peer
 *                         lacks entries, or a transfer is in progress;
 *                         SNAPSHOT_RECEIVED: another one is being installed
 *   HF_EINVAL             TRANSFER: the peer is not another voter;
 *                         SNAPSHOT_RECEIVED: the sender is no voter, or the
 *                         snapshot's description is malformed */
enum hf_err hf_engine_step(struct hf_engine *engine,
                           const struct hf_engine_event *event,
                           struct hf_engine_update *update);

/* Messages outside of an update, such as ECHO and LEADER_LOST, also contain the
 * term, so they must wait until the term is durable. Returns the write that
 * they wait for, or 0. */
uint64_t hf_engine_after(const struct hf_engine *engine);

uint64_t hf_engine_term(const struct hf_engine *engine);
enum hf_engine_role hf_engine_role(const struct hf_engine *engine);
uint64_t hf_engine_leader(const struct hf_engine *engine);

/* Returns true if this node leads and has committed an entry of its own term.
 * Only then does its commit index cover all that earlier leaders committed. */
bool hf_engine_can_read(const struct hf_engine *engine);

/* Returns the index up to which `peer` has acknowledged entries, or 0 if this
 * node does not lead or `peer` is no voter. */
uint64_t hf_engine_match(const struct hf_engine *engine, uint64_t peer);

/* As the leader, make an append without entries that carries the commit index
 * to `peer`. Otherwise a follower receives it with the next append, which is a
 * heartbeat later if there are no commands. The caller sends `*message` like
 * those of an update. Returns false if there is nothing to send: this node does
 * not lead, `peer` is not another voter or lacks committed entries, or the
 * commit index was sent already. */
bool hf_engine_send_commit(struct hf_engine *engine, uint64_t peer,
                           struct hf_message *message);

#endif
