/* A process is killed at each numbered step (base/crash_point.h) of making, joining,
 * using and leaving a directory. Whatever it was told is done stays done,
 * nothing is wedged, and no token comes twice.
 *
 * This program has a library of its own, in which the steps are compiled. */
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

#define MORE_ROUNDS 20 /* until the victim came by a step */
#define HF_CRASH_POINTS
#include "base/bytes.h"
#include "base/crash_point.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/runner.h"

#define STEPS 31
#define HOUR_MS 3600000
#define BULK 900        /* pairs: enough to fill the ring twice, */
#define BULK_VALUE 3000 /* and to let a snapshot grow */
#define MANY 200        /* keys of one process */

static char directory[] = HF_TEST_FOLDER;
static char url[64];

/* What the victim was told, and who was granted what it gave back. */
static struct report {
    atomic_ullong kept;        /* the token of "kept" */
    atomic_ullong newest[128]; /* token of a key, by its first letter */
    atomic_ullong handed;      /* the token of "handed", the victim's */
    atomic_ullong taken;       /* and its heir's */
    atomic_int heir;           /* its pid */
    atomic_int ready;          /* processes that hold their keys */
    atomic_bool done;          /* the victim was not killed */
} * report;

/* ---- The victim ---------------------------------------------------------*/

static int deadly_step;
static int hits_left;

/* What this process has done since that was zeroed. */
static struct work {
    bool inside;
    int marks;   /* written and synced */
    int decoded; /* snapshots */
    int judged;  /* clients, whether they are gone */
    int marks_inside;
    int decoded_inside;
} work;

static void note_work(int number)
{
    if (number == 1)
        work.inside = true;
    if (number == 4)
        work.inside = false;
    if (number == 15)
        work.marks++;
    if (number == 31)
        work.decoded++;
    if (number == 32)
        work.judged++;
    if (work.inside && number == 15)
        work.marks_inside++;
    if (work.inside && number == 31)
        work.decoded_inside++;
}

void hf_crash_point(int number)
{
    note_work(number);
    if (number == deadly_step && --hits_left == 0)
        (void)kill(getpid(), SIGKILL);
}

static void pause_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

static void expect(enum hf_err err)
{
    if (err) {
        (void)fprintf(stderr, "step %d: %s\n", deadly_step, hf_err_name(err));
        _exit(3);
    }
}

static struct hf_client *open_client(void)
{
    struct hf_client *client;

    expect(hf_open(url, NULL, &client));
    return client;
}

static struct hf_lock *take(struct hf_client *client, const char *key,
                            uint32_t ttl_ms, const char *value)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = HF_TEST_PATIENCE_MS;
    opts.timeout_ms = HF_TEST_PATIENCE_MS;
    opts.value = hf_bytes_of(value);
    expect(hf_acquire(client, hf_key_of(key), &opts, &lock));
    if (hf_lock_token(lock) <= atomic_load(&report->newest[(int)*key])) {
        (void)fprintf(stderr, "step %d: token %llu comes again\n", deadly_step,
                      (unsigned long long)hf_lock_token(lock));
        _exit(4);
    }
    atomic_store(&report->newest[(int)*key], hf_lock_token(lock));
    return lock;
}

static void give(struct hf_lock *lock)
{
    expect(hf_release(lock));
    hf_lock_free(lock);
}

/* Its lease is short, so that those who live on need not wait for long: on a
 * busy machine it may be over. */
static void give_in_time_or_not(struct hf_lock *lock)
{
    enum hf_err err = hf_release(lock);

    if (err != HF_EEXPIRED)
        expect(err);
    hf_lock_free(lock);
}

static void await_waiters(struct hf_client *client, uint32_t count)
{
    uint32_t waiters = 0;

    while (waiters != count) {
        struct hf_info info;

        pause_ms(1);
        expect(hf_read(client, hf_key_of("handed"), HF_LINEARIZABLE, &info));
        waiters = info.waiters;
        hf_info_fini(&info);
    }
}

