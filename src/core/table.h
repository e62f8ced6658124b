/* table.h - the lock table: maps each held key to its holder and its waiters.
 * The semantics of a lock are implemented here and nowhere else.
 *
 * Pure: commands in, results and events out. The table has no clock; its driver
 * keeps the deadlines (core/lease) and sends EXPIRE commands.
 *
 * Always true:
 *   1. a key in the table has exactly one holder; a free key is not in the
 *      table;
 *   2. tokens come from one counter that only increases: no token is ever
 *      granted twice, for any key, and no state of a key remains after its
 *      release;
 *   3. waiters are granted in order of arrival, in the same step that ends
 *      the previous grant;
 *   4. a command is applied completely, or fails with HF_ENOMEM and changes
 *      nothing;
 *   5. UNLOCK, RENEW and UPDATE have no effect unless nonce and token match,
 *      and EXPIRE has none unless token and generation match: if a RENEW is
 *      applied before an EXPIRE, the lock stays held;
 *   6. state, results and events depend only on the commands, not on `seed`,
 *      and are the same for a table restored from a snapshot
 *      (core/snapshot). */
#ifndef HF_CORE_TABLE_H
#define HF_CORE_TABLE_H

#include "base/limits.h"
#include "base/map.h"
#include "base/siphash.h"
#include "core/command.h"
#include "core/lease.h"
#include "core/session.h"

/* A claim that waits. When it is granted, it leaves the table, and a driver
 * can take it to report the grant (hf_table_take_waiter()). The driver then
 * reads `nonce` and `token`, may store an instant in `since`, and may use
 * `in_queue` as a link of its own. */
struct hf_table_waiter {
    struct hf_dlist in_queue;    /* in hold->queue */
    struct hf_dlist in_session;  /* in session->waiting */
    struct hf_map_link by_nonce; /* in table->waiting */
    struct hf_hold *hold;
    struct hf_session *session;
    struct hf_nonce nonce;
    union {
        uint64_t sequence; /* the LOCK whose kept result the grant overwrites */
        uint64_t token;    /* after the grant */
    };
    union {
        uint64_t arrival; /* increases along the queue, perhaps with gaps */
        hf_time since;    /* after the grant: set by the driver */
    };
    uint32_t lease_ms;
    uint32_t value_size;
    uint8_t *data; /* value, then note; NULL if both are empty */
    uint8_t note_size;
};

/* A key that is held. */
struct hf_hold {
    struct hf_map_link link;  /* in the table, by key */
    struct hf_dlist by_token; /* in the table, in order of tokens */
    struct hf_dlist queue;    /* waiters, in order of arrival */
    struct hf_session *session;
    uint64_t token;
    struct hf_nonce nonce;
    uint32_t generation; /* renewals since the grant */
    uint32_t lease_ms;   /* the longest lease since the grant */
    uint32_t waiters;
    uint32_t value_size;
    uint8_t *data; /* value, then note; NULL if both are empty */

    /* For the driver. The table zeroes these members when it adds the hold,
     * and never reads them. */
    struct hf_lease lease;
    hf_time since;
    /* The driver took the waiter of this grant, or of an earlier one. */
    bool waiter_taken;

    bool forced; /* renewals are refused */
    uint16_t key_size;
    uint8_t note_size;
    uint8_t key[];
};

_Static_assert(HF_FITS(HF_KEY_MAX, uint16_t), "key_size is too small");
_Static_assert(HF_FITS(HF_VALUE_MAX, uint32_t), "value_size is too small");
_Static_assert(HF_FITS(HF_NOTE_MAX, uint8_t), "note_size is too small");
_Static_assert(HF_FITS(HF_LEASE_MAX_MS, uint32_t), "lease_ms is too small");
_Static_assert(HF_FITS(HF_WAITERS_MAX, uint32_t), "waiters is too small");

/* An event, reported while the command is applied. If the event ends a grant,
 * `hold` still has the data of that grant. */
struct hf_table_event {
    enum hf_event_kind kind;
    bool waited;       /* GRANTED: after a wait, so report it to the session */
    bool ends;         /* this event ends the grant */
    bool freed;        /* there was no waiter: the key is free now */
    uint32_t lease_ms; /* GRANTED, RENEWED: the lease, which starts now */
    uint64_t index;
    struct hf_hold *hold;
    const struct hf_session *session; /* the owner of the claim */
    struct hf_table_waiter **waiter;  /* for hf_table_take_waiter() */
};
typedef void hf_table_event_fn(void *arg, const struct hf_table_event *event);

/* An iteration over the holds during which the table may change. It visits
 * every key that stays held. A key that is handed over to a waiter moves to the
 * end, so it may be visited twice. */
struct hf_table_walk {
    struct hf_dlist link; /* in table->walks, until hf_table_walk_end() */
    struct hf_hold *next; /* NULL: no more */
    bool broken; /* hf_table_fini() was called; the walk is incomplete */
};

