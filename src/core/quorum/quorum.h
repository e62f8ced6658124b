/* quorum.h - the messages of the quorum protocol, and what is common to its two
 * halves.
 *
 * A lock of quorum: is a lease that a majority of *masters* holds, each in its
 * own memory and on its own clock. A *coordinator* (coordinator.h), in the
 * client, sends requests to all masters and decides by their replies. A master
 * (master.h) decides only for itself. There is no leader and no log.
 *
 * For each key this is Paxos. The *number* of a request is the Paxos ballot. It
 * does not contain the id of its claim, so two claims may use the same one: a
 * master that has *promised* a number to one claim accepts no lower number, nor
 * the same one from another claim. The number under which a claim was granted
 * is its token.
 *
 *     ASK      promise and provisional acceptance in one: the master gives its
 *              *vote*, or queues the claim. A fast quorum of `fast` votes is
 *              a grant, after one round trip. Otherwise, a majority of votes
 *              allows a COMMIT.
 *     PREPARE  promise, and report what is known: phase 1 of Paxos
 *     COMMIT   hold the lease: phase 2 of Paxos. With a new number and the old
 *              token, it repairs a lease that some masters lack, or changes its
 *              value.
 *     RENEW    extend a lease in place; it never creates one
 *     END      release, or withdraw; leaves a trace, so that late messages of
 *              the claim have no effect
 *     READ     report what is known
 *     FORCE    break the lock with this token, for an operator
 *
 * Any request may be lost, late or repeated. A repeated request gets the same
 * reply and changes nothing.
 *
 * A nonce is the right to unlock, so a report names claims by an id, which is a
 * one-way hash of the nonce. */
#ifndef HF_CORE_QUORUM_QUORUM_H
#define HF_CORE_QUORUM_QUORUM_H

#include "base/bytes.h"
#include "base/limits.h"
#include "base/time.h"

/* ---- Sizes of quorums ---------------------------------------------------*/

struct hf_quorum {
    unsigned masters;  /* 1 to HF_QUORUM_MASTERS_MAX */
    unsigned majority; /* any two have a master in common */
    unsigned fast;     /* any two of these and a majority have one in common */
};

static inline struct hf_quorum hf_quorum_of(unsigned masters)
{
    struct hf_quorum quorum = {.masters = masters, .majority = masters / 2 + 1};

    quorum.fast = (2 * masters - quorum.majority + 2) / 2;
    return quorum;
}

/* ---- Claims -------------------------------------------------------------*/

struct hf_claim_id {
    uint8_t bytes[16];
};

struct hf_claim_id hf_claim_id_of(const struct hf_nonce *nonce);

static inline bool hf_claim_id_equal(const struct hf_claim_id *a,
                                     const struct hf_claim_id *b)
{
    return !memcmp(a, b, sizeof(*a));
}

/* What a claim says about itself. The bytes are borrowed. */
struct hf_claim_data {
    struct hf_bytes value;
    struct hf_bytes note;
    struct hf_bytes owner;
};

/* ---- Requests -----------------------------------------------------------*/

enum hf_quorum_request_kind {
    HF_QUORUM_ASK = 1, /* number, lease_ms, fast, queue, ticket, is_queued,
                          data */
    HF_QUORUM_PREPARE, /* number */
    HF_QUORUM_COMMIT,  /* number, token, lease_ms, keeps_deadline, data */
    HF_QUORUM_RENEW,   /* token, lease_ms */
    HF_QUORUM_END,     /* number, ballot */
    HF_QUORUM_READ,    /* none, and no nonce */
    HF_QUORUM_FORCE,   /* token, now; no nonce */
    HF_QUORUM_REQUEST_KINDS
};

/* The comments above list the members that a request uses besides the key, the
 * nonce and the serial. */
struct hf_quorum_request {
    enum hf_quorum_request_kind kind;
    struct hf_key key;
    struct hf_nonce nonce;
    uint64_t number; /* END: the highest that the claim has used */
    uint64_t token;
    uint64_t ballot;   /* END: the highest number at which the claim has sent a
                          COMMIT or was granted; 0: none */
    uint64_t ticket;   /* ASK: the position in the queue is by ticket, then by
                          id. The number, until a majority has queued the
                          claim */
    uint32_t serial;   /* counts the requests of the claim, from 1 */
    uint32_t lease_ms; /* COMMIT that keeps the deadline: the lease where the
                          master lacks it */
    bool fast;         /* ASK: a fast quorum of masters was connected */
    bool queue;        /* ASK: wait in the queue if the key is not free */
    bool is_queued;    /* ASK: a majority has queued the claim, so its ticket
                          is final */
    bool keeps_deadline; /* COMMIT: do not extend a lease that is there */
    bool now;            /* FORCE: end the lease at once */
    struct hf_claim_data data;
};