/* A process that waits for "handed". If it is not to outlive the victim, nobody
 * is left in a directory that is removed. */
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
        deadly_step = 0;
        client = open_client();
        lock = take(client, "handed", HOUR_MS, "");
        atomic_store(&report->taken, hf_lock_token(lock));
        give(lock);
        expect(hf_close(client, HF_TEST_PATIENCE_MS));
        _exit(0);
    }
    return pid;
}

/* Stop a process outside the critical section: then a read succeeds. */
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

/* Two come to wait, and the first dies. The second is stopped, so that the
 * victim finds the dead one. */
static void let_two_wait(struct hf_client *client)
{
    pid_t first = start_heir(false);

    await_waiters(client, 1);
    atomic_store(&report->heir, start_heir(true));
    await_waiters(client, 2);
    stop_outside(client, atomic_load(&report->heir));
    (void)kill(first, SIGKILL);
    (void)waitpid(first, NULL, 0);
}

/* Detached, and so not to be lost with this process. */
static void leave_one_behind(void)
{
    struct hf_client *client = open_client();
    struct hf_lock *kept = take(client, "kept", HOUR_MS, "first");

    expect(hf_update(kept, NULL, hf_bytes_of("second")));
    expect(hf_lock_detach(kept));
    atomic_store(&report->kept, hf_lock_token(kept));
}

static void live(void)
{
    static char large[BULK_VALUE];
    struct hf_client *client = open_client();
    struct hf_lock *handed;

    leave_one_behind();
    handed = take(client, "handed", HOUR_MS, "");
    atomic_store(&report->handed, hf_lock_token(handed));
    let_two_wait(client);
    give(handed);
    (void)kill(atomic_load(&report->heir), SIGCONT);
    memset(large, 'x', sizeof(large) - 1);
    for (int i = 0; i < BULK; i++)
        give_in_time_or_not(take(client, "bulk", 200, large));
    atomic_store(&report->kept, 0);
    expect(hf_close(client, HF_TEST_PATIENCE_MS));
    expect(hf_close(open_client(), HF_TEST_PATIENCE_MS)); /* by a snapshot */
    _exit(0);
}

/* ---- Those who live on --------------------------------------------------*/

/* Whether it got as far as that. */
static bool kill_at(int step, int hits)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        deadly_step = step;
        hits_left = hits;
        live();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        fail_msg("step %d: the victim ended with %d", step,
                 WEXITSTATUS(status));
    return WIFSIGNALED(status);
}

/* It told someone: it must be so. */
static void expect_promises_kept(struct hf_client *client)
{
    struct hf_info info;

    if (atomic_load(&report->kept) == 0)
        return;
    expect(hf_read(client, hf_key_of("kept"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_int_equal(info.token, atomic_load(&report->kept));
    assert_true(hf_bytes_equal(info.value, hf_bytes_of("second")));
    hf_info_fini(&info);
}

/* If "handed" is no longer the victim's, its heir has had it or will soon,
 * though the lease that it had would last an hour. */
static void expect_handed_over(struct hf_client *client)
{
    pid_t heir = atomic_load(&report->heir);
    struct hf_info info;
    bool released;
    int status;

    if (heir == 0)
        return;
    (void)kill(heir, SIGCONT);
    expect(hf_read(client, hf_key_of("handed"), HF_LINEARIZABLE, &info));
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
    struct hf_lock *fresh;

    expect_promises_kept(client);
    expect_handed_over(client);
    give(take(client, "bulk", HOUR_MS, ""));
    give(take(client, "left", HOUR_MS, ""));
    fresh = take(client, "fresh", HOUR_MS, "");
    expect_newest(fresh);
    give(fresh);
    expect(hf_close(client, HF_TEST_PATIENCE_MS));
}

static void clean(void)
{
    pid_t any;

    do
        any = waitpid(-1, NULL, WNOHANG); /* a waiter that was killed first */
    while (any > 0);
    assert_true(hf_test_folder_remove(directory));
    memcpy(directory, HF_TEST_FOLDER, sizeof(directory));
    assert_true(hf_test_folder_make(directory));
    (void)snprintf(url, sizeof(url), "file:%s/d", directory);
    memset(report, 0, sizeof(*report));
}

/* The victim makes the directory. */
static bool survive_alone(int step, int hits)
{
    bool reached;

    clean();
    reached = kill_at(step, hits);
    expect_all_well();
    return reached;
}

/* Somebody comes, and dies inside. */
static void let_one_die_inside(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        deadly_step = 1;
        hits_left = 1;
        (void)open_client();
        _exit(0);
    }
    (void)waitpid(pid, NULL, 0);
}

/* Somebody comes, and dies holding a lock: whoever comes next frees it. */
static void let_one_die_holding(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)take(open_client(), "left", HOUR_MS, "");
        _exit(0);
    }
    (void)waitpid(pid, NULL, 0);
}

