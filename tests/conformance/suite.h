/* suite.h - what the cases of the conformance suite share.
 *
 * A case is one promise, checked through holdfast.h alone. It runs in a
 * process of its own, over a URL of its own, on keys that begin with its name.
 *
 * Lower bounds hold every time. Upper bounds are the rows' own, times
 * hf_test_slowness(), and are measured anew where they are missed: a machine
 * that is busy elsewhere is late once, a library that is late is late each
 * time. */
#ifndef HF_TESTS_CONFORMANCE_SUITE_H
#define HF_TESTS_CONFORMANCE_SUITE_H

#include <holdfast.h>
#include <sys/types.h>

#include "lib/expect.h"
#include "lib/runner.h"

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

extern const struct chapter chapter_taking;
extern const struct chapter chapter_giving_back;
extern const struct chapter chapter_leases;
extern const struct chapter chapter_waiting;
extern const struct chapter chapter_handles;
extern const struct chapter chapter_calls;
extern const struct chapter chapter_words;
extern const struct chapter chapter_looking;
extern const struct chapter chapter_watching;
extern const struct chapter chapter_crowds;

/* ---- The world of a case ------------------------------------------------*/

const char *suite_url(void);

/* The URL of a server that is not there; skips the case if there is none. */
const char *suite_unreachable_url(void);

/* By how much this strategy is slower than one within the process. */
unsigned suite_slowness(void);

/* How often to do what is done `times` within the process: less often over a
 * strategy that is so slow that it would take too long. */
unsigned suite_often(unsigned times);

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

/* The defaults, but for the two times. */
struct hf_lock_opts suite_opts(uint32_t ttl_ms, uint32_t wait_ms);

/* A ttl that is short, but no shorter than what is asked of this strategy may
 * take: for cases in which a lease ends, and how soon does not matter. */
uint32_t suite_brief_ms(uint32_t ttl_ms);

/* The lease that a server is asked for, to grant `ttl_ms` in full. */
int64_t suite_lease_ms(uint32_t ttl_ms);

/* ---- Time ---------------------------------------------------------------*/

int64_t suite_now_ms(void); /* CLOCK_BOOTTIME, as hf_deadline() */
void suite_sleep(int64_t ms);
void suite_sleep_until(int64_t instant_ms);

/* Measure up to five times, until one of the spans is within the bound and what
 * the strategy's slowness adds to it. */
typedef int64_t suite_measure_fn(unsigned round);
void suite_in_time(suite_measure_fn *measure, int64_t bound_ms);

/* Be polite to cases that measure time: this one needs the processor. */
void suite_step_back(void);

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
void suite_count(enum hf_err err, void *counter);

/* Wait for the answer of `future`, and free it. Should the waiting fail, its
 * own answer, and the future stays. */
enum hf_err suite_answer(struct hf_future *future, uint32_t wait_ms);

/* Wait until `*count` is at least `wanted`; false after ten seconds. Drives
 * `client`, which may be NULL. */
bool suite_await(const _Atomic unsigned *count, unsigned wanted,
                 struct hf_client *client);

/* What a handle's on_event heard, in order. */
struct suite_heard {
    _Atomic unsigned count; /* events in the list */
    _Atomic unsigned waiting, at_risk, lost;
    enum hf_lock_event events[16];
    int64_t at_ms[16];
};
void suite_hear(struct hf_lock *lock, enum hf_lock_event event, void *heard);

/* ---- Checks -------------------------------------------------------------*/

/* The text contains the word. */
#define expect_word(text, word)                                                \
    suite_expect_word((text), (word), __FILE__, __LINE__)
void suite_expect_word(const char *text, const char *word, const char *file,
                       int line);

/* ---- In main() ----------------------------------------------------------*/

/* Run every promise of `chapters` over every strategy. */
int suite_main(const struct chapter *const *chapters, size_t count);

#endif
