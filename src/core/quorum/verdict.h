/* verdict.h - which claim may hold a key, given what some masters report.
 *
 * The reports of a majority suffice, because at least one of them shows the
 * claim that holds the key. hf_verdict_of() errs on the safe side: it may name
 * a claim that was never granted the key, if the reports do not rule that
 * out. */
#ifndef HF_CORE_QUORUM_VERDICT_H
#define HF_CORE_QUORUM_VERDICT_H

#include "core/quorum/quorum.h"

/* One report for each master; NULL: the master has not replied. */
struct hf_reports {
    struct hf_quorum quorum;
    bool is_mixed; /* they may be of different instants */
    const struct hf_report *list[HF_QUORUM_MASTERS_MAX];
};

enum hf_verdict_kind {
    HF_VERDICT_UNDECIDED, /* too few reports, or they contradict each other */
    HF_VERDICT_FREE,
    HF_VERDICT_HELD,
};

struct hf_verdict {
    enum hf_verdict_kind kind;
    uint64_t token;                 /* HELD */
    struct hf_claim_id holder;      /* HELD */
    const struct hf_report *source; /* HELD: a report that shows the newest
                                       state of the claim; see below */
};

/* Which claim may hold the key, now or later, if no claim gets a higher number?
 * FREE means that a claim that was promised its number by all of these masters
 * may commit it. `self` is a claim that knows that it was not granted the key
 * by votes, or NULL. */
struct hf_verdict hf_verdict_of(const struct hf_reports *reports,
                                const struct hf_claim_id *self);

/* Which claim holds the key? Linearizable if all reports were made after the
 * question. Unlike hf_verdict_of(), a claim that cannot have been granted the
 * key is not named. `source` shows the value that a majority has accepted under
 * one ballot. It is NULL if no value is known to be that: an update has reached
 * only some masters. Ask again; the next renewal repairs that. */
struct hf_verdict hf_verdict_read(const struct hf_reports *reports);

/* Returns true if the reports may be of different instants: a record has changed
 * within the last `elapsed_ms`, in which the masters were asked. A lease that
 * moved from one master to another meanwhile, by a repair, could be missed. */
bool hf_reports_may_mix(const struct hf_reports *reports, uint32_t elapsed_ms);

/* The number of reports. */
unsigned hf_reports_count(const struct hf_reports *reports);

#endif
