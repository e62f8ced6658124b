/* suite.h - what the cases of the conformance suite share.
 *
 * A case is one promise, checked through holdfast.h alone. It runs in a
 * process of its own, over a URL of its own, on keys that begin with its name.
 *
 * No case asserts an upper bound on real time: a busy machine may stop any
 * process for seconds. A case checks lower bounds, orders and counts. Where it
 * needs a lease to end, suite_repeat() gives it longer leases until it can be
 * judged. How fast things are is measured in bench/. */
#ifndef HF_TESTS_CONFORMANCE_SUITE_H
#define HF_TESTS_CONFORMANCE_SUITE_H

#include <holdfast.h>
#include <sys/types.h>

#include "lib/expect.h"
#include "lib/runner.h"

#define SUITE_TIMEOUT_MS HF_TEST_PATIENCE_MS
#define SUITE_LONG_TTL_MS HF_TEST_LONG_MS

struct promise {
    const char *name;
    void (*check)(void);
    uint32_t needs; /* HF_CAP_FENCE | ...: skipped where one is missing */
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

/* ---- The world of a case ------------------------------------------------*/

const char *suite_url(void);

/* The URL of a server that is not there; skips the case if there is none. */
const char *suite_unreachable_url(void);

/* By how much this strategy is slower than one within the process. */
unsigned suite_slowness(void);

/* How often to do what is done `times` within the process: less often over a
 * strategy that is so slow that it would take too long. */
unsigned suite_scale_count(unsigned times);

/* Skip the case unless another process can share the locks of suite_url(). To
 * be called before a client is open. */
void suite_needs_processes(void);

/* Fork, when no client is open: it waits until those that were have let go of
 * their threads, which a child would not have. */
pid_t suite_fork(void);

bool suite_has(uint32_t caps);

/* A client, without and with a thread of its own. Fails the case if it cannot
 * be opened. */
struct hf_client *suite_open(void);
struct hf_client *suite_open_background(void);

/* Close it, and expect that all was confirmed. */
void suite_close(struct hf_client *client);

/* A key of this case alone; it lives as long as the case. */
struct hf_key suite_key(const char *name);
struct hf_key suite_key_number(const char *name, unsigned number);

/* The defaults of this case, but for the two times. Unless the case calls
 * suite_restore_defaults() they are a ttl of SUITE_LONG_TTL_MS, and a wait and a
 * timeout of SUITE_TIMEOUT_MS. */
struct hf_lock_opts suite_opts(uint32_t ttl_ms, uint32_t wait_ms);

/* Back to the library's own defaults: for the cases that are about them. */
void suite_restore_defaults(void);

/* A ttl that is short, but no shorter than what is asked of this strategy may
 * take: for cases in which a lease ends, and how soon does not matter. A LOCK
 * with such a ttl needs a wait_ms of SUITE_TIMEOUT_MS: where the lease ends
 * before the answer arrives, the client asks again. */
uint32_t suite_short_ttl_ms(uint32_t ttl_ms);

/* The lease that a server is asked for, to grant `ttl_ms` in full. */
int64_t suite_lease_ms(uint32_t ttl_ms);

/* ---- Time ---------------------------------------------------------------*/

int64_t suite_now_ms(void); /* CLOCK_BOOTTIME, as hf_lock_deadline() */
void suite_sleep(int64_t ms);
void suite_sleep_until(int64_t instant_ms);

/* Call `attempt` with round 0, 1, ... until it returns true. It returns false if
 * nothing can be said because the machine was too slow, such as a lease that
 * ended before it was renewed; what it can judge, it asserts. Fails the case
 * after a few rounds. */
typedef bool suite_attempt_fn(unsigned round);
void suite_repeat(suite_attempt_fn *attempt);

/* `ttl_ms` in round 0, and three times longer in each round after it. */
uint32_t suite_longer_ms(uint32_t ttl_ms, unsigned round);

/* Leave the processor to the cases that wait: this one needs much of it. */
void suite_lower_priority(void);

/* ---- Threads ------------------------------------------------------------*/

/* Run `work` in `count` threads, with their number, until all return. They
 * must not assert. */
typedef void suite_work_fn(unsigned number, void *arg);
void suite_threads(unsigned count, suite_work_fn *work, void *arg);

/* Counts callbacks, from any thread. */
struct suite_counter {
    _Atomic unsigned count;
    _Atomic int last; /* enum hf_err */
};
void suite_on_done(enum hf_err err, void *counter);

/* Wait for the answer of `future`, and free it. Should the waiting fail, its
 * own answer, and the future stays. */
enum hf_err suite_future_result(struct hf_future *future, uint32_t wait_ms);

/* Wait until `*count` is at least `wanted`; false after SUITE_TIMEOUT_MS. Drives
 * `client`, which may be NULL. */
bool suite_await(const _Atomic unsigned *count, unsigned wanted,
                 struct hf_client *client);

/* What a handle's on_event heard, in order. */
struct suite_lock_events {
    _Atomic unsigned count; /* events in the list */
    _Atomic unsigned waiting, at_risk, lost;
    enum hf_lock_event events[16];
    int64_t at_ms[16];
};
void suite_on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                         void *heard);

/* ---- Checks -------------------------------------------------------------*/

/* Ask for a held key until the wait runs out, and expect HF_ETIMEDOUT. A
 * withdrawal that is not confirmed within a second is in doubt; then repeat the
 * request. Return the number of requests. */
unsigned suite_expect_timeout(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts);

/* `err` is how a lock is refused whose lease was over before it could be used:
 * for cases with leases so short that this may happen. */
bool suite_lease_was_too_short(enum hf_err err);

/* `err` is `wanted`, or in doubt where a server has to confirm a withdrawal. */
void suite_expect_withdrawn(enum hf_err err, enum hf_err wanted);

/* The text contains the word. */
#define expect_word(text, word)                                                \
    suite_expect_word((text), (word), __FILE__, __LINE__)
void suite_expect_word(const char *text, const char *word, const char *file,
                       int line);

/* ---- In main() ----------------------------------------------------------*/

/* Run every promise of `chapters` over every strategy. */
int suite_main(const struct chapter *const *chapters, size_t count);

#endif
