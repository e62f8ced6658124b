#include "conformance/suite.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conformance/strategies.h"
#include "lib/recorded.h"

#define JOBS 16 /* cases mostly sleep, so many can run at the same time */
#define ROUNDS 6

/* One promise, tested with one strategy. */
struct suite_case {
    const struct strategy *strategy;
    const struct promise *promise;
    char name[128];
};

/* A key that suite_key() allocated. */
struct case_key {
    struct case_key *next;
    char text[];
};

/* The case that this process runs. */
static struct {
    const struct suite_case *suite_case;
    char url[URL_SIZE];
    uint32_t caps;
    struct case_key *keys;
    unsigned threads; /* threads before the first client was opened */
} self;

/* ---- The context of a case ----------------------------------------------*/

const char *suite_url(void)
{
    return self.url;
}

const char *suite_unreachable_url(void)
{
    static char url[URL_SIZE];

    if (!self.suite_case->strategy->unreachable_url)
        hf_test_skip("this strategy has no server");
    self.suite_case->strategy->unreachable_url(url);
    return url;
}

unsigned suite_slowness(void)
{
    return self.suite_case->strategy->slowness;
}

unsigned suite_scale_count(unsigned times)
{
    return times / (1 + suite_slowness() / 100);
}

/* ThreadSanitizer starts a thread of its own when the program starts its first
 * thread, so suite_fork() must not wait for that thread to exit. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZERS_THREADS 1
#endif
#endif
#ifndef SANITIZERS_THREADS
#define SANITIZERS_THREADS 0
#endif

static unsigned count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    while (tasks && readdir(tasks))
        count++;
    if (tasks)
        (void)closedir(tasks);
    return count;
}

pid_t suite_fork(void)
{
    pid_t pid;

    while (count_threads() > self.threads + SANITIZERS_THREADS)
        (void)poll(NULL, 0, 1);
    pid = fork();
    assert_true(pid >= 0);
    return pid;
}

/* Acquire `key`, and write '+', or '-' if that failed, to `fd`. Hold the key
 * until the other end of `fd` is closed. */
static _Noreturn void hold_in_child(struct hf_key key, int fd)
{
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;
    char byte = hf_open(self.url, NULL, &client) == HF_OK &&
                        recorded_acquire(client, key, NULL, &lock) == HF_OK
                    ? '+'
                    : '-';

    if (write(fd, &byte, 1) == 1)
        (void)!read(fd, &byte, 1);
    if (client)
        (void)recorded_close(client, SUITE_TIMEOUT_MS);
    _exit(0);
}

void suite_needs_processes(void)
{
    struct hf_key key = suite_key("needs-processes");
    struct hf_info info = {.held = false};
    struct hf_client *client = NULL;
    bool held = false;
    int ends[2];
    char byte = 0;
    pid_t pid = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid = suite_fork();
    if (pid == 0) {
        (void)close(ends[0]);
        hold_in_child(key, ends[1]);
    }
    client = suite_open();
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    /* Not recorded: if processes share no locks, the key is free here. */
    if (byte == '+' && hf_read(client, key, HF_LINEARIZABLE, &info) == HF_OK) {
        held = info.held;
        hf_info_fini(&info);
    }
    (void)close(ends[0]);
    (void)waitpid(pid, NULL, 0);
    suite_close(client);
    if (!held)
        hf_test_skip("processes do not share the locks of this strategy");
}

bool suite_has(uint32_t caps)
{
    return (self.caps & caps) == caps;
}

static struct hf_client *open_with(bool background)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_client *client = NULL;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.background = background;
    opts.error = &error;
    if (hf_open(self.url, &opts, &client) != HF_OK)
        fail_msg("%s: %s", self.url, error.text);
    return client;
}

struct hf_client *suite_open(void)
{
    return open_with(false);
}

struct hf_client *suite_open_background(void)
{
    return open_with(true);
}

void suite_close(struct hf_client *client)
{
    expect_ok(recorded_close(client, SUITE_TIMEOUT_MS));
}

struct hf_key suite_key(const char *name)
{
    size_t size = strlen(self.suite_case->name) + 1 + strlen(name) + 1;
    struct case_key *case_key = malloc(sizeof(*case_key) + size);

    assert_non_null(case_key);
    (void)snprintf(case_key->text, size, "%s/%s", self.suite_case->name, name);
    case_key->next = self.keys;
    self.keys = case_key;
    return hf_key_of(case_key->text);
}

struct hf_key suite_key_number(const char *name, unsigned number)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%s-%u", name, number);
    return suite_key(text);
}

struct hf_lock_opts suite_opts(uint32_t ttl_ms, uint32_t wait_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = wait_ms;
    return opts;
}

void suite_restore_defaults(void)
{
    expect_ok(hf_lock_opts_set_default(NULL));
}

/* On a busy machine, a request to a server may take a second, so the ttl is
 * longer for slow strategies. */
uint32_t suite_short_ttl_ms(uint32_t ttl_ms)
{
    return suite_slowness() > 100 ? ttl_ms + 1500 : ttl_ms;
}

