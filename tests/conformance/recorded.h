/* recorded.h - locks whose history is kept, and checked when the case ends.
 *
 * Each function calls its namesake of holdfast.h and writes down when it was
 * called, when it returned and what was answered, with the deadline that the
 * library computed. The checker (tests/checker) then looks for two holders at
 * one instant, tokens that do not rise, answers that fit no order, and waiters
 * that were passed over. Any thread may call; one history a process. */
#ifndef HF_TESTS_CONFORMANCE_RECORDED_H
#define HF_TESTS_CONFORMANCE_RECORDED_H

#include <holdfast.h>

void recorded_init(bool fifo);
void recorded_fini(void);

/* 0, or -1 with the checker's report on stderr. */
int recorded_check(const char *name);

enum hf_err recorded_lock(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock);
enum hf_err recorded_claim(struct hf_client *client, struct hf_lock *lock);
enum hf_err recorded_unlock(struct hf_client *client, struct hf_lock *lock);
enum hf_err recorded_renew(struct hf_client *client, struct hf_lock *lock,
                           uint32_t ttl_ms);
enum hf_err recorded_update(struct hf_client *client, struct hf_lock *lock,
                            const struct hf_bytes *expected,
                            struct hf_bytes value);

/* hf_read(), linearizable. */
enum hf_err recorded_read(struct hf_client *client, struct hf_key key,
                          struct hf_info *info);

/* hf_force() with `now`. */
enum hf_err recorded_force_now(struct hf_client *client, struct hf_key key,
                               uint64_t token);

/* hf_valid_for(lock, 0): where it is true, the key is held until hf_deadline(),
 * which renewals in the background may have moved. */
bool recorded_valid(struct hf_client *client, struct hf_lock *lock);

/* These end what was recorded as held. */
enum hf_err recorded_close(struct hf_client *client);
void recorded_free(struct hf_client *client, struct hf_lock *lock);

/* A lock under way: begin it, then wait for its answer, once. The answer of
 * hf_future_wait() comes first, if it is not HF_OK. */
struct recorded_claim;
struct recorded_claim *recorded_lock_start(struct hf_client *client,
                                           struct hf_key key,
                                           const struct hf_lock_opts *opts);
enum hf_err recorded_lock_wait(struct recorded_claim *claim, uint32_t wait_ms,
                               struct hf_lock **lock);

/* Whether it is answered by now. */
bool recorded_lock_done(const struct recorded_claim *claim);

/* Its future, for hf_future_cancel(). */
struct hf_future *recorded_lock_future(const struct recorded_claim *claim);

#endif
