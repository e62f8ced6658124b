/* A process, the victim, is killed at each of the crash points 1 to POINTS
 * (base/crash_point.h) of creating, opening, using and closing a directory.
 * Confirmed results stay valid, nothing is blocked, and no token is granted
 * twice.
 *
 * This program is linked with a separate build of the library that has the
 * crash points. */
#include <fcntl.h>
#include <holdfast.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MORE_ROUNDS 20 /* for a crash point that no victim has reached */
#define HF_CRASH_POINTS
#include "base/bytes.h"
#include "base/crash_point.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/runner.h"

#define POINTS 31
#define HOUR_MS 3600000
#define BULK 900 /* lock and unlock pairs: enough to fill the ring twice */
#define BULK_VALUE 3000 /* bytes in the value of each BULK lock */
#define MANY 200        /* keys that one process holds */

static char directory[] = HF_TEST_FOLDER;
static char url[64];

/* Memory that all processes of a case share. The heir is the process that is
 * granted the key "handed" when the victim releases it. */
static struct report {
    atomic_ullong kept;        /* token of "kept"; 0: it may be free */
    atomic_ullong newest[128]; /* highest token of a key, by its first letter */
    atomic_ullong handed;      /* token of "handed", granted to the victim */
    atomic_ullong taken;       /* token of "handed", granted to the heir */
    atomic_int heir;           /* pid of the heir */
    atomic_int ready;          /* processes that hold MANY keys */
    atomic_bool done;
} * report;

/* ---- The victim ---------------------------------------------------------*/

static int deadly_point;
static int hits_left;

/* The slow work that this process has done since `work` was zeroed. */
static struct work {
    bool in_transaction;
    int token_files; /* token files written and synced */
    int decoded;     /* snapshots decoded */
    int checked;     /* times that it checked whether a client is dead */
    int token_files_in_transaction;
    int decoded_in_transaction;
} work;

static void count_work(int number)
{
    if (number == 1)
        work.in_transaction = true;
    if (number == 4)
        work.in_transaction = false;
    if (number == 15)
        work.token_files++;
    if (number == 31)
        work.decoded++;
    if (number == 32)
        work.checked++;
    if (work.in_transaction && number == 15)
        work.token_files_in_transaction++;
    if (work.in_transaction && number == 31)
        work.decoded_in_transaction++;
}

void hf_crash_point(int number)
{
    count_work(number);
    if (number == deadly_point && --hits_left == 0)
        (void)kill(getpid(), SIGKILL);
}

static void sleep_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

static void expect_success(enum hf_err err)
{
    if (err) {
        (void)fprintf(stderr, "crash point %d: %s\n", deadly_point,
                      hf_err_name(err));
        _exit(3);
    }
}

static struct hf_client *open_client(void)
{
    struct hf_client *client;

    expect_success(hf_open(url, NULL, &client));
    return client;
}

static struct hf_lock *take_key(struct hf_client *client, const char *key,
                                uint32_t ttl_ms, const char *value)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = HF_TEST_TIMEOUT_MS;
    opts.timeout_ms = HF_TEST_TIMEOUT_MS;
    opts.value = hf_bytes_of(value);
    expect_success(hf_acquire(client, hf_key_of(key), &opts, &lock));
    if (hf_lock_token(lock) <= atomic_load(&report->newest[(int)*key])) {
        (void)fprintf(stderr, "crash point %d: token %llu was granted before\n",
                      deadly_point, (unsigned long long)hf_lock_token(lock));
        _exit(4);
    }
    atomic_store(&report->newest[(int)*key], hf_lock_token(lock));
    return lock;
}

static void release_key(struct hf_lock *lock)
{
    expect_success(hf_release(lock));
    hf_lock_free(lock);
}

/* The lease is short, so that the survivors do not wait for long. On a busy
 * machine the lease may have expired, so HF_EEXPIRED is no failure. */
static void release_key_or_expire(struct hf_lock *lock)
{
    enum hf_err err = hf_release(lock);

    if (err != HF_EEXPIRED)
        expect_success(err);
    hf_lock_free(lock);
}

static void await_waiters(struct hf_client *client, uint32_t count)
{
    uint32_t waiters = 0;

    while (waiters != count) {
        struct hf_info info;

        sleep_ms(1);
        expect_success(
            hf_read(client, hf_key_of("handed"), HF_LINEARIZABLE, &info));
        waiters = info.waiters;
        hf_info_fini(&info);
    }
}

/* Start a process that waits for "handed". Unless `outlives` is true, the
 * process dies with the victim, so that no process is left in a directory that
 * is removed. */
