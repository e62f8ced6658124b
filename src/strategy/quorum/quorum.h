/* quorum.h - quorum://: leases that a majority of holdfastd masters holds.
 *
 * The client is connected to every master, and coordinates its claims by itself
 * (core/quorum/coordinator.h): it sends the requests of a claim to all masters
 * and decides by their replies. There is no leader. A master that is lost, or
 * decides nothing because it has restarted, is not *usable*; a majority of
 * usable masters is enough.
 *
 * The URL lists some masters. The first one that answers names all of them.
 *
 *   masters.c  the connections to the masters
 *   claims.c   claims, and the commands on them
 *   rounds.c   READ, FORCE, and the check of an adopted claim
 *   list.c     LIST, merged from the lists of the masters
 *   quorum.c   open, close, describe, and the timer
 *
 * Coordinators resend requests by themselves, so no request is repeated here. A
 * command that was sent is in doubt if it ends without a decision. */
#ifndef HF_STRATEGY_QUORUM_QUORUM_H
#define HF_STRATEGY_QUORUM_QUORUM_H

#include "base/map.h"
#include "core/quorum/coordinator.h"
#include "strategy/net/link.h"

extern const struct hf_strategy hf_strategy_quorum;

#define HF_VOTING_CLUSTER_SIZE 65 /* a cluster id in hex, with its NUL */

/* An address of the URL that turns out to be no member's occupies its slot until
 * its name is resolved, so there is one for each of them and for each member. */
#define HF_VOTING_SLOTS (2 * HF_QUORUM_MASTERS_MAX)

struct hf_voting;

/* The connection to one master. */
struct hf_voting_master {
    struct hf_net_link link;
    struct hf_voting *voting;
    struct hf_net_address address; /* port 0: the slot is free */
    uint64_t id;                   /* 0: not a known member yet */
    unsigned index;                /* of the member, if `id` is known */
    unsigned failures;             /* since the link was last up */
    hf_time connect_at;            /* HF_NEVER: connected, or being connected */
    hf_time quiet_until;           /* it decides nothing until then; or 0 */
    struct hf_error failure;       /* of the last attempt */
};

struct hf_voting {
    struct hf_net net;
    struct hf_net_sockets sockets; /* the default transport */
    struct hf_net_addresses seeds; /* the masters of the URL */

    /* masters.c */
    struct hf_voting_master masters[HF_VOTING_SLOTS];        /* in any order */
    struct hf_voting_master *members[HF_QUORUM_MASTERS_MAX]; /* by index */
    uint64_t set; /* number of the set of members; 0: not known yet */
    char cluster[HF_VOTING_CLUSTER_SIZE];
    uint32_t round_trip_ms; /* recently the longest, roughly */

    /* claims.c */
    struct hf_coordinators common;
    struct hf_map claims_by_number;
    struct hf_map claims_by_id;
    struct hf_dlist claims;
    struct hf_heap claim_timers;
    size_t active_claims;      /* those that await replies */
    struct hf_dlist lingering; /* claims that have ended, oldest first */
    size_t lingering_count;
    struct hf_dlist to_push;    /* claims with a grant that is not pushed yet */
    struct hf_post push_grants; /* pushes them when the turn ends */

    struct hf_dlist rounds; /* rounds.c */
    struct hf_dlist lists;  /* list.c */

    /* Requests that wait until the members are known. */
    struct hf_dlist pending;
    struct hf_buf scratch;
};

/* hf_strategy.open with any transport; see hf_raft_open_with(). */
enum hf_err hf_voting_open_with(struct hf_voting *voting, struct hf_url *url,
                                struct hf_host *host,
                                struct hf_net_transport *transport,
                                struct hf_error *error);

/* Answer `request` with `err`. `cause` may be NULL. */
void hf_voting_answer(struct hf_voting *voting, struct hf_request *request,
                      enum hf_err err, const char *cause);

/* The number of masters in a set of bits. */
static inline unsigned hf_voting_count(unsigned masters)
{
    unsigned count = 0;

    for (; masters; masters &= masters - 1)
        count++;
    return count;
}

/* ---- masters.c ----------------------------------------------------------*/

/* Connect to the masters of the URL. */
void hf_voting_masters_start(struct hf_voting *voting);
void hf_voting_masters_close(struct hf_voting *voting);

/* Send a message of the quorum protocol to the master `index`, which is usable;
 * `id` names the sender. */
void hf_voting_masters_send(struct hf_voting *voting, unsigned index,
                            uint64_t id,
                            const struct hf_quorum_request *request);

