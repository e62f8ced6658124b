/* coordinator.h - one claim of a client, as its coordinator sees it: acquire,
 * renew, update, release, by requests to all masters and their replies.
 *
 * Pure: replies and the time in, requests and events out.
 *
 *              all but M      M votes,        M OKs
 *     ASK -----------> WAIT   not fast --> COMMIT ----> HOLD <---> RENEW
 *      |  \             | ^                  ^           | ^         |
 *      |   \ F fast     | | push             |           | |         | missing
 *      |    votes: HOLD v |                  |           v |         v
 *      +---------------> PREPARE ------------+        PREPARE ---> COMMIT
 *         split, stuck           nobody holds         to repair, to update
 *
 * END is possible in every state. M is a majority, F a fast quorum (quorum.h).
 *
 * Requests are sent only to masters that are usable: connected, not silent, and
 * not quiet after a restart. When one becomes usable again, the current request
 * is sent to it, too; repeats are harmless. A claim may end while a master is
 * not usable, so the client closes the connection to it: then that master
 * forgets claims that wait. */
#ifndef HF_CORE_QUORUM_COORDINATOR_H
#define HF_CORE_QUORUM_COORDINATOR_H

#include "core/quorum/bids.h"
#include "core/quorum/verdict.h"

/* ---- What the coordinators of a client have in common -------------------*/

struct hf_coordinators {
    struct hf_quorum quorum;
    unsigned usable;      /* bits of masters */
    uint64_t highest;     /* the highest number that a master has reported */
    uint32_t patience_ms; /* how long a fast quorum may take, if a majority has
                             replied */
    uint32_t spread;      /* the most that is added, at random, to all numbers
                             of a claim but the first, so that racing claims
                             do not choose the same one */
    uint64_t chance;      /* seed of the jitter */
};

/* ---- Events -------------------------------------------------------------*/

enum hf_coordinator_event_kind {
    HF_COORDINATOR_QUEUED,  /* a majority has queued the claim */
    HF_COORDINATOR_GRANTED, /* token, sent, age_ms */
    HF_COORDINATOR_BUSY,    /* another claim holds the key; withdrawn */
    HF_COORDINATOR_RENEWED, /* sent */
    HF_COORDINATOR_UPDATED,
    HF_COORDINATOR_MISMATCH, /* the value is not the expected one */
    HF_COORDINATOR_FORCED,   /* an operator has broken the lock: it is held
                                until its lease expires */
    HF_COORDINATOR_LOST,     /* a majority no longer has the lease: another
                                claim may hold the key */
    HF_COORDINATOR_REFUSED,  /* `err`: HF_ELIMIT, HF_ENOMEM or HF_EINVAL for a
                                limit of the masters, HF_ECANCELED if the claim
                                was ended elsewhere. A lock is withdrawn, a
                                renewal changes nothing */
    HF_COORDINATOR_ENDED,    /* a majority has ended the claim */
};

struct hf_coordinator_event {
    enum hf_coordinator_event_kind kind;
    enum hf_err err;
    uint64_t token;
    uint32_t position; /* QUEUED: from 1 */
    /* The lease started no earlier than `sent` plus `age_ms` on the clock of a
     * master. */
    hf_time sent;
    uint32_t age_ms;
    bool was_held;     /* ENDED: the claim still held the key, or an earlier END
                          has released it */
    bool was_released; /* ENDED: that is certain if the lease had not expired
                          before */
    /* GRANTED, RENEWED: how many masters are needed, have voted, and hold the
     * lease, as far as they have replied. */
    unsigned needed, votes, commits;
};

struct hf_coordinator;

struct hf_coordinator_ops {
    void (*send)(void *arg, struct hf_coordinator *coordinator, unsigned master,
                 const struct hf_quorum_request *request);

    /* Called inside the functions below. Must not call any of them. */
    void (*event)(void *arg, struct hf_coordinator *coordinator,
                  const struct hf_coordinator_event *event);
};

/* ---- Coordinators -------------------------------------------------------*/

enum hf_coordinator_state {
    HF_COORDINATOR_IDLE,
    HF_COORDINATOR_ASK,     /* replies to an ASK are awaited */
    HF_COORDINATOR_WAIT,    /* the claim waits in the queue */
    HF_COORDINATOR_PREPARE, /* for `purpose` */
    HF_COORDINATOR_COMMIT,  /* for `purpose` */
    HF_COORDINATOR_HOLD,
    HF_COORDINATOR_RENEW,
    HF_COORDINATOR_END,
    HF_COORDINATOR_DONE, /* free it */
};

enum hf_coordinator_purpose {
    HF_PURPOSE_LOCK,
    HF_PURPOSE_RENEW,  /* a majority did not have the lease any more */
    HF_PURPOSE_REPAIR, /* renewed, but some masters lacked the lease */
    HF_PURPOSE_UPDATE,
};

#define HF_COORDINATOR_ANCHORS 8

struct hf_coordinator {
    struct hf_coordinators *common;
    const struct hf_coordinator_ops *ops;
    void *arg;