/* Another holds a lock there from before to after. */
static bool survive_watched(int step, int hits)
{
    struct hf_client *client;
    struct hf_lock *lock;
    bool reached;

    clean();
    client = open_client();
    lock = take(client, "mine", HOUR_MS, "");
    let_one_die_holding();
    let_one_die_inside();
    reached = kill_at(step, hits);
    expect(hf_renew(lock, HOUR_MS));
    give(lock);
    expect_all_well();
    expect(hf_close(client, HF_TEST_PATIENCE_MS));
    return reached;
}

static bool survive_step(int step)
{
    static const int hits[] = {1, 2, 9};
    bool reached = false;

    for (size_t i = 0; i < 3; i++) {
        if (survive_alone(step, hits[i]))
            reached = true;
        if (survive_watched(step, hits[i]))
            reached = true;
    }
    return reached;
}

/* Clients race for some steps: a dead waiter is reaped by the victim or by the
 * next waiter. */
static void survive(int first, int last)
{
    for (int step = first; step <= last; step++) {
        bool reached = survive_step(step);

        for (int i = 0; i < MORE_ROUNDS && !reached; i++)
            reached = survive_step(step);
        if (!reached)
            fail_msg("nobody came by step %d", step);
    }
}

static void killed_where_commands_are_written(void **state)
{
    (void)state;
    survive(1, 8);
}

static void killed_where_snapshots_are_taken(void **state)
{
    (void)state;
    survive(9, 14);
}

static void killed_where_files_are_made(void **state)
{
    (void)state;
    survive(15, 23);
}

static void killed_where_clients_come_and_go(void **state)
{
    (void)state;
    survive(24, STEPS);
}