static pid_t start_heir(bool outlives)
{
    pid_t victim = getpid();
    pid_t pid = fork();

    if (pid == 0) {
        struct hf_client *client;
        struct hf_lock *lock;

        if (!outlives &&
            (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != victim))
            _exit(0);
        deadly_point = 0;
        client = open_client();
        lock = take_key(client, "handed", HOUR_MS, "");
        atomic_store(&report->taken, hf_lock_token(lock));
        release_key(lock);
        expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
        _exit(0);
    }
    return pid;
}

/* Stop a process while it is not in the critical section. If a read fails, the
 * process may have stopped in the critical section, so try again. */
static void stop_outside(struct hf_client *client, pid_t pid)
{
    struct hf_info info;
    enum hf_err err;

    do {
        (void)kill(pid, SIGCONT);
        (void)kill(pid, SIGSTOP);
        (void)waitpid(pid, NULL, WUNTRACED);
        err = hf_read(client, hf_key_of("handed"), HF_LINEARIZABLE, &info);
    } while (err);
    hf_info_fini(&info);
}

/* Start two waiters, and kill the first. The second is stopped, so that the
 * victim has to reap the first. */
static void start_two_waiters(struct hf_client *client)
{
    pid_t first = start_heir(false);

    await_waiters(client, 1);
    atomic_store(&report->heir, start_heir(true));
    await_waiters(client, 2);
    stop_outside(client, atomic_load(&report->heir));
    (void)kill(first, SIGKILL);
    (void)waitpid(first, NULL, 0);
}

/* Take and detach a lock, which must survive this process. */
static void detach_lock(void)
{
    struct hf_client *client = open_client();
    struct hf_lock *kept = take_key(client, "kept", HOUR_MS, "first");

    expect_success(hf_update(kept, NULL, hf_bytes_of("second")));
    expect_success(hf_lock_detach(kept));
    atomic_store(&report->kept, hf_lock_token(kept));
}

static void victim_main(void)
{
    static char large[BULK_VALUE];
    struct hf_client *client = open_client();
    struct hf_lock *handed;

    detach_lock();
    handed = take_key(client, "handed", HOUR_MS, "");
    atomic_store(&report->handed, hf_lock_token(handed));
    start_two_waiters(client);
    release_key(handed);
    (void)kill(atomic_load(&report->heir), SIGCONT);
    memset(large, 'x', sizeof(large) - 1);
    for (int i = 0; i < BULK; i++)
        release_key_or_expire(take_key(client, "bulk", 200, large));
    atomic_store(&report->kept, 0);
    expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_success(
        hf_close(open_client(), HF_TEST_TIMEOUT_MS)); /* reads a snapshot */
    _exit(0);
}

/* ---- The survivors ------------------------------------------------------*/

/* Run a victim that is killed when it reaches the crash point `point` for the
 * `hits`-th time. Returns true if it was killed. */
static bool kill_at(int point, int hits)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        deadly_point = point;
        hits_left = hits;
        victim_main();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        fail_msg("crash point %d: the victim exited with status %d", point,
                 WEXITSTATUS(status));
    return WIFSIGNALED(status);
}

/* If the victim has detached "kept", the key must still be held, with the same
 * token and value. */
