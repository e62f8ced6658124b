/* recorded.h - wrappers that record the calls of a case, to be checked when the
 * case ends.
 *
 * Each function calls its namesake in holdfast.h and records when it was
 * called, when it returned, its result, and the deadline that the library
 * computed. The checker (tools/hf-check) then looks for two holders at the same
 * time, tokens that do not rise, results that fit no order, and (see
 * recorded_init()) waiters that were overtaken. A handle does not reveal its
 * client, so functions on a handle take the client too.
 *
 * Any thread and any process that the case forks may call these functions:
 * there is one history and one clock per case. The history lies outside of the
 * heap, so that cases can measure memory.
 *
 * The cases of tests/conformance acquire, renew and release locks only through
 * these functions: check-rows enforces that. */
#ifndef HF_TESTS_LIB_RECORDED_H
#define HF_TESTS_LIB_RECORDED_H

#include <sys/types.h>

#include <holdfast.h>

/* Start a new history, and discard the old one. If `fifo` is set, the checker
 * also looks for waiters that were overtaken. */
void recorded_init(bool fifo);

/* The strategy does not promise HF_CAP_FENCE: do not check the tokens of this
 * history. */
void recorded_set_no_fence(void);

/* Check the history. Returns 0, or -1 with the checker's report on stderr, with
 * the title `name`. */
int recorded_check(const char *name);

/* ---- Acquiring ----------------------------------------------------------*/

enum hf_err recorded_acquire(struct hf_client *client, struct hf_key key,
                             const struct hf_lock_opts *opts,
                             struct hf_lock **lock);
enum hf_err recorded_acquire_start(struct hf_client *client, struct hf_key key,
                                   const struct hf_lock_opts *opts,
                                   struct hf_lock **lock, hf_done_fn *done,
                                   void *arg, struct hf_future **future);
enum hf_err recorded_lock_new(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts,
                              struct hf_lock **lock);
enum hf_err recorded_lock_acquire(struct hf_client *client,
                                  struct hf_lock *lock);
enum hf_err recorded_lock_acquire_start(struct hf_client *client,
                                        struct hf_lock *lock, hf_done_fn *done,
                                        void *arg, struct hf_future **future);
enum hf_err recorded_lock_wait(struct hf_lock *lock);

/* Record that the pending claim of this handle is in the queue now. The claim
 * must have been started by recorded_lock_new(), or by
 * recorded_lock_acquire_start() with `future` NULL. Does nothing if the claim
 * has been answered. */
void recorded_set_queued(const struct hf_lock *lock);

/* Like recorded_acquire(), but also records when the claim enters the queue, so
 * that the checker can find waiters that were overtaken. */
enum hf_err recorded_acquire_fifo(struct hf_client *client, struct hf_key key,
                                  const struct hf_lock_opts *opts,
                                  struct hf_lock **lock);

enum hf_err recorded_run(struct hf_client *client, struct hf_key key,
                         const struct hf_lock_opts *opts, hf_run_fn *run,
                         void *arg, int *result);

/* ---- On a handle --------------------------------------------------------*/

enum hf_err recorded_release(struct hf_client *client, struct hf_lock *lock);
enum hf_err recorded_release_start(struct hf_client *client,
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

/* Returns hf_lock_valid_for(lock, 0). If that is true, the history says that
 * the key is held until hf_lock_deadline(), which background renewals may have
 * extended. */
bool recorded_is_valid(struct hf_client *client, struct hf_lock *lock);

/* ---- On a key -----------------------------------------------------------*/

/* hf_read(), linearizable. */
enum hf_err recorded_read(struct hf_client *client, struct hf_key key,
                          struct hf_info *info);

/* hf_force() with `now`. */
enum hf_err recorded_force_now(struct hf_client *client, struct hf_key key,
                               uint64_t token);

/* ---- Futures, closing and killing ---------------------------------------*/

/* hf_future_wait(). The result of a call that was started without a callback is
 * recorded here. */
enum hf_err recorded_future_wait(struct hf_future *future, uint32_t wait_ms,
                                 enum hf_err *err);

/* hf_close() and hf_lock_free(). Before that, recorded_close() records a
 * release of each lock that the client holds, and recorded_lock_free() one of
 * the lock of the handle, if it is held. */
enum hf_err recorded_close(struct hf_client *client, uint32_t timeout_ms);
void recorded_lock_free(struct hf_lock *lock);

/* Kill a process that the case forked, with all of its clients. */
void recorded_kill(pid_t pid);

#endif