unsigned hf_voting_masters_usable(const struct hf_voting *voting);
bool hf_voting_masters_have_majority(const struct hf_voting *voting);

/* Returns true if a majority is not usable, and an attempt to connect to each
 * of the others has failed. */
bool hf_voting_masters_have_failed(const struct hf_voting *voting);

/* Why there is no majority. */
void hf_voting_masters_explain(const struct hf_voting *voting,
                               struct hf_error *error);

/* Call this before something is awaited from the masters. */
void hf_voting_masters_expect(struct hf_voting *voting);

/* Do what is due. hf_voting_masters_deadline() returns when that will be. */
void hf_voting_masters_tick(struct hf_voting *voting);
hf_time hf_voting_masters_deadline(const struct hf_voting *voting);

/* ---- claims.c -----------------------------------------------------------*/

void hf_voting_claims_init(struct hf_voting *voting);
void hf_voting_claims_fini(struct hf_voting *voting);

/* Start a LOCK, UNLOCK, RENEW, UPDATE or CANCEL. */
void hf_voting_claims_submit(struct hf_voting *voting,
                             struct hf_request *request);

/* Give up a command: answers it, and returns true; false if it is none of
 * these. */
bool hf_voting_claims_cancel(struct hf_voting *voting,
                             struct hf_request *request);

/* Returns true if the messages of a claim have this id. */
bool hf_voting_claims_has(const struct hf_voting *voting, uint64_t id);

/* Deliver a reply to the sender `id`. Returns false if no claim has this id. */
bool hf_voting_claims_on_reply(struct hf_voting *voting, unsigned master,
                               uint64_t id,
                               const struct hf_quorum_reply *reply);

/* Deliver a reply that was pushed to the claim `id`. */
void hf_voting_claims_on_push(struct hf_voting *voting, unsigned master,
                              const struct hf_claim_id *id,
                              const struct hf_quorum_reply *reply);

/* The master has become usable, or is not usable any more. */
void hf_voting_claims_on_master(struct hf_voting *voting, unsigned master,
                                bool is_usable);

/* There is no majority: answer all commands, with HF_EINDOUBT if they have
 * begun. Their claims continue as soon as there is one. */
void hf_voting_claims_fail(struct hf_voting *voting,
                           const struct hf_error *why);

void hf_voting_claims_tick(struct hf_voting *voting);

/* ---- rounds.c -----------------------------------------------------------*/

/* Start a READ or a FORCE. */
void hf_voting_rounds_submit(struct hf_voting *voting,
                             struct hf_request *request);

/* Find out whether the claim `id` holds `key` with `token`, and call
 * `on_checked` once with HF_OK, HF_ENOTOWNER, HF_ENOTHELD or HF_ENOMEM. The
 * key must stay valid until then, or until the check is canceled. */
void hf_voting_rounds_check(struct hf_voting *voting, struct hf_key key,
                            const struct hf_claim_id *id, uint64_t token,
                            void (*on_checked)(void *arg, enum hf_err err),
                            void *arg);
void hf_voting_rounds_cancel_check(struct hf_voting *voting, const void *arg);

bool hf_voting_rounds_cancel(struct hf_voting *voting,
                             struct hf_request *request);

/* Returns true if the messages of a round, other than a local READ, have this
 * id. */
bool hf_voting_rounds_has(const struct hf_voting *voting, uint64_t id);
bool hf_voting_rounds_on_reply(struct hf_voting *voting, unsigned master,
                               uint64_t id,
                               const struct hf_quorum_reply *reply);

/* The reply to a READ of one master. Returns false if no round has this id. */
bool hf_voting_rounds_on_local(struct hf_voting *voting, unsigned master,
                               uint64_t id,
                               const struct hf_resp_message *message);
void hf_voting_rounds_on_master(struct hf_voting *voting, unsigned master,
                                bool is_usable);
void hf_voting_rounds_fail(struct hf_voting *voting,
                           const struct hf_error *why);
void hf_voting_rounds_tick(struct hf_voting *voting);
hf_time hf_voting_rounds_deadline(const struct hf_voting *voting);
void hf_voting_rounds_fini(struct hf_voting *voting);

/* ---- list.c -------------------------------------------------------------*/

void hf_voting_list_submit(struct hf_voting *voting,
                           struct hf_request *request);
bool hf_voting_list_cancel(struct hf_voting *voting,
                           struct hf_request *request);

/* A page of a LIST. Returns false if no list has this id. */
bool hf_voting_list_on_page(struct hf_voting *voting, unsigned master,
                            uint64_t id, const struct hf_resp_message *message);
void hf_voting_list_on_lost(struct hf_voting *voting, unsigned master);

#endif
