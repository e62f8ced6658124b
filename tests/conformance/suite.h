/* suite.h - helpers for the cases of the conformance suite.
 *
 * A case tests one promise, through holdfast.h alone. Each case runs in its own
 * process, with its own URL, on keys that begin with its name.
 *
 * No case asserts an upper bound on real time: a busy machine may stop any
 * process for seconds. Cases check lower bounds, orders and counts. A case that
 * depends on the timing of a lease is called by suite_repeat(), which repeats
 * it with longer leases until the machine is fast enough. Speed is measured in
 * bench/. */
#ifndef HF_TESTS_CONFORMANCE_SUITE_H
#define HF_TESTS_CONFORMANCE_SUITE_H

#include <holdfast.h>
#include <sys/types.h>

#include "lib/expect.h"
#include "lib/runner.h"

#define SUITE_TIMEOUT_MS HF_TEST_TIMEOUT_MS
#define SUITE_LONG_TTL_MS HF_TEST_LONG_MS

struct promise {
    const char *name;
    void (*check)(void);
    uint32_t needs; /* HF_CAP_... bits; the case is skipped without them */
};

#define PROMISE(name, needs)                                                   \
    {                                                                          \
#name, name, needs                                                     \
    }

/* The promises of one subject, in one file. */
struct chapter {
    const struct promise *promises;
    size_t count;
};

#define CHAPTER(promises)                                                      \
    {                                                                          \
        promises, sizeof(promises) / sizeof((promises)[0])                     \
    }

extern const struct chapter chapter_acquire;
extern const struct chapter chapter_release;
extern const struct chapter chapter_leases;
extern const struct chapter chapter_waiting;
extern const struct chapter chapter_handles;
extern const struct chapter chapter_calls;
extern const struct chapter chapter_arguments;
extern const struct chapter chapter_read;
extern const struct chapter chapter_watching;
extern const struct chapter chapter_transitions;
extern const struct chapter chapter_handovers;
extern const struct chapter chapter_stress;

/* ---- The context of a case ----------------------------------------------*/

const char *suite_url(void);

/* A URL at which no server, or no majority of the servers, can be reached.
 * Skips the case if the strategy has no server. */
const char *suite_unreachable_url(void);

/* How many times slower this strategy is than memory:, roughly. */
unsigned suite_slowness(void);

/* `times`, or fewer for a strategy that is so slow that the case would take too
 * long. */
unsigned suite_scale_count(unsigned times);

/* Skip the case unless another process can use the locks of suite_url(). Call
 * this before opening a client. */
void suite_needs_processes(void);

/* Fork. No client may be open. Waits until the threads of closed clients have
 * exited, because these threads do not exist in the child. */
pid_t suite_fork(void);

bool suite_has(uint32_t caps);

/* Open a client; suite_open_background() opens one with background threads. If
 * that fails, the case fails. */
struct hf_client *suite_open(void);
struct hf_client *suite_open_background(void);

/* Close the client and expect HF_OK, which means that the server has confirmed
 * all releases. */
void suite_close(struct hf_client *client);

/* Return a key that no other case uses. It is valid until the case ends. */
struct hf_key suite_key(const char *name);
struct hf_key suite_key_number(const char *name, unsigned number);

/* The default options with another ttl and wait. The suite sets the defaults to
 * a ttl of SUITE_LONG_TTL_MS, and a wait and timeout of SUITE_TIMEOUT_MS. */
struct hf_lock_opts suite_opts(uint32_t ttl_ms, uint32_t wait_ms);

/* Restore the defaults of the library, for cases that test them. */
void suite_restore_defaults(void);

/* `ttl_ms`, or more if a request to this strategy may take longer. For cases in
 * which a lease expires and it does not matter how soon. A claim with such a
 * ttl needs a wait_ms of SUITE_TIMEOUT_MS: if the lease expires before the
 * reply arrives, the client repeats the claim. */
uint32_t suite_short_ttl_ms(uint32_t ttl_ms);

