/* table.h - the lock table: key to holder and waiters. What a lock *is* lives
 * here and nowhere else.
 *
 * Pure: commands in, results and events out. There is no instant in it;
 * whoever drives it keeps the deadlines (core/lease) and feeds EXPIRE back.
 *
 * Always true:
 *   1. a key has one holder, or is not in the table at all;
 *   2. tokens come from one counter, which only rises: no token is ever
 *      granted twice, to any key, and nothing per key outlives its release;
 *   3. waiters are served in the order in which they came, and the next is
 *      granted in the very step that ends the holder;
 *   4. a command is applied whole or, answered HF_ENOMEM, not at all;
 *   5. UNLOCK, RENEW and UPDATE do nothing unless nonce and token match, and
 *      EXPIRE nothing unless token and generation do: a RENEW that raced
 *      ahead of an EXPIRE wins;
 *   6. what it answers and reports depends on the commands alone, not on
 *      `seed`, and is the same after a snapshot (core/snapshot). */
#ifndef HF_CORE_TABLE_H
#define HF_CORE_TABLE_H

#include "base/limits.h"
#include "base/map.h"
#include "base/siphash.h"
#include "core/command.h"
#include "core/lease.h"
#include "core/session.h"

/* A claim that waits, or that was granted and has not been told. */
struct hf_table_waiter {
    struct hf_dlist in_queue;    /* of its hold, while it waits */
    struct hf_dlist in_session;  /* waiting, then granted */
    struct hf_map_link by_nonce; /* while it waits */
    struct hf_hold *hold;
    struct hf_session *session;
    struct hf_nonce nonce;
    uint64_t sequence; /* of the LOCK whose kept result the grant overwrites */
    uint64_t arrival;
    uint32_t lease_ms;
    uint32_t value_size;
    uint8_t *data; /* value, then note; NULL where both are empty */
    uint8_t note_size;
};

/* A key that is held. */
struct hf_hold {
    struct hf_map_link link;  /* in the table, by key */
    struct hf_dlist by_token; /* in the table, in order of tokens */
    struct hf_dlist queue;    /* claims that wait, oldest first */
    struct hf_session *session;
    struct hf_table_waiter *unreported; /* granted after a wait, not yet told */
    uint64_t token;
    struct hf_nonce nonce;
    uint32_t generation; /* renewals */
    uint32_t lease_ms;   /* longest since the grant */
    uint32_t waiters;
    uint32_t value_size;
    uint8_t *data; /* value, then note; NULL where both are empty */

    /* The driver's own, zeroed; the table never looks at them. */
    struct hf_lease lease;
    hf_time since;

    uint16_t key_size;
    uint8_t note_size;
    bool forced; /* renewals are refused */
    uint8_t key[];
};

_Static_assert(HF_FITS(HF_KEY_MAX, uint16_t), "key_size holds any key's size");
_Static_assert(HF_FITS(HF_VALUE_MAX, uint32_t), "value_size, any value's");
_Static_assert(HF_FITS(HF_NOTE_MAX, uint8_t), "note_size, any note's");
_Static_assert(HF_FITS(HF_LEASE_MAX_MS, uint32_t), "lease_ms, any lease");
_Static_assert(HF_FITS(HF_WAITERS_MAX, uint32_t),
               "waiters, any queue's length");

/* Told as it happens, before the command is answered. On the events that end
 * a grant, `hold` is the ending one, with its data still in place. */
struct hf_table_event {
    enum hf_event_kind kind;
    bool waited;       /* GRANTED: somebody waits to be told */
    bool ends;         /* the grant is over */
    bool freed;        /* and nobody was waiting: the key is free */
    uint32_t lease_ms; /* GRANTED, RENEWED: to be counted from now on */
    uint64_t index;
    struct hf_hold *hold;
    const struct hf_session *session; /* whose claim it is about */
};
typedef void hf_table_event_fn(void *arg, const struct hf_table_event *event);

/* A walk over the holds that goes on while the table changes, begun by
 * hf_table_walk_begin(). It finds every hold that stays where it is; one that is
 * passed on moves to the end, and so is found, perhaps a second time. */
