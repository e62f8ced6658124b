/* one_master.h - a master of a quorum under test: requests that are easy to
 * write, what it pushes, and a clock that the test controls.
 *
 * A digit names a claim: it is the first byte of its nonce. */
#ifndef HF_TESTS_QUORUM_ONE_MASTER_H
#define HF_TESTS_QUORUM_ONE_MASTER_H

#include "core/quorum/master.h"

#define ONE_LEASE_MS 1000
#define ONE_LEASE_MAX_MS 60000
#define ONE_PUSHES_MAX 64

struct one_push {
    uint64_t conn;
    struct hf_claim_id id;
    struct hf_quorum_reply reply;
};

struct one_master {
    struct hf_master master;
    hf_time now;
    uint32_t serial;              /* of the last request */
    struct hf_quorum_reply reply; /* to the last request */
    struct one_push pushes[ONE_PUSHES_MAX];
    unsigned pushed;
    unsigned changes; /* calls of `changed` */
};

/* A new master, with a high mark, unless `opts` is not NULL. */
void one_master_init(struct one_master *one, const struct hf_master_opts *opts);
void one_master_fini(struct one_master *one);

struct hf_master_opts one_master_opts(void);

struct hf_nonce one_nonce(unsigned claim);
struct hf_claim_id one_id(unsigned claim);

/* Requests for the key "k". Their other members have usual values: the ticket
 * is the number, the lease ONE_LEASE_MS, the value the digit of the claim. */
struct hf_quorum_request one_ask(unsigned claim, uint64_t number);
struct hf_quorum_request one_wait(unsigned claim, uint64_t number);
struct hf_quorum_request one_fast(unsigned claim, uint64_t number);
struct hf_quorum_request one_prepare(unsigned claim, uint64_t number);
struct hf_quorum_request one_commit(unsigned claim, uint64_t number);
struct hf_quorum_request one_repair(unsigned claim, uint64_t number,
                                    uint64_t token);
struct hf_quorum_request one_renew(unsigned claim, uint64_t token);
struct hf_quorum_request one_end(unsigned claim, uint64_t number,
                                 uint64_t ballot);
struct hf_quorum_request one_force(uint64_t token, bool now);
struct hf_quorum_request one_read(void);

/* Send the request with the next serial, over the connection with the number of
 * the claim. Returns the kind of the reply, which is in one->reply. */
enum hf_quorum_reply_kind one_send(struct one_master *one,
                                   struct hf_quorum_request request);

/* The same, over `conn`; the serial is that of the request, unless it is 0. */
enum hf_quorum_reply_kind one_send_over(struct one_master *one, uint64_t conn,
                                        struct hf_quorum_request request);

/* Let time pass. */
void one_advance(struct one_master *one, hf_time ms);

/* What the master knows of the key "k". */
struct hf_report one_report(struct one_master *one);

/* The last push, which must be of `kind` and to `claim`. Forgets all pushes. */
struct hf_quorum_reply one_take_push(struct one_master *one, unsigned claim,
                                     enum hf_quorum_reply_kind kind);

#endif
