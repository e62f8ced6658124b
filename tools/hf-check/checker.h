/* checker.h - state that the parts of the checker share; users include check.h.
 *
 * All operations are sorted by key, then by token. Each key is then a range of
 * items, and each token in it is a range: one grant and all operations on it.
 *
 *     check.c    the entry point, and the promises 1, 2 and 5
 *     grants.c   converts operations to grants
 *     model.c    promise 3
 *     cells.c    promise 4
 *     ranks.c    replaces tokens by ranks if the service has none */
#ifndef HF_CHECK_TOOL_CHECKER_H
#define HF_CHECK_TOOL_CHECKER_H

#include "check.h"

/* One operation on a key, or one report that a lock is lost: an `index` from
 * op_count on refers to a lost event. */
struct hf_check_item {
    uint64_t token;
    uint32_t key;
    uint32_t index;
    bool is_lock;
};

struct hf_check_renewal {
    uint64_t answer, deadline;
};

/* One grant. The model (model.c) computes the last four members: the earliest
 * instants at which its lock can take effect and at which it can end, the
 * latest instant at which it can end, whatever the next grant needs, and the
 * latest instant at which its lock can take effect. */
struct hf_check_grant {
    uint64_t token;
    uint32_t nonce;
    size_t lock;             /* index of its operation */
    uint64_t invoke, answer; /* the lock took effect in between */
    uint64_t held_invoke;    /* latest invocation that needs the grant held */
    size_t held_late;
    uint64_t held_answer; /* earliest return of such an operation */
    size_t held_early;
    size_t release;        /* its successful unlock or force */
    uint64_t end_invoke;   /* earliest end that the model allows */
    uint64_t end_answer;   /* latest end: `release` returned */
    uint64_t ended_answer; /* earliest return of an "ended" error */
    size_t ended;
    uint64_t lock_least, end_least, end_most, lock_most;
};

/* A lock of unknown result. */
struct hf_check_doubt {
    uint64_t invoke;
    uint32_t nonce;
    uint32_t op;
    bool known; /* its token is known, so it is a grant */
};

struct hf_checker {
    const struct hf_check_history *h;
    struct hf_check_history ranked; /* the history with ranks as tokens, if it
                                       has `no_fence`; `h` points here then */
    struct hf_check_report *report;
    struct hf_op_death *deaths;
    size_t death_count;
    struct hf_check_item *items;
    size_t item_count, item_room;
    uint32_t key;
    unsigned found; /* bit of each kind already reported for this key */
    /* The members below concern the current key. They are kept for the next
     * key, to reuse their memory. */
    struct hf_check_grant *grants;
    size_t grant_count, grant_room;
    struct hf_check_valid *segments;
    size_t segment_count, segment_room;
    struct hf_check_doubt *doubts;
    size_t doubt_count, doubt_room;
    uint32_t *busy;
    size_t busy_count, busy_room;
    uint32_t *vacant; /* reads that saw no holder */
    size_t vacant_count, vacant_room;
    struct hf_check_renewal *renewals;
    size_t renewal_count, renewal_room;
};

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void hf_checker_init(struct hf_checker *c, const struct hf_check_history *h,
                     struct hf_check_report *report);
void hf_checker_fini(struct hf_checker *c);

enum hf_op_result hf_checker_result(const struct hf_op *op);

/* Report a violation of the current key, unless one of the same kind was
 * reported. hf_checker_report() uses the spans of both calls,
 * hf_checker_report_spans() the given spans. */
void hf_checker_report(struct hf_checker *c, enum hf_check_kind kind,
                       size_t first, size_t second);
void hf_checker_report_spans(struct hf_checker *c, enum hf_check_kind kind,
                             size_t first, size_t second,
                             struct hf_check_span first_span,
                             struct hf_check_span second_span);

/* Return a copy of `c->h` in which the tokens of grants are their ranks, and
 * all operations that name a grant have its rank. An operation has the same
 * index in both; further operations of unknown result may follow. The caller
 * frees `ops` and `losts`; the copy borrows the rest. */
struct hf_check_history hf_ranks_copy(const struct hf_checker *c);

/* Return when `client` died, or HF_OP_NEVER. */
uint64_t hf_grants_death(const struct hf_checker *c, uint32_t client);

/* Return the earliest instant at which the grant can expire, as far as this
 * successful lock or renewal tells. */
uint64_t hf_grants_expiry(const struct hf_op *op);

/* Build the sorted list of items of the whole history. */
void hf_grants_collect(struct hf_checker *c);

/* Return the end of the range of items with the key of item `at`. */
size_t hf_grants_next_key(const struct hf_checker *c, size_t at);

/* Build the grants, spans of validity, unknown locks, busy locks and reads that
 * saw no holder of one key, a range of items. Reports operations that can
 * belong to no grant. */
void hf_grants_gather(struct hf_checker *c, size_t at, size_t end);

/* Check promise 3 for the key that was gathered last. */
void hf_model_check(struct hf_checker *c);

/* Check promise 4, and count the lost increments. */
void hf_cells_check(struct hf_checker *c);

#endif
