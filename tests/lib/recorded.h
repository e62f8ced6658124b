/* recorded.h - calls that are written down, and checked when the case ends.
 *
 * Each function calls its namesake of holdfast.h and writes down when it was
 * called, when it returned and what was answered, with the deadline that the
 * library computed. The checker (tools/hf-check) then looks for two holders at
 * one instant, tokens that do not rise, answers that fit no order, and waiters
 * that were passed over. A handle does not tell whose it is, so what is done to
 * one takes the client too.
 *
 * Any thread may call, and any process that the case forks: there is one
 * history a case, and one clock. It lies outside of the heap, so that it does
 * not count where a case measures memory.
 *
 * The cases of tests/conformance take, keep and give back no lock in any other
 * way: check-rows sees to that. */
#ifndef HF_TESTS_LIB_RECORDED_H
#define HF_TESTS_LIB_RECORDED_H

#include <sys/types.h>

#include <holdfast.h>

/* Begin a history, and end the one before. */
void recorded_init(bool fifo);

/* 0, or -1 with the checker's report on stderr. */
int recorded_check(const char *name);

/* ---- Taking -------------------------------------------------------------*/

enum hf_err recorded_lock(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock);
enum hf_err recorded_lock_start(struct hf_client *client, struct hf_key key,
                                const struct hf_lock_opts *opts,
                                struct hf_lock **lock, hf_done_fn *done,
                                void *arg, struct hf_future **future);
enum hf_err recorded_lock_new(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts,
                              struct hf_lock **lock);
enum hf_err recorded_claim(struct hf_client *client, struct hf_lock *lock);
enum hf_err recorded_claim_start(struct hf_client *client, struct hf_lock *lock,
                                 hf_done_fn *done, void *arg,
                                 struct hf_future **future);
enum hf_err recorded_claim_wait(struct hf_lock *lock);

/* The claim that was started on this handle, without a future, is in line. */
void recorded_queued(const struct hf_lock *lock);

/* recorded_lock() that tells by itself if it had to stand in line, for checks
 * of the order. */
enum hf_err recorded_lock_in_line(struct hf_client *client, struct hf_key key,
                                  const struct hf_lock_opts *opts,
                                  struct hf_lock **lock);

enum hf_err recorded_run(struct hf_client *client, struct hf_key key,
                         const struct hf_lock_opts *opts, hf_run_fn *run,
                         void *arg, int *result);

/* ---- On a handle --------------------------------------------------------*/

enum hf_err recorded_unlock(struct hf_client *client, struct hf_lock *lock);
enum hf_err recorded_unlock_start(struct hf_client *client,
                                  struct hf_lock *lock, hf_done_fn *done,
                                  void *arg, struct hf_future **future);
enum hf_err recorded_renew(struct hf_client *client, struct hf_lock *lock,
                           uint32_t ttl_ms);
enum hf_err recorded_renew_start(struct hf_client *client, struct hf_lock *lock,
                                 uint32_t ttl_ms, hf_done_fn *done, void *arg,
                                 struct hf_future **future);
enum hf_err recorded_update(struct hf_client *client, struct hf_lock *lock,
                            const struct hf_bytes *expected,
                            struct hf_bytes value);
enum hf_err recorded_update_start(struct hf_client *client,
                                  struct hf_lock *lock,
                                  const struct hf_bytes *expected,
                                  struct hf_bytes value, hf_done_fn *done,
                                  void *arg, struct hf_future **future);

/* hf_lock_valid_for(lock, 0): where it is true, the key is held until hf_lock_deadline(),
 * which renewals in the background may have moved. */
bool recorded_valid(struct hf_client *client, struct hf_lock *lock);

/* ---- On a key -----------------------------------------------------------*/

/* hf_read(), linearizable. */
enum hf_err recorded_read(struct hf_client *client, struct hf_key key,
                          struct hf_info *info);

/* hf_force() with `now`. */
enum hf_err recorded_force_now(struct hf_client *client, struct hf_key key,
                               uint64_t token);

/* ---- Answers, and ends --------------------------------------------------*/

/* What was started without a callback has its answer from here; any future may
 * be waited for. */
enum hf_err recorded_future_wait(struct hf_future *future, uint32_t wait_ms,
                                 enum hf_err *err);

/* These end what was recorded as held. */
enum hf_err recorded_close(struct hf_client *client, uint32_t timeout_ms);
void recorded_free(struct hf_lock *lock);

/* Kill a process that the case forked, and all of its clients with it. */
void recorded_kill(pid_t pid);

#endif
