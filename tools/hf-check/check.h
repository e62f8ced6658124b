/* check.h - decide whether a history keeps the promises of a lock service.
 *
 * The checker uses only answers and instants; it knows nothing about the
 * implementation. It takes O(n log n) time for n operations.
 *
 * The promises, and the names of their violations:
 *
 * 1. One valid holder.
 *      exclusion       two grants of one key were valid at one instant
 *    A grant is valid from the return of its lock until its deadline, the
 *    invocation of its unlock, the death of its client or the notice that it
 *    is lost, whichever comes first. A force waives the promise from its
 *    invocation on. A renewal that returns ok makes the grant valid from that
 *    return until the later of both deadlines. Two grants may be valid at the
 *    instant at which one ends and the other begins.
 *
 * 2. Tokens grow.
 *      token-repeated  two grants of one key have the same token
 *      token-order     a lock that was invoked after another lock had
 *                      returned has the smaller token
 *
 * 3. The lock is linearizable: each operation takes effect at one instant
 *    between its invocation and its return, and in the order of these instants
 *    the answers are those of the model below.
 *      early-grant     granted before the previous grant can have ended
 *      not-holder      ok for a grant that cannot have held the key then
 *      false-end       answered "ended" for a grant that cannot have ended
 *      false-busy      answered "busy" when nobody can have held the key
 *      false-free      read as free when a grant must have held the key
 *
 * 4. The fence holds.
 *      fence-order     a cell accepted a token after a larger one
 *      fence-shared    a cell accepted the same token from two nonces
 *
 * 5. First come, first served, if the header promises it.
 *      fifo            a lock that was queued before another lock was invoked
 *                      was granted after that lock
 *
 * The model of 3, for each key on its own.
 *
 *   State: the holder, which is nobody or a grant (token, nonce), and `top`,
 *   the largest token granted so far. It begins with nobody and 0.
 *
 *   operation        result   allowed if                 then
 *   lock             ok       nobody, token > top        holder, top = token
 *   lock             busy     somebody                   -
 *   lock             unknown  may be left out; else      holder = this one with
 *                             nobody                     top + 1, or with a
 *                                                        token it is known by
 *   unlock, force    ok       holder is the grant        nobody
 *   unlock, force    unknown  may be left out; else the same
 *   renew, update,   ok       holder is the grant        -
 *   read (a token)
 *   read (no token)  ok       nobody                     -
 *   unlock, renew,   ended    holder is not the grant,   -
 *   update                    and top >= its token
 *   expiry           -        may be left out; else the same as unlock
 *   withdrawal       -        may be left out; else the same as unlock
 *
 *   - "busy" is a failure with HF_EBUSY, "ended" one with HF_EEXPIRED,
 *     HF_ENOTOWNER or HF_ENOTHELD. Any other failure, such as a wait that
 *     timed out, had no effect and is left out. These are left out, too:
 *     unknown renewals, updates and reads; operations other than reads that
 *     name no token; "ended" for a grant, and ok reads and forces of a token,
 *     that nothing else in the history shows to have been granted.
 *   - A grant is named by token and nonce, for read and force by the token
 *     alone. A lock of unknown result is known by a token if an unlock, renew
 *     or update with its nonce was ok for that token. Otherwise no operation
 *     names its grant. No operation can name the grant of a lock of unknown
 *     result that has no nonce.
 *   - An operation of unknown result has no return, so it may take effect at
 *     any time after its invocation.
 *   - Expiry of a lock that was ok takes effect at any time from the latest of
 *     these on: its deadline; its invocation + lease; the same two instants of
 *     each of its renewals that was ok. A lock with neither deadline nor lease
 *     does not expire. If its client dies, a lock may also end at any time from
 *     the death on: from the first recorded death, or from the last act of the
 *     client if that is later.
 *   - Withdrawal: a lock of unknown result may end at any time, because the
 *     library withdraws in the background what it cannot confirm.
 *   - An operation that returns before another is invoked takes effect before
 *     the other. If these instants are equal, either may take effect first.
 *
 * Services without fencing tokens: if `no_fence` of the history is set, tokens
 * may fall and repeat, and promises 2 and 4 are not checked. A grant is named
 * by its token and its nonce together, and the checker replaces its token by a
 * rank, the position of its return among the returns of all grants. Promises 1,
 * 3 and 5 are then checked as above, with ranks as tokens.
 *
 *   - Why this is the order of the grants: each grant that gets a rank held the
 *     key at the instant of its return. At most one grant holds the key at an
 *     instant, so the order in which they held it is the order of these
 *     instants.
 *   - A grant held the key at its return if it cannot have ended by then: it
 *     had not expired, its client was alive, and no unlock or force of it was
 *     invoked. Or an operation that was invoked later was ok for it. A grant
 *     for which neither is certain was not valid at its return; its lock counts
 *     as one of unknown result, and the operations on it are left out.
 *   - Assumption: no two locks of a key have both the same nonce and the same
 *     token. If two have, that is reported as token-repeated. Locks without
 *     nonces may share a token.
 *   - A name is ambiguous if two grants have it, or if it is a token alone and
 *     the key has a lock of unknown result. Operations with an ambiguous name
 *     are left out; but an unlock or a force, ok or unknown, may then have
 *     ended each of these grants.
 *   - A lock of unknown result does not become known by operations on it; these
 *     are left out.
 *   - Time is O(n log n) if few grants of a key have the same token.
 *
 * Why no search is needed: tokens are unique and increase, so the order of the
 * grants and of their ends is known. Each end and each grant has an earliest
 * instant; placing all of them as early as possible decides whether they fit.
 * Then each end is placed as late, and each grant as early, as possible. A gap
 * that remains exists in every placement, and a "busy" inside it needs a lock
 * of unknown result as its explanation; each such lock can explain one gap.
 * In the same way, each grant is placed as late, and each end as early, as
 * possible; a read that saw no holder must not lie inside a grant that remains.
 * search.h decides the same question by exhaustive search; both must agree.
 *
 * "busy" and reads that saw no holder are each checked without the other. A
 * history in which either kind alone is explained, but not both together,
 * passes. */
