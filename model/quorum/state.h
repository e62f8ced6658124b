/* state.h - one state of the model: masters, clients and the network.
 *
 * The model has one key. A state is a plain value of bytes: it is copied,
 * compared and hashed as a whole, and every byte of it has a meaning.
 *
 * Network. `messages` is the set of all requests that were ever sent. Each of
 * them may reach each master at any time, any number of times, or never. So
 * requests are lost, repeated, reordered and delayed without limit. An answer
 * is recorded with the client when the master acts; the client may use any part
 * of what is recorded, at any later time. So answers are lost and delayed.
 *
 * Time. There are no instants. A client numbers the sends that carry a lease:
 * 1, 2, and so on. The validity of its claim counts from one of these sends,
 * and `lapsed` is the newest send from which all validity has ended; it may
 * rise at any moment. A master may expire a lease that it counts from send S
 * only if S has lapsed: the rule for leases and clocks guarantees that a lease
 * at a master outlasts the validity that the client counts from the send. A
 * master that restarts is quiet until every send before its restart has lapsed.
 *
 * Chance. A choice that depends on timing is a choice of the explorer. */
#ifndef HF_MODEL_QUORUM_STATE_H
#define HF_MODEL_QUORUM_STATE_H

#include <stdbool.h>
#include <stdint.h>

#ifndef MASTERS
#define MASTERS 3
#endif

enum {
    /* Any two majorities have a master in common. */
    MAJORITY = MASTERS / 2 + 1,
    /* Any two fast quorums and any majority have a master in common: 3 of 3,
     * 4 of 5. */
    FAST_QUORUM = (2 * MASTERS - MAJORITY + 2) / 2,
    CLIENTS_MAX = 3,
    MESSAGES_MAX = 32,
    NUMBER_MAX = 14,
    NOBODY = 15, /* where a claim or a client is named: none */
};

/* Which send of its client the lease of a claim counts from. */
typedef uint8_t hf_send;

/* The highest ballot number that a master has promised, and to which client. A
 * promise is never lowered and has no deadline. */
struct hf_promise {
    uint8_t number;
    uint8_t to; /* NOBODY: the number is closed to all */
};

/* At equal ballots, the verdict looks at the later of these. */
enum hf_lease_state {
    LEASE_NONE,
    LEASE_HELD,
    LEASE_EXPIRED,
    LEASE_RELEASED,
};

/* What a master knows about the last grant. */
struct hf_lease {
    uint8_t state;
    uint8_t ballot; /* the number under which this content was written */
    uint8_t claim;
    uint8_t token; /* the number under which the claim was granted the key */
    uint8_t value; /* of the key; see value.h */
    hf_send send;
};

/* A provisional lease, on top of a lease layer that is not held. */
struct hf_vote {
    uint8_t claim; /* NOBODY: there is no vote */
    uint8_t number;
    hf_send send;
    bool slow; /* it does not count towards a fast quorum */
};

/* A master's record of the key. */
struct hf_master {
    struct hf_promise promise;
    struct hf_lease lease;
    struct hf_vote vote;
    uint8_t ended; /* a bit for each claim that has ended here */
    uint8_t mark;  /* the synced file: at least `promise.number` */
    bool quiet;    /* restarted empty, and answers nothing yet */
    bool idle;     /* the key is free and nothing changes */
    /* The newest send of each claim when it began to be quiet or idle. */
    hf_send since[CLIENTS_MAX];
};

/* What an answer shows of the master's record. */
struct hf_report {
    struct hf_lease lease;
    struct hf_vote vote;
    uint8_t ended;
};

/* The answer of one master to the last request of a client. Only a positive
 * answer is recorded: a vote, a promise, OK, ended. */
struct hf_answer {
    bool positive;
    struct hf_report report; /* of a promise; the ballot of a renewed lease */
};

/*   IDLE --> ASKING ----------+----> HOLDING <--> RENEWING
 *              |  |           ^       |   ^
 *              |  v           |       v   +--------------+
 *              | COMMITTING --+    REPAIR_PREPARING      |
 *              v    ^                 |                  |
 *            PREPARING                +--> REPAIR_COMMITTING
 *
 * From ASKING and COMMITTING, too, a client may go to PREPARING with a higher
 * number. From HOLDING on, it may begin to renew or repair at any time. From all
 * of these it may go to ENDING, and then to ENDED.
 *
 *   IDLE --> UPDATE_PREPARING --> UPDATE_COMMITTING --> UPDATED  (an updater)
 */