static void open_and_end(int step)
{
    pid_t pid = fork();

    if (pid == 0) {
        deadly_step = step;
        hits_left = 1;
        (void)open_client();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A client is killed while it takes the slot of one that detached a lock. The
 * next client in that slot leaves the lock alone. */
static void killed_in_the_slot_of_a_detached_lock(void **state)
{
    (void)state;
    for (int step = 21; step <= 27; step++) {
        struct hf_client *client;
        pid_t pid;

        clean();
        pid = fork();
        if (pid == 0) {
            leave_one_behind();
            _exit(0);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(atomic_load(&report->kept) > 0);
        open_and_end(step);
        client = open_client();
        expect_promises_kept(client);
        expect(hf_close(client, HF_TEST_PATIENCE_MS));
    }
}

/* ---- What takes long ----------------------------------------------------*/

/* The reserve of tokens is used up. It is a number in the arena. */
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

static void disk_is_synced_outside(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    clean();
    client = open_client();
    lock = take(client, "a", HOUR_MS, "");
    use_up_reserve(hf_lock_token(lock));
    work = (struct work){0};
    give(lock);
    for (int i = 0; i < 100; i++)
        give(take(client, "a", HOUR_MS, ""));
    assert_int_equal(work.marks, 1);
    assert_int_equal(work.marks_inside, 0);
    expect(hf_close(client, HF_TEST_PATIENCE_MS));
}

static void snapshots_are_decoded_outside(void **state)
{
    static char large[BULK_VALUE];
    struct hf_client *client, *idle, *late;

    (void)state;
    clean();
    client = open_client();
    idle = open_client();
    memset(large, 'x', sizeof(large) - 1);
    for (int i = 0; i < BULK; i++)
        give(take(client, "bulk", HOUR_MS, large));
    work = (struct work){0};
    late = open_client();
    assert_int_equal(work.decoded, 1);
    give(take(idle, "bulk", HOUR_MS, ""));
    assert_int_equal(work.decoded, 2);
    assert_int_equal(work.decoded_inside, 0);
    expect(hf_close(late, HF_TEST_PATIENCE_MS));
    expect(hf_close(idle, HF_TEST_PATIENCE_MS));
    expect(hf_close(client, HF_TEST_PATIENCE_MS));
}

static void name_key(char key[32], char of, int number)
{
    (void)snprintf(key, 32, "%c%d", of, number);
}

/* Hold MANY keys until killed. */
static pid_t hold_many(char of)
{
    pid_t pid = fork();
    struct hf_client *client;

    if (pid > 0)
        return pid;
    client = open_client();
    for (int i = 0; i < MANY; i++) {
        char key[32];

        name_key(key, of, i);
        (void)take(client, key, HOUR_MS, "");
    }
    atomic_fetch_add(&report->ready, 1);
    for (;;)
        pause();
}

static void claim_many(struct hf_client *client, char of,
                       struct hf_lock *locks[])
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    for (int i = 0; i < MANY; i++) {
        char key[32];

        name_key(key, of, i);
        expect(hf_lock_new(client, hf_key_of(key), &opts, &locks[i]));
    }
}

/* Nobody else can use the arena while a client looks which processes are gone:
 * it asks once for each key of those, and not for each key of the others
 * again. */
static void a_death_is_reviewed_in_one_round(void **state)
{
    struct hf_lock *of_live[MANY], *of_dead[MANY];
    pid_t live, dead;
    struct hf_client *client;

    (void)state;
    clean();
    live = hold_many('l');
    dead = hold_many('d');
    while (atomic_load(&report->ready) < 2)
        pause_ms(1);
    client = open_client();
    claim_many(client, 'l', of_live);
    claim_many(client, 'd', of_dead);
    work = (struct work){0};
    assert_int_equal(kill(dead, SIGKILL), 0);
    for (int i = 0; i < MANY; i++)
        expect(hf_lock_wait(of_dead[i]));
    assert_true(work.judged > 0);
    assert_true(work.judged < 10 * MANY);
    assert_int_equal(kill(live, SIGKILL), 0);
    for (int i = 0; i < MANY; i++) {
        expect(hf_lock_wait(of_live[i]));
        hf_lock_free(of_live[i]);
        hf_lock_free(of_dead[i]);
    }
    assert_int_equal(waitpid(live, NULL, 0), live);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    expect(hf_close(client, HF_TEST_PATIENCE_MS));
}

static int set_up(void **state)
{
    (void)state;
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* A waiter whose parent was killed is ours to wait for. */
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
        CASE(killed_where_commands_are_written),
        CASE(killed_where_snapshots_are_taken),
        CASE(killed_where_files_are_made),
        CASE(killed_where_clients_come_and_go),
        CASE(killed_in_the_slot_of_a_detached_lock),
        CASE(disk_is_synced_outside),
        CASE(snapshots_are_decoded_outside),
        CASE(a_death_is_reviewed_in_one_round),
    };

    return hf_test_main("steps", cases, HF_TEST_COUNT(cases), 0);
}