struct hf_table_walk {
    struct hf_dlist link; /* in the table, until hf_table_walk_end() */
    struct hf_hold *next; /* NULL: that was the last */
    bool broken;          /* the table was emptied in the meantime */
};

struct hf_table {
    struct hf_seed seed;
    hf_table_event_fn *event;
    void *arg;
    uint64_t token;        /* the last one granted */
    uint64_t last_session; /* the last id given */
    uint64_t index;        /* of the last event */
    struct hf_map holds;
    struct hf_map sessions;
    struct hf_map waiting;        /* claims, by nonce */
    struct hf_dlist by_token;     /* holds: the oldest grant first */
    struct hf_dlist all_sessions; /* the oldest first */
    struct hf_dlist walks;
};

/* `seed` should be secret: the keys come from outside. */
void hf_table_init(struct hf_table *table, const struct hf_seed *seed,
                   hf_table_event_fn *event, void *arg);
void hf_table_fini(struct hf_table *table);

/* Apply one valid command. HF_ENOMEM: nothing has changed. Otherwise HF_OK,
 * and `result->err` is the answer:
 *
 *   OPEN     HF_OK with the session; HF_ELIMIT
 *   LOCK     HF_OK with token and generation, also if the nonce holds it
 *            already; HF_EBUSY with the position in the queue, or 0 if it
 *            does not queue; HF_ELIMIT
 *   UNLOCK, RENEW, UPDATE, FORCE
 *            HF_OK; HF_ENOTHELD; HF_ENOTOWNER; RENEW also HF_EFORCED; UPDATE
 *            also HF_EMISMATCH
 *   EXPIRE   HF_OK; HF_ENOTHELD; HF_ENOTOWNER: another token or generation
 *   CANCEL   HF_OK with token 0: it waited; with a token: it held; HF_ENOTHELD
 *   any      HF_EINDOUBT: the session is unknown here, so whether an earlier
 *            copy of this command was applied cannot be told; HF_ECANCELED,
 *            HF_ELIMIT: refused by the session (see session.h) */
enum hf_err hf_table_apply(struct hf_table *table,
                           const struct hf_command *command,
                           struct hf_result *result);

/* A borrowed hold, or NULL. */
struct hf_hold *hf_table_find(const struct hf_table *table, struct hf_key key);

/* Walk over the holds, from NULL until NULL: the lowest token first. */
struct hf_hold *hf_table_next_hold(const struct hf_table *table,
                                   const struct hf_hold *hold);

void hf_table_walk_begin(struct hf_table *table, struct hf_table_walk *walk);
struct hf_hold *hf_table_walk_next(const struct hf_table *table,
                                   struct hf_table_walk *walk);
void hf_table_walk_end(struct hf_table_walk *walk);

/* Walk over the sessions, from NULL until NULL: the lowest id first. */
struct hf_session *hf_table_next_session(const struct hf_table *table,
                                         const struct hf_session *session);

struct hf_session *hf_table_find_session(const struct hf_table *table,
                                         uint64_t id);

/* A grant to tell: one that `session` waited for. False: no more. A driver
 * takes them after each command, for sessions that it does not serve too. */
struct hf_grant {
    struct hf_hold *hold;
    struct hf_nonce nonce;
    uint64_t token;
    uint32_t generation;
};
bool hf_table_take_grant(struct hf_table *table, struct hf_session *session,
                         struct hf_grant *grant);

/* The claim that waits in this line with that nonce, or NULL. */
struct hf_table_waiter *hf_table_find_waiter(const struct hf_table *table,
                                             const struct hf_hold *hold,
                                             const struct hf_nonce *nonce);

/* The position of a waiting claim, 1 for the next; never too small. */
uint32_t hf_table_waiter_position(const struct hf_table_waiter *waiter);

static inline struct hf_key hf_hold_key(const struct hf_hold *hold)
{
    return (struct hf_key){hold->key, hold->key_size};
}

static inline struct hf_bytes hf_hold_value(const struct hf_hold *hold)
{
    return (struct hf_bytes){hold->data, hold->value_size};
}

static inline struct hf_bytes hf_hold_note(const struct hf_hold *hold)
{
    if (!hold->data)
        return (struct hf_bytes){0}; /* neither value nor note */
    return (struct hf_bytes){hold->data + hold->value_size, hold->note_size};
}

#endif
