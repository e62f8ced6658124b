/* lock.h - one handle: taking a lock, keeping it, giving it back.
 *
 * The states are drawn in holdfast.h; the moves between them are a table in
 * lock.c, and asserted. While CLAIMING, a claim is in one of these phases:
 *
 *     ASKING --- in line ---> IN_LINE <---> ASKING_AGAIN    (lost pushes)
 *        |                       |               |
 *        +------- granted -------+---------------+---> held, or CONFIRMING
 *                                |                     first, where less
 *                 wait ran out,  |                     than the ttl is left
 *                 canceled       v
 *                           WITHDRAWING ---> refused
 *
 * One embedded call serves them all in turn, since no two are ever open. */
#ifndef HF_CLIENT_LOCK_H
#define HF_CLIENT_LOCK_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/map.h"
#include "client/call.h"
#include "client/future.h"

enum hf_claim_phase {
    HF_CLAIM_NONE,
    HF_CLAIM_ASKING,
    HF_CLAIM_IN_LINE,
    HF_CLAIM_ASKING_AGAIN,
    HF_CLAIM_CONFIRMING,
    HF_CLAIM_WITHDRAWING,
};

/* Whoever is to hear how a claim ends. */
struct hf_claimant {
    struct hf_future future;
    struct hf_lock *lock;
    struct hf_lock **out; /* hf_lock_start(): the handle goes here, or away */
};

struct hf_lock {
    struct hf_client *client;
    struct hf_list link;         /* in the client */
    struct hf_map_link by_nonce; /* in the client, while in line */
    unsigned references;
    enum hf_lock_state state;
    enum hf_claim_phase phase;
    bool in_map;
    bool freed;   /* by the user: nothing is told any more */
    bool adopted; /* granted elsewhere */

    /* What was asked for. */
    uint32_t ttl_ms, wait_ms, timeout_ms, renew_ms;
    bool renew;
    hf_lock_event_fn *on_event;
    void *arg;
    struct hf_bytes value; /* in the same block as the key */
    struct hf_bytes note;

    /* The claim. */
    struct hf_nonce nonce;
    _Atomic uint64_t token;
    _Atomic hf_time valid_until; /* 0: not at all */
    hf_time first_sent;          /* of this nonce's LOCK */
    hf_time wait_until;
    hf_time base;         /* of the lease that is confirmed */
    uint32_t held_ttl_ms; /* its length */
    uint32_t place;
    enum hf_err refusal; /* WITHDRAWING: why */
    enum hf_err claimed; /* how the last claim ended */
    bool was_claimed;
    struct hf_claimant *claimant;
    struct hf_list claim_waiters; /* struct hf_blocked */
    struct hf_future *releasing;
    struct hf_call call;
    struct hf_timer timer; /* in line: look again; held: the keeper's */

    /* The keeper. */
    struct hf_call *renewal; /* NULL where it is not renewed */
    hf_time next_renewal;
    bool forced;   /* no more renewals */
    unsigned told; /* events of this claim, as bits */
    unsigned to_tell;
    struct hf_callback callback;

    enum hf_err failure; /* the last one */
    char *failure_text;  /* may be NULL */
    size_t key_size;
    uint8_t bytes[]; /* key, value, note */
};

static inline struct hf_key hf_lock_bytes(const struct hf_lock *lock)
{
    return (struct hf_key){lock->bytes, lock->key_size};
}

/* hf_host_ops.grant: a push has come. */
void hf_lock_pushed(struct hf_host *host, const struct hf_push_grant *grant);

/* A renewal was confirmed: validity ends no earlier than before. HF_EEXPIRED:
 * it had ended already, and lost is final. */
enum hf_err hf_lock_extend(struct hf_lock *lock, hf_time base, uint32_t ttl_ms);

/* HF_OK while it is held or adopted, HF_EEXPIRED once it is lost, else
 * HF_ESTATE. */
enum hf_err hf_lock_check_held(struct hf_lock *lock);

/* Validity has ended without an unlock. Told once. */
void hf_lock_lose(struct hf_lock *lock, enum hf_err why, const char *text);

/* Tell an event, if it has not been told of this claim. */
void hf_lock_tell(struct hf_lock *lock, enum hf_lock_event event);

/* Fill a call's command with this lock's key, nonce and token. */
void hf_lock_command(struct hf_lock *lock, struct hf_call *call,
                     enum hf_command_kind kind);

void hf_lock_ref(struct hf_lock *lock);
void hf_lock_unref(struct hf_lock *lock);
void hf_lock_set_failure(struct hf_lock *lock, enum hf_err err,
                         const char *text);

/* The client closes: calls are answered, claims end. */
void hf_lock_close(struct hf_lock *lock);

/* What an answer "not the holder" means to a handle that was granted. */
enum hf_err hf_lock_ended(const struct hf_lock *lock, enum hf_err err);

#endif
