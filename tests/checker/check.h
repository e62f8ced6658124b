/* check.h - does a history keep the promises of a lock service?
 *
 * It reads answers and instants alone and knows nothing of how a service
 * works. It takes O(n log n) time for n operations.
 *
 * The promises, and the names of their violations:
 *
 * 1. One valid holder.
 *      exclusion       two grants of one key were valid at one instant
 *    A grant is valid from the return of its lock until its deadline, the
 *    invocation of its unlock, the death of its client or the notice that it
 *    is lost, whichever comes first; somebody who forces it open waives the
 *    promise from that invocation on. A renewal that returns ok makes it valid
 *    from that return until the later of both deadlines. Ends may touch.
 *
 * 2. Tokens grow.
 *      token-repeated  two grants of one key have one token
 *      token-order     a lock that was invoked after another had returned has
 *                      the smaller token
 *
 * 3. The lock is linearizable: each operation takes effect at one instant
 *    between its invocation and its return, and in the order of these instants
 *    the answers are those of the model below.
 *      early-grant     granted before the grant before can have ended
 *      not-holder      ok for a grant that cannot have held the key then
 *      false-end       told that its grant had ended when it cannot have
 *      false-busy      told that another held the key when nobody can have
 *
 * 4. The fence holds.
 *      fence-order     a cell accepted a token after a larger one
 *      fence-shared    a cell accepted one token from two nonces
 *
 * 5. First come, first served, where the header says so.
 *      fifo            one that was in line before another was invoked was
 *                      granted after it
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
 *   unlock, renew,   ended    holder is not the grant,   -
 *   update                    and top >= its token
 *   expiry           -        may be left out; else the same as unlock
 *   withdrawal       -        may be left out; else the same as unlock
 *
 *   - "busy" is a failure with HF_EBUSY, "ended" one with HF_EEXPIRED,
 *     HF_ENOTOWNER or HF_ENOTHELD. Any other failure, a wait that ran out
 *     among them, had no effect and is left out. So are: unknown renewals,
 *     updates and reads; reads that saw no holder; operations that name no
 *     token; "ended" for a grant, and ok reads and forces of a token, that
 *     nothing else in the history shows to have been granted.
 *   - A grant is named by token and nonce, for read and force by the token
 *     alone. A lock of unknown result is known by a token if an unlock, renew
 *     or update with its nonce was ok for that token. Otherwise no operation
 *     names its grant, nor can one if it has no nonce.
 *   - An unknown result has no return: it may take effect at any later time.
 *   - Expiry of a lock that was ok takes effect at any time from the latest of
 *     these on: its deadline; its invocation + lease; the same of each of its
 *     renewals that was ok. Without deadline and lease it does not expire. If
 *     its client dies, it may end at any time from the death on as well: from
 *     the first recorded death, or the last act of the client if that is later.
 *   - Withdrawal: a lock of unknown result may end at any time, for the library
 *     gives back, unseen, what it cannot confirm.
 *   - Of two operations one of which returns before the other is invoked, the
 *     first takes effect first. Where the instants are equal either may.
 *
 * Why no search is needed: tokens are unique and grow, so the order of grants
 * is forced, and with it that of their ends. Each end has one earliest instant
 * and each grant, too; placing all as early as possible decides whether they
 * fit. Then each end is put as late and each grant as early as can be; what is
 * still free is free however one places them, and a "busy" inside such a gap
 * needs a lock of unknown result to explain it, each of which serves one gap.
 * search.h decides the same question stupidly; the two must agree. */
#ifndef CHECKER_CHECK_H
#define CHECKER_CHECK_H

#include "history.h"

#define CHECK_LIST_MAX 64
#define CHECK_NO_OP SIZE_MAX

enum check_kind {
    CHECK_EXCLUSION,
    CHECK_TOKEN_REPEATED,
    CHECK_TOKEN_ORDER,
    CHECK_EARLY_GRANT,
    CHECK_NOT_HOLDER,
    CHECK_FALSE_END,
    CHECK_FALSE_BUSY,
    CHECK_FENCE_ORDER,
    CHECK_FENCE_SHARED,
    CHECK_FIFO,
    CHECK_KINDS
};

struct check_span {
    uint64_t from, until;
};

/* What was found, and the operations that show it. The spans are those of
 * validity for exclusion, else from invocation to return. */
struct check_violation {
    enum check_kind kind;
    uint32_t key;         /* a word of the history */
    size_t first, second; /* operations; first may be CHECK_NO_OP */
    struct check_span first_span, second_span;
};

struct check_report {
    /* At most one of each kind for a key or cell: the first that was found. */
    size_t violation_count;
    struct check_violation violations[CHECK_LIST_MAX]; /* the first of them */
    bool linearizable;                                 /* promise 3 alone */
    size_t key_count, grant_count, busy_count, unknown_count, write_count;
    /* Writes to cells that do not compare tokens, each of a number one larger
     * than was read; and how many of them wrote a number that another had
     * written too. It measures what the fence is for, and is no violation. */
    size_t bump_count, lost_bump_count;
};

void check_history(const struct history *h, struct check_report *report);

/* A span in which the grant of an operation, a lock, was valid. */
struct check_valid {
    struct check_span span;
    size_t lock;
};

/* All of them; the caller frees the list. */
struct check_valid *check_validity(const struct history *h, size_t *count);

/* "exclusion", and the sentence that explains it. */
const char *check_kind_name(enum check_kind kind);
const char *check_kind_text(enum check_kind kind);

#endif