int64_t suite_lease_ms(uint32_t ttl_ms)
{
    return (int64_t)ttl_ms + ttl_ms / 16 + 50;
}

/* ---- Locks --------------------------------------------------------------*/

struct hf_lock *suite_adopt(struct hf_client *client,
                            const struct hf_lock *from, uint64_t token)
{
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock = NULL;

    hf_lock_nonce(from, nonce);
    expect_ok(
        hf_lock_adopt(client, hf_lock_key(from), nonce, token, NULL, &lock));
    return lock;
}

void suite_expect_bytes(struct hf_bytes bytes, struct hf_bytes expected)
{
    assert_int_equal(bytes.size, expected.size);
    if (expected.size)
        assert_memory_equal(bytes.data, expected.data, expected.size);
}

void suite_expect_value(struct hf_client *client, struct hf_key key,
                        struct hf_bytes value)
{
    struct hf_info info;

    expect_ok(recorded_read(client, key, &info));
    suite_expect_bytes(info.value, value);
    hf_info_fini(&info);
}

/* ---- Time ---------------------------------------------------------------*/

int64_t suite_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void suite_sleep_until(int64_t instant_ms)
{
    struct timespec at = {
        .tv_sec = instant_ms / 1000,
        .tv_nsec = (instant_ms % 1000) * 1000000,
    };

    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &at, NULL))
        continue;
}

void suite_sleep(int64_t ms)
{
    /* suite_now_ms() is rounded down: add a millisecond, to sleep at least
     * `ms`. */
    suite_sleep_until(suite_now_ms() + ms + 1);
}

void suite_repeat(suite_attempt_fn *attempt)
{
    for (unsigned round = 0; round < ROUNDS; round++)
        if (attempt(round))
            return;
    fail_msg("the machine was too slow in %d rounds", ROUNDS);
}

uint32_t suite_longer_ms(uint32_t ttl_ms, unsigned round)
{
    while (round-- > 0)
        ttl_ms *= 3;
    return ttl_ms;
}

void suite_lower_priority(void)
{
    (void)setpriority(PRIO_PROCESS, 0, 5);
}

/* ---- Threads ------------------------------------------------------------*/

struct worker {
    pthread_t thread;
    unsigned number;
    suite_work_fn *work;
    void *arg;
};

static void *worker_main(void *arg)
{
    struct worker *worker = arg;

    worker->work(worker->number, worker->arg);
    return NULL;
}

void suite_threads(unsigned count, suite_work_fn *work, void *arg)
{
    struct worker *workers = calloc(count, sizeof(*workers));

    assert_non_null(workers);
    for (unsigned i = 0; i < count; i++) {
        workers[i].number = i;
        workers[i].work = work;
        workers[i].arg = arg;
        assert_int_equal(
            pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]),
            0);
    }
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    free(workers);
}

void suite_on_done(enum hf_err err, void *counter)
{
    struct suite_counter *c = counter;

    atomic_store(&c->last, (int)err);
    atomic_fetch_add(&c->count, 1);
}

enum hf_err suite_future_result(struct hf_future *future, uint32_t wait_ms)
{
    enum hf_err err = HF_OK;
    enum hf_err waited = recorded_future_wait(future, wait_ms, &err);

    if (waited)
        return waited;
    hf_future_free(future);
    return err;
}

bool suite_await(const _Atomic unsigned *count, unsigned wanted,
                 struct hf_client *client)
{
    int64_t deadline = suite_now_ms() + SUITE_TIMEOUT_MS;

    while (atomic_load(count) < wanted && suite_now_ms() < deadline) {
        if (client) {
            struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

            (void)poll(&fd, 1, 10);
            (void)hf_process(client);
        } else {
            suite_sleep(0);
        }
    }
    return atomic_load(count) >= wanted;
}

void suite_on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                         void *reported)
{
    struct suite_lock_events *h = reported;
    unsigned at = atomic_load(&h->count);

    (void)lock;
    if (at < sizeof(h->events) / sizeof(h->events[0])) {
        h->events[at] = event;
        h->at_ms[at] = suite_now_ms();
    }
    if (event == HF_LOCK_EVENT_WAITING)
        atomic_fetch_add(&h->waiting, 1);
    if (event == HF_LOCK_EVENT_AT_RISK)
        atomic_fetch_add(&h->at_risk, 1);
    if (event == HF_LOCK_EVENT_LOST)
        atomic_fetch_add(&h->lost, 1);
    atomic_store(&h->count, at + 1);
}

/* ---- Checks -------------------------------------------------------------*/

unsigned suite_expect_timeout(struct hf_client *client, struct hf_key key,
                              const struct hf_lock_opts *opts)
{
    struct hf_lock *none = NULL;
    enum hf_err err = HF_OK;
    unsigned claims = 0;

    do {
        err = recorded_acquire(client, key, opts, &none);
        claims++;
    } while (err == HF_EINDOUBT);
    expect_err(err, HF_ETIMEDOUT);
    assert_null(none);
    return claims;
}

bool suite_lease_was_too_short(enum hf_err err)
{
    return err == HF_ETIMEDOUT || err == HF_EUNAVAIL || err == HF_EINDOUBT;
}

