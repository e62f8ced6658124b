/* master.h - one master of a quorum: the leases, votes and queues of all keys.
 *
 * Pure: messages and the time in, messages out. Each request has one reply. A
 * claim that waits is pushed a reply to its last ASK when that changes: a VOTE,
 * or LOW if its number has become too low.
 *
 * Always true:
 *   1. a number that was promised is at most the *mark*, which its driver has
 *      made durable; after a restart, every number up to the mark counts as
 *      promised. So a number is never promised twice, and tokens rise;
 *   2. a lease or a vote never ends before its deadline, unless its claim ends
 *      it or a COMMIT with a higher number replaces it;
 *   3. when a key is free and claims wait whose connections are open, the first
 *      of them has the vote, or was pushed LOW and asks again; after
 *      HF_QUORUM_LOW_MS, the next one is first;
 *   4. a request that fails for lack of memory changes nothing. */
#ifndef HF_CORE_QUORUM_MASTER_H
#define HF_CORE_QUORUM_MASTER_H

#include "core/quorum/record.h"

struct hf_master_ops {
    /* Send `reply` to the claim `id`, over the connection of its last ASK. */
    void (*push)(void *arg, uint64_t conn, const struct hf_claim_id *id,
                 const struct hf_quorum_reply *reply);

    /* The lease or the vote of the key may change now, and has changed. Between
     * the two, no other record changes. `changing` may be called without
     * `changed`. Either may be NULL. */
    void (*changing)(void *arg, const struct hf_record *record);
    void (*changed)(void *arg, const struct hf_record *record);
};

struct hf_master_opts {
    struct hf_seed seed;
    uint64_t mark;         /* durable */
    uint64_t floor;        /* numbers up to this count as promised */
    hf_time quiet_until;   /* a new master: 0 */
    uint32_t lease_max_ms; /* longer leases are refused */
    size_t bytes_max;      /* memory of records and bids, roughly */
};

struct hf_master {
    struct hf_master_opts opts;
    const struct hf_master_ops *ops;
    void *arg;
    hf_time now;
    uint64_t mark;
    uint64_t floor;   /* keys without a record: promised, to nobody */
    uint64_t highest; /* number or ticket */
    uint64_t refused; /* the highest number that was refused for the mark */
    struct hf_map records; /* by key */
    struct hf_dlist all;   /* records, in order of creation */
    struct hf_dlist walks; /* over the records */
    uint64_t created;      /* how many records were created */
    struct hf_heap timers; /* of records */
    struct hf_bids bids;
    size_t bytes; /* memory of the records, roughly */
};

void hf_master_init(struct hf_master *master, const struct hf_master_opts *opts,
                    const struct hf_master_ops *ops, void *arg);
void hf_master_fini(struct hf_master *master);

/* Handle a valid request that was received over the connection `conn`. The
 * bytes of the reply are borrowed until the next call. Pushes to other claims
 * may be sent meanwhile. */
void hf_master_receive(struct hf_master *master, hf_time now, uint64_t conn,
                       const struct hf_quorum_request *request,
                       struct hf_quorum_reply *reply);

/* The connection is closed. Its claims that wait leave the queue after
 * HF_QUORUM_GRACE_MS, unless they ask again over another connection; until
 * then, they are passed over. Votes stay. */
void hf_master_disconnect(struct hf_master *master, hf_time now, uint64_t conn);

/* Do what is due at `now`. hf_master_deadline() returns when that will be. */
void hf_master_advance(struct hf_master *master, hf_time now);
hf_time hf_master_deadline(const struct hf_master *master);

/* The mark to make durable soon; 0: the current one is enough. When it is
 * durable, call hf_master_set_mark(). Meanwhile, numbers above the current one
 * are refused with HF_EUNAVAIL. */
uint64_t hf_master_wanted_mark(const struct hf_master *master);
void hf_master_set_mark(struct hf_master *master, uint64_t mark);

/* The record of `key`, or NULL. */
struct hf_record *hf_master_find(const struct hf_master *master,
                                 struct hf_key key);

/* What this master knows of `key`. */
void hf_master_report(const struct hf_master *master, struct hf_key key,
                      bool with_data, struct hf_report *report);

/* Iterate over the records: pass NULL first; NULL ends the iteration. */
struct hf_record *hf_master_next(const struct hf_master *master,
                                 const struct hf_record *record);

/* The same, while records come and go between the steps: a walk visits, in
 * order of creation, each record that exists all the time, once. End each walk
 * before hf_master_fini(). Each removal of a record looks at all walks, so
 * there should be few. */
struct hf_master_walk {
    struct hf_dlist link;   /* in master->walks */
    struct hf_record *next; /* NULL: the end */
};
void hf_master_walk_begin(struct hf_master *master,
                          struct hf_master_walk *walk);
struct hf_record *hf_master_walk_next(const struct hf_master *master,
                                      struct hf_master_walk *walk);
void hf_master_walk_end(struct hf_master_walk *walk);

struct hf_master_summary {
    size_t held;    /* keys with a lease */
    size_t votes;   /* keys with a vote that is not a lease yet */
    size_t waiters; /* of all keys */
    size_t records;
};
void hf_master_summarize(const struct hf_master *master,
                         struct hf_master_summary *summary);

#endif