enum hf_phase {
    IDLE,
    ASKING,
    PREPARING,
    COMMITTING,
    HOLDING,
    RENEWING,
    REPAIR_PREPARING,
    REPAIR_COMMITTING,
    ENDING,
    ENDED,
    UPDATE_PREPARING,
    UPDATE_COMMITTING,
    UPDATED,
};

/* A client, which runs the protocol: the coordinator of a claim, or an updater,
 * another process that knows the nonce and the token of claim A. */
struct hf_client {
    uint8_t phase;
    uint8_t number;     /* of its current ballot */
    uint8_t number_max; /* the highest that it has used */
    uint8_t ballot_max; /* the highest at which it sent COMMIT or held */
    uint8_t token;
    uint8_t highest;    /* the highest number that an answer has shown */
    uint8_t ballots;    /* how many it has used to get the key, or to update */
    uint8_t renewals;   /* how many renewals and repairs it has begun */
    bool slow;          /* it asks for slow votes */
    hf_send sends;      /* how many of its sends carried a lease */
    hf_send valid_send; /* validity counts from this one; 0: not held */
    hf_send lapsed;     /* validity from this send and older ones has ended */
    uint8_t value;      /* that its COMMIT writes */
    uint8_t update;     /* an updater: what it does; see value.h */
    uint8_t value_seen; /* an updater: value.h */
    struct hf_answer answers[MASTERS];
};

enum hf_message_type {
    ASK = 1,
    PREPARE,
    COMMIT,
    RENEW,
    END,
};

struct hf_message {
    uint8_t type;
    uint8_t claim;  /* its nonce */
    uint8_t client; /* which sent it */
    uint8_t number; /* END: the highest that the client has used; RENEW: 0 */
    uint8_t token;  /* COMMIT, RENEW */
    uint8_t ballot; /* END: the highest at which it sent COMMIT or held */
    uint8_t value;  /* COMMIT */
    hf_send send;   /* ASK, COMMIT, RENEW: the lease counts from this send */
    bool slow;      /* ASK */
};

/* What a master has reported to the reader. */
struct hf_reading {
    bool reported;
    bool changed; /* the record has changed between the begin and the report */
    struct hf_lease lease;
    struct hf_vote vote; /* a fast one */
    uint8_t ended;
};

/* A client that reads the key; see reader.c. */
struct hf_reader {
    bool reading;
    uint8_t reads;        /* how many it has begun */
    uint8_t valid;        /* claims that were valid during the whole read */
    uint8_t ended;        /* claims whose end was confirmed before the read */
    uint8_t token_before; /* the highest token granted before the read */
    uint8_t known_before; /* claims that were known before the read */
    uint8_t value_before; /* the value that was observed before the read */
    uint8_t read_as_held; /* claims that a read has named */
    uint8_t ended_then;   /* known claims that had begun to end at a "free" */
    struct hf_reading readings[MASTERS];
};

struct hf_state {
    struct hf_master masters[MASTERS];
    struct hf_client clients[CLIENTS_MAX]; /* of the claims, then updaters */
    struct hf_reader reader;
    uint8_t restarts;
    uint8_t drops;
    uint8_t granted;        /* claims that were granted the key */
    uint8_t token_max;      /* the highest token that was granted */
    uint8_t value_observed; /* the newest value that a client has observed */
    uint8_t broken;         /* an invariant that the last step violated */
    uint8_t message_count;
    struct hf_message messages[MESSAGES_MAX]; /* sorted; the rest is zero */
};

/* The state before the first step. */
void hf_state_init(struct hf_state *state);

/* Add `message` to the set of requests that were sent. */
void hf_state_send(struct hf_state *state, const struct hf_message *message);

/* 64 bits that identify the state. Two states that differ only in the order of
 * their masters have the same fingerprint. */
uint64_t hf_state_fingerprint(const struct hf_state *state);

/* ---- short questions ---------------------------------------------------- */

static inline bool has_vote(const struct hf_master *master)
{
    return master->vote.claim != NOBODY;
}

static inline bool is_held(const struct hf_master *master)
{
    return master->lease.state == LEASE_HELD;
}

static inline bool is_valid(const struct hf_client *client)
{
    return client->valid_send > client->lapsed;
}

#endif