static void expect_promises_kept(struct hf_client *client)
{
    struct hf_info info;

    if (atomic_load(&report->kept) == 0)
        return;
    expect_success(hf_read(client, hf_key_of("kept"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_int_equal(info.token, atomic_load(&report->kept));
    assert_true(hf_bytes_equal(info.value, hf_bytes_of("second")));
    hf_info_fini(&info);
}

/* If the victim has released "handed", its heir has been granted the key or
 * will be soon, although the victim's lease would last an hour. */
static void expect_handed_over(struct hf_client *client)
{
    pid_t heir = atomic_load(&report->heir);
    struct hf_info info;
    bool released;
    int status;

    if (heir == 0)
        return;
    (void)kill(heir, SIGCONT);
    expect_success(
        hf_read(client, hf_key_of("handed"), HF_LINEARIZABLE, &info));
    released = !info.held || info.token != atomic_load(&report->handed);
    hf_info_fini(&info);
    if (!released)
        (void)kill(heir, SIGKILL);
    assert_int_equal(waitpid(heir, &status, 0), heir);
    if (released)
        assert_int_equal(status, 0);
}

static void expect_newest(struct hf_lock *lock)
{
    for (int i = 0; i < 128; i++)
        assert_true(hf_lock_token(lock) >= atomic_load(&report->newest[i]));
}

static void expect_all_well(void)
{
    struct hf_client *client = open_client();
    struct hf_lock *newest;

    expect_promises_kept(client);
    expect_handed_over(client);
    release_key(take_key(client, "bulk", HOUR_MS, ""));
    release_key(take_key(client, "left", HOUR_MS, ""));
    newest = take_key(client, "fresh", HOUR_MS, "");
    expect_newest(newest);
    release_key(newest);
    expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void reset_directory(void)
{
    pid_t any;

    do
        any = waitpid(-1, NULL, WNOHANG); /* reap the waiter that was killed */
    while (any > 0);
    assert_true(hf_test_folder_remove(directory));
    memcpy(directory, HF_TEST_FOLDER, sizeof(directory));
    assert_true(hf_test_folder_make(directory));
    (void)snprintf(url, sizeof(url), "file:%s/d", directory);
    memset(report, 0, sizeof(*report));
}

/* The victim creates the directory: no client has opened it before. */
static bool survive_alone(int point, int hits)
{
    bool reached;

    reset_directory();
    reached = kill_at(point, hits);
    expect_all_well();
    return reached;
}

/* A process opens the directory, and dies in the critical section. */
static void die_in_transaction(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        deadly_point = 1;
        hits_left = 1;
        (void)open_client();
        _exit(0);
    }
    (void)waitpid(pid, NULL, 0);
}

/* A process takes a lock and dies, so the next client in its slot has to
 * release the lock. */
static void die_holding(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)take_key(open_client(), "left", HOUR_MS, "");
        _exit(0);
    }
    (void)waitpid(pid, NULL, 0);
}

/* Another client holds a lock while the victim runs. Two processes have died
 * before: one held a lock, the other was in the critical section. */
static bool survive_beside_holder(int point, int hits)
{
    struct hf_client *client;
    struct hf_lock *lock;
    bool reached;

    reset_directory();
    client = open_client();
    lock = take_key(client, "mine", HOUR_MS, "");
    die_holding();
    die_in_transaction();
    reached = kill_at(point, hits);
    expect_success(hf_renew(lock, HOUR_MS));
    release_key(lock);
    expect_all_well();
    expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
    return reached;
}

static bool survive_point(int point)
{
    static const int hits[] = {1, 2, 9};
    bool reached = false;

    for (size_t i = 0; i < 3; i++) {
        if (survive_alone(point, hits[i]))
            reached = true;
        if (survive_beside_holder(point, hits[i]))
            reached = true;
    }
    return reached;
}

/* Kill victims at each of the crash points `first` to `last`. Whether a victim
 * reaches a point may depend on the timing, so a point that none has reached is
 * tried again. */
static void survive(int first, int last)
{
    for (int point = first; point <= last; point++) {
        bool reached = survive_point(point);

        for (int i = 0; i < MORE_ROUNDS && !reached; i++)
            reached = survive_point(point);
        if (!reached)
            fail_msg("no victim reached crash point %d", point);
    }
}

static void process_killed_while_writing_a_command_blocks_nothing(void **state)
{
    (void)state;
    survive(1, 8);
}

static void process_killed_while_taking_a_snapshot_blocks_nothing(void **state)
{
    (void)state;
    survive(9, 14);
}

static void process_killed_while_creating_files_blocks_nothing(void **state)
{
    (void)state;
    survive(15, 23);
}

static void process_killed_while_opening_or_closing_blocks_nothing(void **state)
{
    (void)state;
    survive(24, POINTS);
}

static void open_and_die(int point)
{
    pid_t pid = fork();

    if (pid == 0) {
        deadly_point = point;
        hits_left = 1;
        (void)open_client();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A client is killed while it takes the slot of a client that detached a lock.
 * The next client in that slot must not release the lock. */
static void process_killed_in_a_reused_slot_keeps_the_detached_lock(
    void **state)
{
    (void)state;
    for (int point = 21; point <= 27; point++) {
        struct hf_client *client;
        pid_t pid;

        reset_directory();
        pid = fork();
        if (pid == 0) {
            detach_lock();
            _exit(0);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(atomic_load(&report->kept) > 0);
        open_and_die(point);
        client = open_client();
        expect_promises_kept(client);
        expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
    }
}

/* ---- Slow work stays out of the critical section ------------------------*/

/* Set the reserve of tokens in the arena, at offset 168, to `token`, so that
 * the next grant has to reserve more. */
static void use_up_reserve(uint64_t token)
{
    char path[64];
    int file;

    (void)snprintf(path, sizeof(path), "%s/d/arena", directory);
    file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, &token, sizeof(token), 168), sizeof(token));
    close(file);
}

static void disk_is_synced_outside_the_critical_section(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    reset_directory();
    client = open_client();
    lock = take_key(client, "a", HOUR_MS, "");
    use_up_reserve(hf_lock_token(lock));
    work = (struct work){0};
    release_key(lock);
    for (int i = 0; i < 100; i++)
        release_key(take_key(client, "a", HOUR_MS, ""));
    assert_int_equal(work.token_files, 1);
    assert_int_equal(work.token_files_in_transaction, 0);
    expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void snapshots_are_decoded_outside_the_critical_section(void **state)
{
    static char large[BULK_VALUE];
    struct hf_client *client, *idle, *late;

    (void)state;
    reset_directory();
    client = open_client();
    idle = open_client();
    memset(large, 'x', sizeof(large) - 1);
    for (int i = 0; i < BULK; i++)
        release_key(take_key(client, "bulk", HOUR_MS, large));
    work = (struct work){0};
    late = open_client();
    assert_int_equal(work.decoded, 1);
    release_key(take_key(idle, "bulk", HOUR_MS, ""));
    assert_int_equal(work.decoded, 2);
    assert_int_equal(work.decoded_in_transaction, 0);
    expect_success(hf_close(late, HF_TEST_TIMEOUT_MS));
    expect_success(hf_close(idle, HF_TEST_TIMEOUT_MS));
    expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void name_key(char key[32], char prefix, int number)
{
    (void)snprintf(key, 32, "%c%d", prefix, number);
}

/* Start a process that holds MANY keys, whose names begin with `prefix`, until
 * it is killed. */
static pid_t start_many_holds(char prefix)
{
    pid_t pid = fork();
    struct hf_client *client;

    if (pid > 0)
        return pid;
    client = open_client();
    for (int i = 0; i < MANY; i++) {
        char key[32];

        name_key(key, prefix, i);
        (void)take_key(client, key, HOUR_MS, "");
    }
    atomic_fetch_add(&report->ready, 1);
    for (;;)
        pause();
}

static void claim_many(struct hf_client *client, char prefix,
                       struct hf_lock *locks[])
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    for (int i = 0; i < MANY; i++) {
        char key[32];

        name_key(key, prefix, i);
        expect_success(hf_lock_new(client, hf_key_of(key), &opts, &locks[i]));
    }
}

/* While a client checks which processes are dead, no other client can use the
 * arena. So the number of checks must grow only linearly with the number of
 * keys that the dead process and the live process held. */
static void death_is_reviewed_in_one_round(void **state)
{
    struct hf_lock *of_live[MANY], *of_dead[MANY];
    pid_t victim_main, dead;
    struct hf_client *client;

    (void)state;
    reset_directory();
    victim_main = start_many_holds('l');
    dead = start_many_holds('d');
    while (atomic_load(&report->ready) < 2)
        sleep_ms(1);
    client = open_client();
    claim_many(client, 'l', of_live);
    claim_many(client, 'd', of_dead);
    work = (struct work){0};
    assert_int_equal(kill(dead, SIGKILL), 0);
    for (int i = 0; i < MANY; i++)
        expect_success(hf_lock_wait(of_dead[i]));
    assert_true(work.checked > 0);
    assert_true(work.checked < 10 * MANY);
    assert_int_equal(kill(victim_main, SIGKILL), 0);
    for (int i = 0; i < MANY; i++) {
        expect_success(hf_lock_wait(of_live[i]));
        hf_lock_free(of_live[i]);
        hf_lock_free(of_dead[i]);
    }
    assert_int_equal(waitpid(victim_main, NULL, 0), victim_main);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    expect_success(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static int set_up(void **state)
{
    (void)state;
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* This process reaps waiters whose parent was killed. */
    return prctl(PR_SET_CHILD_SUBREAPER, 1) || report == MAP_FAILED ||
                   !hf_test_folder_make(directory)
               ? -1
               : 0;
}

static int tear_down(void **state)
{
    (void)state;
    return hf_test_folder_remove(directory) ? 0 : -1;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(process_killed_while_writing_a_command_blocks_nothing),
        CASE(process_killed_while_taking_a_snapshot_blocks_nothing),
        CASE(process_killed_while_creating_files_blocks_nothing),
        CASE(process_killed_while_opening_or_closing_blocks_nothing),
        CASE(process_killed_in_a_reused_slot_keeps_the_detached_lock),
        CASE(disk_is_synced_outside_the_critical_section),
        CASE(snapshots_are_decoded_outside_the_critical_section),
        CASE(death_is_reviewed_in_one_round),
    };

    return hf_test_main("crash_points", cases, HF_TEST_COUNT(cases), 0);
}