    struct hf_nonce nonce;
    struct hf_claim_id id;
    struct hf_claim_copy data; /* of the claim; after an update, its value */
    uint32_t lease_ms;
    bool queue;

    enum hf_coordinator_state state;
    enum hf_coordinator_purpose purpose;
    bool fast;              /* ASK: a fast quorum was usable */
    bool is_queued;         /* a majority has queued the claim */
    bool is_queue_reported; /* ... and QUEUED was reported */
    bool is_pushed;         /* ASK: votes were pushed since it was sent */
    bool was_free;          /* the last ASK has found that nobody can hold the
                              key */
    bool is_silent;         /* END: report no event */
    bool is_reported;       /* RENEW, END: the event was reported */
    unsigned races;         /* that it has lost, and that nobody has won yet */
    unsigned retries;       /* of PREPARE and COMMIT, in a row */
    uint64_t number;        /* of the current request */
    uint64_t highest_used;  /* number */
    uint64_t ballot;        /* highest number of a COMMIT, or of the grant */
    uint64_t ticket;
    uint64_t token;
    uint32_t serial;
    uint32_t round; /* serial of the first request with the current content */

    hf_time sent;        /* when the current request was first sent */
    hf_time number_sent; /* when an ASK with this number was first sent */
    hf_time patience_at; /* decide without the masters that are silent */
    hf_time check_at;    /* ask again, or retry */

    /* When the last ASKs were sent. */
    struct {
        uint32_t serial;
        hf_time sent;
    } anchors[HF_COORDINATOR_ANCHORS];

    /* Wanted next, when the current operation is complete. */
    bool wants_renew;
    bool wants_update;
    bool has_expected;
    struct hf_claim_copy expected; /* as a value */
    struct hf_claim_copy wanted;   /* the new value */
    uint64_t update_ballot; /* number of the first COMMIT of the update */
    uint32_t left_ms;       /* the lease of an update where a master lacks it */

    /* The newest value that the replies to a PREPARE have shown. */
    struct hf_claim_copy shown;
    uint64_t shown_ballot;

    unsigned replied; /* bits of masters */
    uint16_t key_size;
    uint8_t *key;
    struct hf_quorum_reply replies[]; /* one for each master */
};

/* A coordinator for the claim `nonce`, which is IDLE. NULL if memory is
 * exhausted. `common` must outlive it. */
struct hf_coordinator *hf_coordinator_new(struct hf_coordinators *common,
                                          const struct hf_coordinator_ops *ops,
                                          void *arg, struct hf_key key,
                                          const struct hf_nonce *nonce,
                                          const struct hf_claim_data *data);

/* Before a claim is freed that has sent requests and is not DONE, close the
 * connections to the masters that have not ended it: they would keep it in
 * their queues. */
void hf_coordinator_free(struct hf_coordinator *coordinator);

/* Acquire the key: GRANTED, BUSY or REFUSED follows; with `queue`, perhaps
 * QUEUED first. */
void hf_coordinator_lock(struct hf_coordinator *coordinator, hf_time now,
                         uint32_t lease_ms, bool queue);

/* The claim, which is IDLE, was granted `token` in another process. */
void hf_coordinator_adopt(struct hf_coordinator *coordinator, uint64_t token);

/* RENEWED, FORCED, LOST or REFUSED follows. If a renewal is in progress, it
 * starts again. */
void hf_coordinator_renew(struct hf_coordinator *coordinator, hf_time now,
                          uint32_t lease_ms);

/* Change the value; UPDATED, MISMATCH or LOST follows. `expected` may be NULL.
 * One update at a time, unless it was abandoned. Returns HF_ENOMEM if memory is
 * exhausted. */
enum hf_err hf_coordinator_update(struct hf_coordinator *coordinator,
                                  hf_time now, const struct hf_bytes *expected,
                                  struct hf_bytes value);

/* The caller does not wait for the update any longer. */
void hf_coordinator_abandon_update(struct hf_coordinator *coordinator);

/* Release, or withdraw; ENDED follows, then the coordinator is DONE. */
void hf_coordinator_end(struct hf_coordinator *coordinator, hf_time now);

/* A reply to a request of this claim, or a push. Replies to earlier requests do
 * no harm. Updates common->highest. */
void hf_coordinator_receive(struct hf_coordinator *coordinator, hf_time now,
                            unsigned master,
                            const struct hf_quorum_reply *reply);

/* The master has become usable, or is no longer usable. The caller has changed
 * common->usable. */
void hf_coordinator_connect(struct hf_coordinator *coordinator, hf_time now,
                            unsigned master);
void hf_coordinator_disconnect(struct hf_coordinator *coordinator, hf_time now,
                               unsigned master);

/* Do what is due. hf_coordinator_deadline() returns when that will be. */
void hf_coordinator_tick(struct hf_coordinator *coordinator, hf_time now);
hf_time hf_coordinator_deadline(const struct hf_coordinator *coordinator);

#endif