struct hf_table {
    struct hf_seed seed;
    hf_table_event_fn *event;
    void *arg;
    uint8_t version;       /* of commands and snapshots (command.h) */
    uint64_t token;        /* the token of the last grant */
    uint64_t last_session; /* the last session id */
    uint64_t index;        /* the index of the last event */
    size_t bytes;          /* of keys, values, notes, labels and kept results;
                              see hf_table_bytes() */
    struct hf_map holds;
    struct hf_map sessions;       /* by id */
    struct hf_map secrets;        /* sessions that are open, by secret */
    struct hf_map waiting;        /* waiters, by nonce */
    struct hf_dlist by_token;     /* holds, the oldest grant first */
    struct hf_dlist all_sessions; /* the oldest first */
    struct hf_dlist walks;
};

/* Initialize an empty table at HF_VERSION_FIRST, which calls `event` with
 * `arg` for each event. Keys come from users, so keep `seed` secret: users who
 * do not know it cannot choose keys that collide in the hash map. */
void hf_table_init(struct hf_table *table, const struct hf_seed *seed,
                   hf_table_event_fn *event, void *arg);
void hf_table_fini(struct hf_table *table);

/* Apply one valid command. On HF_ENOMEM nothing has changed. On HF_OK,
 * `result->err` is the answer:
 *
 *   OPEN     HF_OK with the session, also if the session with this secret is
 *            open already; HF_ELIMIT
 *   CLOSE    HF_OK; HF_ENOTOWNER: the session has sent a later command
 *   LOCK     HF_OK with token and generation, also if the nonce already holds
 *            the key; HF_EBUSY with the position in the queue, or 0 if the
 *            claim is not queued; HF_ELIMIT
 *   UNLOCK, RENEW, UPDATE, FORCE
 *            HF_OK; HF_ENOTHELD; HF_ENOTOWNER; RENEW also HF_EFORCED; UPDATE
 *            also HF_EMISMATCH
 *   VERSION  HF_OK, also if the table is at this version or a later one
 *   EXPIRE   HF_OK; HF_ENOTHELD; HF_ENOTOWNER: another token or generation
 *   CANCEL   HF_OK with token 0: the nonce waited; with a token: it held the
 *            key; HF_ENOTHELD
 *   any that has a session
 *            HF_EINDOUBT: the session is unknown or closed, so the table cannot
 *            tell whether an earlier copy of this command was applied;
 *            HF_ECANCELED, HF_ELIMIT: refused by the session (session.h), but
 *            never for CLOSE */
enum hf_err hf_table_apply(struct hf_table *table,
                           const struct hf_command *command,
                           struct hf_result *result);

/* The bytes of memory of the holds, waiters and sessions, without the hash maps
 * and the overhead of the allocator. */
size_t hf_table_bytes(const struct hf_table *table);

/* The hold of `key`, or NULL if the key is free. */
struct hf_hold *hf_table_find(const struct hf_table *table, struct hf_key key);

/* Iterate over the holds, the lowest token first: pass NULL first; NULL ends
 * the iteration. */
struct hf_hold *hf_table_next_hold(const struct hf_table *table,
                                   const struct hf_hold *hold);

void hf_table_walk_begin(struct hf_table *table, struct hf_table_walk *walk);
struct hf_hold *hf_table_walk_next(const struct hf_table *table,
                                   struct hf_table_walk *walk);
void hf_table_walk_end(struct hf_table_walk *walk);

/* Iterate over the sessions in the same way, the lowest id first. */
struct hf_session *hf_table_next_session(const struct hf_table *table,
                                         const struct hf_session *session);

struct hf_session *hf_table_find_session(const struct hf_table *table,
                                         uint64_t id);

/* The open session with `secret`, or NULL. */
struct hf_session *hf_table_find_secret(const struct hf_table *table,
                                        const struct hf_nonce *secret);

/* While GRANTED is reported: take the claim that has waited, to report its
 * grant to the session later. This allocates nothing, so it cannot fail. The
 * caller frees the waiter; the table frees a waiter that is not taken. Returns
 * NULL if the claim has not waited. */
struct hf_table_waiter *hf_table_take_waiter(
    const struct hf_table_event *event);
void hf_table_waiter_free(struct hf_table_waiter *waiter);

/* What became of the claim of `nonce` on `key`. A claim that has ended and a
 * claim that never arrived are both unknown. Without its nonce, nobody learns
 * anything about a claim: not even whether the key is held. */
enum hf_lookup_state {
    HF_LOOKUP_UNKNOWN,
    HF_LOOKUP_QUEUED,
    HF_LOOKUP_HELD
};
struct hf_lookup {
    enum hf_lookup_state state;
    uint32_t position;   /* QUEUED: as hf_table_waiter_position() */
    uint32_t generation; /* HELD: renewals since the grant */
    uint64_t token;      /* HELD */
};
struct hf_lookup hf_table_lookup(const struct hf_table *table,
                                 struct hf_key key,
                                 const struct hf_nonce *nonce);

/* The waiter with `nonce` in the queue of `hold`, or NULL. */
struct hf_table_waiter *hf_table_find_waiter(const struct hf_table *table,
                                             const struct hf_hold *hold,
                                             const struct hf_nonce *nonce);

/* The position of a waiter, 1 for the first. The position may be too large
 * after waiters have left the middle of the queue, but never too small. */
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
        return (struct hf_bytes){0};
    return (struct hf_bytes){hold->data + hold->value_size, hold->note_size};
}

#endif