/* Return the lease that a client requests for a ttl of `ttl_ms`. */
int64_t suite_lease_ms(uint32_t ttl_ms);

/* ---- Locks --------------------------------------------------------------*/

/* Adopt the lock of `from`, with its nonce and with `token`. */
struct hf_lock *suite_adopt(struct hf_client *client,
                            const struct hf_lock *from, uint64_t token);

void suite_expect_bytes(struct hf_bytes bytes, struct hf_bytes expected);

/* Read `key`, and expect that its lock has the value `value`. */
void suite_expect_value(struct hf_client *client, struct hf_key key,
                        struct hf_bytes value);

/* ---- Time ---------------------------------------------------------------*/

int64_t suite_now_ms(void); /* CLOCK_BOOTTIME, like hf_lock_deadline() */
void suite_sleep(int64_t ms);
void suite_sleep_until(int64_t instant_ms);

/* Call `attempt` with round 0, 1, ... until it returns true. An attempt asserts
 * its promise, and returns false if the machine was too slow to test it: for
 * example, if the lease expired before the test could renew it. Fails the case
 * after a few rounds. */
typedef bool suite_attempt_fn(unsigned round);
void suite_repeat(suite_attempt_fn *attempt);

/* `ttl_ms` in round 0, and three times as long in each further round. */
uint32_t suite_longer_ms(uint32_t ttl_ms, unsigned round);

/* For cases that need much CPU time: let the other cases run first. */
void suite_lower_priority(void);

/* ---- Threads ------------------------------------------------------------*/

/* Run `work` in `count` threads, numbered from 0, and wait for them. The
 * threads must not use assertions. */
typedef void suite_work_fn(unsigned number, void *arg);
void suite_threads(unsigned count, suite_work_fn *work, void *arg);

/* The calls that suite_on_done() has seen complete, in any thread. */
struct suite_counter {
    _Atomic unsigned count;
    _Atomic int last; /* enum hf_err */
};
void suite_on_done(enum hf_err err, void *counter);

/* Wait for `future`, free it and return its result. If the wait fails, return
 * the error of the wait and keep the future. */
enum hf_err suite_future_result(struct hf_future *future, uint32_t wait_ms);

/* Wait until `*count` is at least `wanted`. Returns false if that takes longer
 * than SUITE_TIMEOUT_MS. Calls hf_process() of `client` unless it is NULL. */
bool suite_await(const _Atomic unsigned *count, unsigned wanted,
                 struct hf_client *client);

/* The events of a handle, in order. suite_on_lock_event() records them. */
struct suite_lock_events {
    _Atomic unsigned count; /* events so far; `events` has the first 16 */
    _Atomic unsigned waiting, at_risk, lost;
    enum hf_lock_event events[16];
    int64_t at_ms[16];
};
void suite_on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                         void *reported);

/* ---- Checks -------------------------------------------------------------*/

/* Claim a held key and expect HF_ETIMEDOUT. If the withdrawal is not confirmed
 * within a second, the result is HF_EINDOUBT, and the claim is repeated.
 * Returns the number of claims. */
unsigned suite_expect_timeout(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts);

/* Returns true if `err` may mean that the lease expired before the reply
 * arrived. For cases with very short leases. */
bool suite_lease_was_too_short(enum hf_err err);

/* Expect that `err` is `wanted`, or HF_EINDOUBT if a server has to confirm the
 * withdrawal. */
void suite_expect_withdrawn(enum hf_err err, enum hf_err wanted);

/* Expect that `text` contains `word`. */
#define expect_error_text(text, word)                                          \
    suite_expect_word((text), (word), __FILE__, __LINE__)
void suite_expect_word(const char *text, const char *word, const char *file,
                       int line);

/* ---- In main() ----------------------------------------------------------*/

/* Test every promise of `chapters` with every strategy. */
int suite_main(const struct chapter *const *chapters, size_t count);

#endif
