/* one_claim.h - a coordinator under test: what it sends, its events, and
 * replies that are easy to write, on a clock that the test controls.
 *
 * The claim under test is number 1; a digit names another claim. Masters are
 * numbered from 0. */
#ifndef HF_TESTS_QUORUM_ONE_CLAIM_H
#define HF_TESTS_QUORUM_ONE_CLAIM_H

#include "core/quorum/coordinator.h"

#define CLAIM_LEASE_MS 1000
#define CLAIM_PATIENCE_MS 10
#define CLAIM_EVENTS_MAX 16

struct one_claim {
    struct hf_coordinators common;
    struct hf_coordinator *c;
    hf_time now;
    struct hf_quorum_request sent[HF_QUORUM_MASTERS_MAX]; /* the last ones */
    unsigned sent_to;  /* bits of masters, since one_claim_take_request() */
    uint8_t value[64]; /* of the last request; its bytes are borrowed */
    struct hf_coordinator_event events[CLAIM_EVENTS_MAX];
    unsigned event_count;
};

/* A coordinator in a client that is connected to all of `masters`. */
void one_claim_init(struct one_claim *one, unsigned masters);
void one_claim_fini(struct one_claim *one);

void one_claim_lock(struct one_claim *one, bool queue);

/* Acquire the key by fast votes, token 1. */
void one_claim_hold(struct one_claim *one);

/* The request that was sent to all usable masters since the last call; it is of
 * `kind`. */
const struct hf_quorum_request *one_claim_take_request(
    struct one_claim *one, enum hf_quorum_request_kind kind);

/* No request was sent since the last call. */
void one_claim_expect_silence(struct one_claim *one);

/* The only event since the last call; it is of `kind`. */
struct hf_coordinator_event one_claim_take_event(
    struct one_claim *one, enum hf_coordinator_event_kind kind);
void one_claim_expect_no_event(struct one_claim *one);

/* Let time pass, and do what is due at the end. */
void one_claim_advance(struct one_claim *one, hf_time ms);

/* Wait for what the coordinator will do next. */
void one_claim_wait(struct one_claim *one);

void one_claim_connect(struct one_claim *one, unsigned master);
void one_claim_disconnect(struct one_claim *one, unsigned master);

/* ---- Replies ------------------------------------------------------------*/

struct hf_claim_id one_claim_id(unsigned claim);

/* Reply to the last request that was sent to `master`. A number or
 * serial that is 0 is set to that of the request. */
void one_claim_reply(struct one_claim *one, unsigned master,
                     struct hf_quorum_reply reply);
/* The same without a report. An OK is for the highest ballot of the claim. */
void one_claim_reply_kind(struct one_claim *one, unsigned master,
                          enum hf_quorum_reply_kind kind);

/* A vote for the claim, as its ASK wants it. */
void one_claim_vote(struct one_claim *one, unsigned master);

/* The number was too low; the master knows `highest`. */
void one_claim_low(struct one_claim *one, unsigned master, uint64_t highest);

/* Queued at `position` behind another claim. */
void one_claim_busy(struct one_claim *one, unsigned master, uint32_t position,
                    struct hf_report report);

/* A reply of `kind` with a report. */
void one_claim_report(struct one_claim *one, unsigned master,
                      enum hf_quorum_reply_kind kind, struct hf_report report);

void one_claim_refuse(struct one_claim *one, unsigned master, enum hf_err err);
void one_claim_ended(struct one_claim *one, unsigned master,
                     enum hf_quorum_end end);

/* A vote that is pushed, `age_ms` after the ASK with the serial `anchor`. */
void one_claim_push(struct one_claim *one, unsigned master, uint32_t anchor,
                    uint32_t age_ms);

/* Reports: the key is held with `token`, accepted at `ballot`; or a claim has
 * the vote. */
struct hf_report one_claim_held(unsigned claim, uint64_t token, uint64_t ballot,
                                const char *value);
struct hf_report one_claim_voted(unsigned claim, uint64_t number, bool fast);

#endif
