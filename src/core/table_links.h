/* table_links.h - add and remove the holds, waiters and sessions of a table.
 *
 * Two modules change a table with these functions: core/table_apply, which
 * applies commands, and core/snapshot, which restores a table. The functions
 * only maintain links and counters; they decide nothing and report no
 * events. */
#ifndef HF_CORE_TABLE_LINKS_H
#define HF_CORE_TABLE_LINKS_H

#include "core/table.h"

/* ---- Holds --------------------------------------------------------------*/

uint64_t hf_table_hash_key(const struct hf_table *table, struct hf_key key);

/* Like hf_table_find() and hf_table_add_hold(), for callers that have computed
 * the hash of the key. */
struct hf_hold *hf_table_find_hashed(const struct hf_table *table,
                                     struct hf_key key, uint64_t hash);
struct hf_hold *hf_table_add_hashed(struct hf_table *table, struct hf_key key,
                                    uint64_t hash, struct hf_session *session);

/* Add a hold of `key`, whose members except key and session are zero. Returns
 * NULL if memory is exhausted. */
struct hf_hold *hf_table_add_hold(struct hf_table *table, struct hf_key key,
                                  struct hf_session *session);

/* Assign the next token to `hold` and move it to the end of table->by_token. */
void hf_table_assign_token(struct hf_table *table, struct hf_hold *hold);

/* Remove and free a hold that has neither waiters nor a session. */
void hf_table_remove_hold(struct hf_table *table, struct hf_hold *hold);

/* Copy value and note into one block, which the caller owns; NULL if both are
 * empty. Can fail with HF_ENOMEM. */
enum hf_err hf_table_pack_data(struct hf_bytes value, struct hf_bytes note,
                               uint8_t **data);

/* Replace the value and the note of a hold by `data`, a block of
 * hf_table_pack_data(), which the hold owns now. */
void hf_table_set_hold_data(struct hf_table *table, struct hf_hold *hold,
                            uint8_t *data, size_t value_size, size_t note_size);

/* ---- Waiters ------------------------------------------------------------*/

/* Add a waiter to the end of the queue of `hold`. Returns NULL if memory is
 * exhausted. */
struct hf_table_waiter *hf_table_add_waiter(struct hf_table *table,
                                            struct hf_hold *hold,
                                            struct hf_session *session,
                                            const struct hf_nonce *nonce,
                                            uint64_t sequence);

/* Link a waiter to the session that sent its last LOCK, ordered by sequence.
 * Sequences arrive nearly in order, so this skips at most HF_WINDOW_MAX
 * waiters. */
void hf_table_waiter_set_session(struct hf_table_waiter *waiter,
                                 struct hf_session *session, uint64_t sequence);

/* Like hf_table_set_hold_data(), for a waiter that has no data yet. */
void hf_table_set_waiter_data(struct hf_table *table,
                              struct hf_table_waiter *waiter, uint8_t *data,
                              size_t value_size, size_t note_size);

/* Unlink a waiter; the caller frees it. */
void hf_table_remove_waiter(struct hf_table *table,
                            struct hf_table_waiter *waiter);

/* ---- Sessions -----------------------------------------------------------*/

void hf_table_add_session(struct hf_table *table, struct hf_session *session);

/* Adjust table->bytes after the array of kept results of `session` was resized.
 * It had `capacity` slots before. */
void hf_table_results_resized(struct hf_table *table,
                              const struct hf_session *session,
                              uint32_t capacity);

/* End the session, which has no waiters, and free it if it holds no keys. */
void hf_table_end_session(struct hf_table *table, struct hf_session *session);

/* Free `session` if it is closed and holds no keys. Until then its label is
 * needed, because infos of its keys show the label. */
void hf_table_drop_session(struct hf_table *table, struct hf_session *session);

#endif
