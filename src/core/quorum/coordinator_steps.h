/* coordinator_steps.h - what the files coordinator*.c share. */
#ifndef HF_CORE_QUORUM_COORDINATOR_STEPS_H
#define HF_CORE_QUORUM_COORDINATOR_STEPS_H

#include "core/quorum/coordinator.h"

/* Start a request of the current state: forget the replies to the last one, and
 * send it to all usable masters. */
void hf_coordinator_start_round(struct hf_coordinator *coordinator,
                                hf_time now);

/* Repeat the request after 250 to 500 ms; or after 100 to 200 ms, if that is
 * earlier than planned. */
void hf_coordinator_set_check(struct hf_coordinator *coordinator, hf_time now);
void hf_coordinator_check_after_race(struct hf_coordinator *coordinator,
                                     hf_time now);
void hf_coordinator_check_soon(struct hf_coordinator *coordinator, hf_time now);

/* Returns how many masters have replied to the current request with `kind`. */
unsigned hf_coordinator_count(const struct hf_coordinator *coordinator,
                              enum hf_quorum_reply_kind kind);

/* Returns how many replies are still to be expected. */
unsigned hf_coordinator_awaited(const struct hf_coordinator *coordinator);

/* Returns true if no further reply is to be expected. */
bool hf_coordinator_has_all(const struct hf_coordinator *coordinator);

/* Returns true if a majority may still reply with `kind`. */
bool hf_coordinator_may_reach(const struct hf_coordinator *coordinator,
                              enum hf_quorum_reply_kind kind);

/* The reports of the replies so far; only of replies with `kind`, unless it is
 * 0. */
struct hf_reports hf_coordinator_reports(
    const struct hf_coordinator *coordinator, enum hf_quorum_reply_kind kind);

/* Returns true if masters have refused the request so that no majority is
 * left. */
bool hf_coordinator_is_refused(const struct hf_coordinator *coordinator);

/* Report why. */
void hf_coordinator_report_refusal(struct hf_coordinator *coordinator);

/* Report an event without further members. */
void hf_coordinator_report(struct hf_coordinator *coordinator,
                           enum hf_coordinator_event_kind kind);

/* Use a number that is higher than any known one. */
void hf_coordinator_raise_number(struct hf_coordinator *coordinator);

/* Start PREPARE for `purpose`. */
void hf_coordinator_prepare(struct hf_coordinator *coordinator, hf_time now,
                            enum hf_coordinator_purpose purpose);
void hf_coordinator_commit(struct hf_coordinator *coordinator, hf_time now);

/* End the claim without an event. */
void hf_coordinator_end_quietly(struct hf_coordinator *coordinator,
                                hf_time now);

/* ---- coordinator_lock.c -------------------------------------------------*/

void hf_coordinator_ask(struct hf_coordinator *coordinator, hf_time now);

/* Decide by the replies so far. `last`: do not wait for more. */
void hf_coordinator_decide_ask(struct hf_coordinator *coordinator, hf_time now,
                               bool last);
void hf_coordinator_decide_lock(struct hf_coordinator *coordinator, hf_time now,
                                bool last);
void hf_coordinator_on_push(struct hf_coordinator *coordinator, hf_time now,
                            const struct hf_quorum_reply *reply);
void hf_coordinator_check_lock(struct hf_coordinator *coordinator, hf_time now);

/* ---- coordinator_hold.c -------------------------------------------------*/

void hf_coordinator_decide_renew(struct hf_coordinator *coordinator,
                                 hf_time now);
void hf_coordinator_decide_change(struct hf_coordinator *coordinator,
                                  hf_time now);

/* `last`: do not wait for more replies. */
void hf_coordinator_decide_end(struct hf_coordinator *coordinator, hf_time now,
                               bool last);
void hf_coordinator_check_change(struct hf_coordinator *coordinator,
                                 hf_time now);
void hf_coordinator_check_end(struct hf_coordinator *coordinator, hf_time now);

/* The claim is held, and no operation is in progress: start the next one that
 * is wanted. */
void hf_coordinator_hold(struct hf_coordinator *coordinator, hf_time now);

#endif