#ifndef HF_CHECK_TOOL_CHECK_H
#define HF_CHECK_TOOL_CHECK_H

#include "history.h"

#define HF_CHECK_LIST_MAX 64
#define HF_CHECK_NO_OP SIZE_MAX

enum hf_check_kind {
    HF_CHECK_EXCLUSION,
    HF_CHECK_TOKEN_REPEATED,
    HF_CHECK_TOKEN_ORDER,
    HF_CHECK_EARLY_GRANT,
    HF_CHECK_NOT_HOLDER,
    HF_CHECK_FALSE_END,
    HF_CHECK_FALSE_BUSY,
    HF_CHECK_FALSE_FREE,
    HF_CHECK_FENCE_ORDER,
    HF_CHECK_FENCE_SHARED,
    HF_CHECK_FIFO,
    HF_CHECK_KINDS
};

struct hf_check_span {
    uint64_t from, until;
};

/* One violation and the operations that prove it. For an exclusion the spans
 * are spans of validity; for any other kind they reach from invocation to
 * return. */
struct hf_check_violation {
    enum hf_check_kind kind;
    uint32_t key;         /* an interned string of the history */
    size_t first, second; /* operations; first may be HF_CHECK_NO_OP */
    struct hf_check_span first_span, second_span;
};

struct hf_check_report {
    /* At most one violation of each kind is counted for a key or a cell. */
    size_t violation_count;
    struct hf_check_violation
        violations[HF_CHECK_LIST_MAX]; /* the first ones that were found */
    bool linearizable;                 /* promise 3 alone */
    size_t key_count, grant_count, busy_count, unknown_count, write_count;
    /* Unfenced increments of cells, and how many of them wrote a value that
     * another one wrote too. Lost increments are no violations; they show why
     * the fence is needed. */
    size_t bump_count, lost_bump_count;
};

void hf_check_run(const struct hf_check_history *h,
                  struct hf_check_report *report);

/* A span in which the grant of the operation `lock` was valid. */
struct hf_check_valid {
    struct hf_check_span span;
    size_t lock;
};

/* Return all spans of validity. The caller frees the list. */
struct hf_check_valid *hf_check_validity(const struct hf_check_history *h,
                                         size_t *count);

/* Return the name of a kind, such as "exclusion". */
const char *hf_check_kind_name(enum hf_check_kind kind);

/* Return a sentence that describes violations of this kind. */
const char *hf_check_kind_text(enum hf_check_kind kind);

#endif
