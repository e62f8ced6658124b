/* table_links.h - how the holds, claims and sessions of a table are linked.
 *
 * For the two that change a table: core/table by commands, which decides what
 * a lock is, and core/snapshot from bytes. Nothing here decides, tells an
 * event or grants a token. */
#ifndef HF_CORE_TABLE_LINKS_H
#define HF_CORE_TABLE_LINKS_H

#include "core/table.h"

/* ---- Holds --------------------------------------------------------------*/

uint64_t hf_table_hash_key(const struct hf_table *table, struct hf_key key);

/* hf_table_find() and hf_table_add_hold(), where the hash is known. */
struct hf_hold *hf_table_find_hashed(const struct hf_table *table,
                                     struct hf_key key, uint64_t hash);
struct hf_hold *hf_table_add_hashed(struct hf_table *table, struct hf_key key,
                                    uint64_t hash, struct hf_session *session);

/* Zeroed but for key and session; NULL: no memory. */
struct hf_hold *hf_table_add_hold(struct hf_table *table, struct hf_key key,
                                  struct hf_session *session);

/* Give a hold the next token. */
void hf_table_assign_token(struct hf_table *table, struct hf_hold *hold);

/* One that nobody waits for and no session has. */
void hf_table_remove_hold(struct hf_table *table, struct hf_hold *hold);

/* The grant is known, or has ended: there is nothing to tell any more. */
void hf_table_forget_unreported(struct hf_hold *hold);

/* Value and note in one block, or NULL where both are empty. HF_ENOMEM. */
enum hf_err hf_table_pack_data(struct hf_bytes value, struct hf_bytes note,
                               uint8_t **data);

/* ---- Claims that wait ---------------------------------------------------*/

/* Add a waiter to the end of the queue of `hold`; NULL: no memory. */
struct hf_table_waiter *hf_table_add_waiter(struct hf_table *table,
                                            struct hf_hold *hold,
                                            struct hf_session *session,
                                            const struct hf_nonce *nonce,
                                            uint64_t sequence);

/* Link a waiter to the session that asked for it last. Sequences arrive nearly
 * in order: at most HF_WINDOW_MAX newer ones are passed over. */
void hf_table_waiter_set_session(struct hf_table_waiter *waiter,
                                 struct hf_session *session, uint64_t sequence);
void hf_table_remove_waiter(struct hf_table *table,
                            struct hf_table_waiter *waiter);

/* It leaves the line for the hold, and its session is to hear of it. */
void hf_table_grant_waiter(struct hf_table *table, struct hf_hold *hold,
                           struct hf_table_waiter *waiter);
void hf_table_waiter_free(struct hf_table_waiter *waiter);

/* ---- Sessions -----------------------------------------------------------*/

void hf_table_add_session(struct hf_table *table, struct hf_session *session);

/* Unless it is open, or holds keys: those show its label. */
void hf_table_drop_session(struct hf_table *table, struct hf_session *session);

#endif
