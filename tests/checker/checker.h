/* checker.h - what the parts of the checker share; check.h is for its users.
 *
 * All operations are sorted by key and token. Then each key is a run of items,
 * and in it each token is a run: one grant with all that was done to it.
 *
 *     check.c    the whole, and the promises 1, 2 and 5
 *     gather.c   from operations to grants
 *     model.c    promise 3
 *     cells.c    promise 4 */
#ifndef CHECKER_CHECKER_H
#define CHECKER_CHECKER_H

#include "check.h"

/* A reference to an operation, or, from op_count on, to a lost event. */
struct item {
    uint64_t token;
    uint32_t key;
    uint32_t index;
    bool is_lock;
};

struct renewal {
    uint64_t answer, deadline;
};

/* One grant. The last three are the earliest instants that the model leaves for
 * its lock and its end, and the latest for its end, if the next can wait. */
struct grant {
    uint64_t token;
    uint32_t nonce;
    size_t lock;             /* its operation */
    uint64_t invoke, answer; /* of that; it may take effect in between */
    uint64_t held_invoke;    /* latest of what needs it to hold the key... */
    size_t held_late;
    uint64_t held_answer; /* ...and earliest return of these */
    size_t held_early;
    size_t release;        /* its unlock or force that was ok */
    uint64_t end_invoke;   /* earliest lawful end */
    uint64_t end_answer;   /* latest, by that unlock or force */
    uint64_t ended_answer; /* earliest return of an "ended" */
    size_t ended;
    uint64_t lock_least, end_least, end_most;
};

/* A lock of unknown result. */
struct doubt {
    uint64_t invoke;
    uint32_t nonce;
    uint32_t op;
    bool known; /* by a token: it is a grant now */
};

struct checker {
    const struct history *h;
    struct check_report *report;
    struct history_death *deaths;
    size_t death_count;
    struct item *items;
    size_t item_count, item_room;
    uint32_t key;
    unsigned found; /* bit of each kind that this key has shown already */
    /* What follows is about one key, and kept only for its room. */
    struct grant *grants;
    size_t grant_count, grant_room;
    struct check_valid *segments;
    size_t segment_count, segment_room;
    struct doubt *doubts;
    size_t doubt_count, doubt_room;
    uint32_t *busy;
    size_t busy_count, busy_room;
    struct renewal *renewals;
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

void checker_init(struct checker *c, const struct history *h,
                  struct check_report *report);
void checker_fini(struct checker *c);

/* The one place that reads a result. */
enum history_result checker_result(const struct history_op *op);

/* Report a violation of the key at hand, if it is the first of its kind; with
 * the spans of both calls, or with others. */
void checker_found(struct checker *c, enum check_kind kind, size_t first,
                   size_t second);
void checker_found_spans(struct checker *c, enum check_kind kind, size_t first,
                         size_t second, struct check_span first_span,
                         struct check_span second_span);

/* Make the sorted list of items of the whole history. */
void checker_collect(struct checker *c);

/* The end of the run of items of one key that begins with item `at`. */
size_t checker_next_key(const struct checker *c, size_t at);

/* Make the grants, spans of validity, doubts and "busy" of one key, a run of
 * items. What cannot be part of any grant is reported. */
void checker_gather(struct checker *c, size_t at, size_t end);

/* Promise 3, of the key that was gathered. */
void checker_check_model(struct checker *c);

/* Promise 4, and the count of lost bumps. */
void checker_check_cells(struct checker *c);

#endif