/* ---- Replies ------------------------------------------------------------*/

enum hf_quorum_reply_kind {
    HF_QUORUM_VOTE = 1, /* ASK: the claim has the vote of this master */
    HF_QUORUM_BUSY,     /* ASK: another claim is first; `position` in queue */
    HF_QUORUM_LOW,      /* ASK, PREPARE, COMMIT: the number is too low */
    HF_QUORUM_PROMISE,  /* PREPARE */
    HF_QUORUM_OK,       /* COMMIT, RENEW, FORCE */
    HF_QUORUM_MISSING,  /* RENEW, FORCE: there is no such lease */
    HF_QUORUM_FORCED,   /* COMMIT, RENEW: an operator has broken the lock, so
                           it cannot be extended */
    HF_QUORUM_ENDED,    /* END; others: the claim has ended at this master */
    HF_QUORUM_REPORT,   /* READ */
    HF_QUORUM_QUIET,    /* the master has restarted: it decides nothing until
                           leases that it has forgotten must have expired */
    HF_QUORUM_REFUSED,  /* a limit, no memory, or an absurd number: see `err` */
    HF_QUORUM_REPLY_KINDS
};

/* What an END has found. */
enum hf_quorum_end {
    HF_QUORUM_END_NOTHING,  /* the claim did not hold the key, or no longer */
    HF_QUORUM_END_BROKEN,   /* it was ended before: withdrawn, or by an
                              operator */
    HF_QUORUM_END_RELEASED, /* it held the key, or had the vote */
    HF_QUORUM_END_REPEATED, /* an earlier END has released it */
    HF_QUORUM_END_KINDS
};

/* What a master knows of a lease. At equal ballots, a later state is the one
 * that counts. */
enum hf_report_state {
    HF_REPORT_NONE,
    HF_REPORT_EXPIRED,
    HF_REPORT_HELD,
    HF_REPORT_RELEASED,
    HF_REPORT_STATES
};

#define HF_REPORT_ENDED_MAX 8 /* claims in the list `ended` */

/* What a master knows of a key. Spans are on the clock of the master. */
struct hf_report {
    uint64_t promised;

    enum hf_report_state state;
    uint64_t ballot; /* the number at which this state was accepted */
    uint64_t token;
    struct hf_claim_id holder;
    uint32_t held_ms; /* since the grant */
    uint32_t left_ms; /* HELD: until the lease expires */
    bool forced;      /* the lease, or else the vote, cannot be renewed */

    bool has_vote;
    bool vote_is_fast;
    uint64_t vote_number;
    struct hf_claim_id voter;
    uint32_t vote_age_ms;
    uint32_t vote_left_ms;

    uint32_t idle_ms; /* for so long, no request has changed the record;
                         UINT32_MAX: there is none */
    uint32_t waiters;
    uint8_t ended_count; /* claims that have ended here recently */
    struct hf_claim_id ended[HF_REPORT_ENDED_MAX];

    /* PROMISE and REPORT only: what the holder, or else the claim with the
     * vote, says about itself; PROMISE to a claim whose lease has expired: what
     * that says. Borrowed. */
    struct hf_claim_data data;
};

struct hf_quorum_reply {
    enum hf_quorum_reply_kind kind;
    enum hf_err err;   /* REFUSED */
    uint64_t number;   /* of the request; a vote that is pushed: its number */
    uint64_t highest;  /* the highest number that this master knows; a claim
                          that begins takes a higher one */
    uint32_t serial;   /* of the request; a vote that is pushed: 0 */
    uint32_t anchor;   /* VOTE: serial of the ASK that the master received last
                          before it gave the vote; 0: unknown */
    uint32_t age_ms;   /* VOTE: from that ASK to the vote */
    uint32_t position; /* BUSY: from 1; 0: not queued */
    uint32_t quiet_ms; /* QUIET: how much longer */
    enum hf_quorum_end end; /* ENDED, in reply to END */
    struct hf_report report;
};

#endif