void suite_expect_withdrawn(enum hf_err err, enum hf_err wanted)
{
    if (err != HF_EINDOUBT || suite_slowness() == 1)
        expect_err(err, wanted);
}

void suite_expect_word(const char *text, const char *word, const char *file,
                       int line)
{
    if (strstr(text, word))
        return;
    print_error("\"%s\" does not contain '%s'\n", text, word);
    _fail(file, line);
}

/* ---- Setup and teardown of a case ---------------------------------------*/

static void skip_without(uint32_t missing)
{
    char why[256];
    size_t used = (size_t)snprintf(why, sizeof(why), "%s lacks",
                                   self.suite_case->strategy->name);

    for (uint32_t cap = 1; cap <= missing && used < sizeof(why); cap <<= 1)
        if (missing & cap)
            used += (size_t)snprintf(why + used, sizeof(why) - used, " %s",
                                     hf_cap_name((enum hf_cap)cap));
    hf_test_skip(why);
}

static int set_up(void **state)
{
    struct hf_client *client = NULL;
    char unique[160];

    self.suite_case = *state;
    self.threads = count_threads();
    (void)snprintf(unique, sizeof(unique), "%s-%ld",
                   self.suite_case->promise->name, (long)getpid());
    self.suite_case->strategy->url(self.url, unique);
    client = suite_open();
    self.caps = hf_caps(client);
    (void)hf_close(client, SUITE_TIMEOUT_MS);
    hf_test_set_defaults();
    if (self.suite_case->promise->needs & ~self.caps)
        skip_without(self.suite_case->promise->needs & ~self.caps);
    recorded_init(suite_has(HF_CAP_FIFO));
    if (!suite_has(HF_CAP_FENCE))
        recorded_set_no_fence();
    return 0;
}

static int tear_down(void **state)
{
    int violated = recorded_check(self.suite_case->name);

    (void)state;
    while (self.keys) {
        struct case_key *case_key = self.keys;

        self.keys = case_key->next;
        free(case_key);
    }
    return violated;
}

static void run_case(void **state)
{
    const struct suite_case *suite_case = *state;

    suite_case->promise->check();
}

/* ---- In main() ----------------------------------------------------------*/

static size_t add_cases(const struct strategy *strategy,
                        const struct chapter *chapter,
                        struct suite_case *suite_cases,
                        struct CMUnitTest *cases)
{
    for (size_t i = 0; i < chapter->count; i++) {
        suite_cases[i].strategy = strategy;
        suite_cases[i].promise = &chapter->promises[i];
        (void)snprintf(suite_cases[i].name, sizeof(suite_cases[i].name),
                       "%s/%s", strategy->name, chapter->promises[i].name);
        cases[i] = (struct CMUnitTest){
            .name = suite_cases[i].name,
            .test_func = run_case,
            .setup_func = set_up,
            .teardown_func = tear_down,
            .initial_state = &suite_cases[i],
        };
    }
    return chapter->count;
}

/* Returns true if one of the `count` cases will run. */
static bool will_run(const struct CMUnitTest *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (hf_test_will_run(cases[i].name))
            return true;
    return false;
}

/* Start the servers of the strategies whose cases will run, and set `started`
 * of those. `count` is the number of cases of each strategy. */
static bool start_servers(const struct CMUnitTest *cases, size_t count,
                          bool started[])
{
    for (size_t i = 0; i < strategy_count; i++) {
        if (!strategies[i].start || !will_run(&cases[i * count], count))
            continue;
        started[i] = true;
        if (!strategies[i].start()) {
            (void)fprintf(stderr, "%s: cannot start its servers\n",
                          strategies[i].name);
            return false;
        }
    }
    return true;
}

static bool stop_servers(const bool started[])
{
    bool sound = true;

    for (size_t i = 0; i < strategy_count; i++) {
        if (started[i] && !strategies[i].stop()) {
            (void)fprintf(stderr, "%s: a server has failed\n",
                          strategies[i].name);
            sound = false;
        }
    }
    return sound;
}

int suite_main(const struct chapter *const *chapters, size_t count)
{
    struct CMUnitTest *cases = NULL;
    struct suite_case *suite_cases = NULL;
    bool *started = calloc(strategy_count, sizeof(*started));
    size_t each = 0, used = 0;
    int status = 1;

    for (size_t i = 0; i < count; i++)
        each += chapters[i]->count;
    cases = calloc(each * strategy_count + 1, sizeof(*cases));
    suite_cases = calloc(each * strategy_count + 1, sizeof(*suite_cases));
    if (cases && suite_cases && started) {
        for (size_t s = 0; s < strategy_count; s++)
            for (size_t i = 0; i < count; i++)
                used += add_cases(&strategies[s], chapters[i],
                                  &suite_cases[used], &cases[used]);
        if (start_servers(cases, each, started))
            status = hf_test_main("conformance", cases, used, JOBS);
        if (!stop_servers(started) && status == 0)
            status = 1;
    }
    free(started);
    free(suite_cases);
    free(cases);
    return status;
}
