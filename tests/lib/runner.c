#include "lib/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    JOBS_DEFAULT = 2,
    JOBS_MAX = 64,
    TIMEOUT_S_DEFAULT = 300, /* only to end cases that hang */
    OUTPUT_MAX = 64 * 1024,  /* bytes shown of each end of a longer output */
};

/* The result that the process of a case reports before it exits. No report
 * counts as a failure, so that an unexpected exit is never mistaken for
 * success. */
enum verdict {
    SILENT,
    PASSED,
    FAILED,
    SKIPPED
};

struct report {
    enum verdict verdict;
    char why[200];
};

struct run {
    const struct CMUnitTest *test;
    pid_t pid;     /* also its process group; 0 if not running */
    int report_fd; /* read end of a pipe, for one struct report */
    int output_fd; /* memory file with its stdout and stderr */
    int64_t deadline_ms;
    bool timed_out;
    bool done;
    struct report report;
};

struct options {
    bool list;
    bool serial;
    unsigned jobs;
    char **filters;
    int filter_count;
};

/* The case that this process runs. Global, because cmocka passes a test
 * function nothing but its state. */
static struct {
    const struct CMUnitTest *test;
    pid_t pid;
    bool entered;  /* the body began */
    bool returned; /* the body returned */
    bool skipped;  /* hf_test_skip() was called */
    char why[sizeof(((struct report *)0)->why)];
} self;

/* cmocka handles these signals by a jump, which hides the stack from a debugger
 * and the report of a sanitizer, and cannot work on the stack of another
 * thread. So the body of a case runs with the handlers from before. */
static const int crashes[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
#define CRASH_COUNT (sizeof(crashes) / sizeof(crashes[0]))
static struct sigaction before_cmocka[CRASH_COUNT];

static int arg_count;
static char **args;

/* glibc passes the arguments to constructors too, so main() does not have to
 * pass them on. */
__attribute__((constructor)) static void keep_args(int argc, char **argv)
{
    arg_count = argc;
    args = argv;
}

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static unsigned env_number(const char *name, unsigned default_value)
{
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long value = 0;

    if (!text || !*text)
        return default_value;
    value = strtoul(text, &end, 10);
    if (*end || value < 1 || value > 1000000) {
        (void)fprintf(stderr, "%s=%s: not a number from 1 to 1000000\n", name,
                      text);
        exit(2);
    }
    return (unsigned)value;
}

unsigned hf_test_slowness(void)
{
    return env_number("HF_TEST_SLOWNESS", 1);
}

_Noreturn void hf_test_skip(const char *why)
{
    self.skipped = true;
    (void)snprintf(self.why, sizeof(self.why), "%s", why);
    skip();
    abort(); /* skip() does not return, but is not declared _Noreturn */
}

/* ---- In the process of a case -------------------------------------------*/

static void run_body(void **state)
{
    for (size_t i = 0; i < CRASH_COUNT; i++)
        (void)sigaction(crashes[i], &before_cmocka[i], NULL);
    self.entered = true;
    self.test->test_func(state);
    self.returned = true;
}

static struct report run_case(const struct CMUnitTest *test)
{
    struct CMUnitTest wrapped = *test;
    struct report report = {FAILED, ""};
    int failed = 0;

    wrapped.test_func = run_body;
    memset(&self, 0, sizeof(self));
    self.test = test;
    self.pid = getpid();
    for (size_t i = 0; i < CRASH_COUNT; i++)
        (void)sigaction(crashes[i], NULL, &before_cmocka[i]);

    failed = _cmocka_run_group_tests(test->name, &wrapped, 1, NULL, NULL);

    /* A process that the case forked can fail an assertion too, and then gets
     * here. The case has to check its exit status. */
    if (getpid() != self.pid)
        _exit(1);

    if (failed && self.skipped && !self.entered)
        failed = 0; /* cmocka treats a skip in the setup as an error */
    if (failed) {
        (void)snprintf(report.why, sizeof(report.why), "%s",
                       self.returned  ? "its teardown failed"
                       : self.entered ? "an assertion failed"
                                      : "its setup failed");
        return report;
    }
    report.verdict = self.returned ? PASSED : SKIPPED;
    if (!self.returned)
        (void)snprintf(report.why, sizeof(report.why), "%s",
                       self.skipped ? self.why : "no reason given");
    return report;
}

static _Noreturn void case_main(const struct run *run, int report_fd,
                                const sigset_t *mask, pid_t runner)
{
    struct report report;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != runner) /* the runner died before prctl() */
        _exit(1);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 ||
        dup2(run->output_fd, STDOUT_FILENO) < 0 ||
        dup2(run->output_fd, STDERR_FILENO) < 0)
        _exit(1);
    (void)close(null_fd);
    /* Unbuffered, so that stdout and stderr stay in order. */
    (void)setvbuf(stdout, NULL, _IONBF, 0);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);

    report = run_case(run->test);
    if (write(report_fd, &report, sizeof(report)) != (ssize_t)sizeof(report))
        _exit(1);
    /* Call exit(), not _exit(), so that leak checks and coverage run. */
    exit(report.verdict == FAILED ? 1 : 0);
}

/* ---- In the runner ------------------------------------------------------*/

static _Noreturn void die(const char *what)
{
    (void)printf("Bail out! %s: %s\n", what, strerror(errno));
    (void)fflush(stdout);
    exit(1);
}

static void start_case(struct run *run, const sigset_t *mask)
{
    unsigned limit_s = env_number("HF_TEST_TIMEOUT", TIMEOUT_S_DEFAULT);
    pid_t runner = getpid();
    int ends[2];

    run->output_fd = memfd_create("output", MFD_CLOEXEC);
    if (run->output_fd < 0)
        die("memfd_create");
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        die("pipe");
    (void)fflush(NULL); /* otherwise both processes would print the buffers */
    run->pid = fork();
    if (run->pid < 0)
        die("fork");
    if (run->pid == 0) {
        (void)close(ends[0]);
        case_main(run, ends[1], mask, runner);
    }
    /* The child makes the same call, because either process may run first. */
    (void)setpgid(run->pid, run->pid);
    (void)close(ends[1]);
    run->report_fd = ends[0];
    run->deadline_ms = now_ms() + (int64_t)limit_s * hf_test_slowness() * 1000;
}

__attribute__((format(printf, 2, 3))) static void set_failed(
    struct report *report, const char *format, ...)
{
    va_list list;

    report->verdict = FAILED;
    va_start(list, format);
    (void)vsnprintf(report->why, sizeof(report->why), format, list);
    va_end(list);
}

/* A report of success counts only if the process then exited with status 0. */
static void read_verdict(struct run *run, int status)
{
    struct report *report = &run->report;
    ssize_t n = read(run->report_fd, report, sizeof(*report));

    (void)close(run->report_fd);
    if (n != (ssize_t)sizeof(*report))
        report->verdict = SILENT;

    if (run->timed_out)
        set_failed(report, "timed out and was killed");
    else if (WIFSIGNALED(status))
        set_failed(report, "killed by signal %d (%s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else if (report->verdict == SILENT)
        set_failed(report, "exited early, with status %d", WEXITSTATUS(status));
    else if (report->verdict != FAILED && WEXITSTATUS(status))
        set_failed(report, "finished, but then exited with status %d",
                   WEXITSTATUS(status));
}

/* Reap the process of `run`. Returns false if it has not ended. Kill its
 * process group first, while the process is a zombie and no other process can
 * get its pid. */
static bool reap_case(struct run *run)
{
    siginfo_t info = {0};
    int status = 0;

    if (waitid(P_PID, (id_t)run->pid, &info, WEXITED | WNOHANG | WNOWAIT))
        die("waitid");
    if (info.si_pid == 0)
        return false;
    (void)kill(-run->pid, SIGKILL);
    if (waitpid(run->pid, &status, 0) != run->pid)
        die("waitpid");
    read_verdict(run, status);
    run->pid = 0;
    run->done = true;
    return true;
}

static void print_quoted(const char *text, size_t len)
{
    bool at_start = true;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (at_start)
            (void)fputs("# ", stdout);
        at_start = c == '\n';
        (void)putchar(c == '\n' || c == '\t' || (c >= ' ' && c != 127) ? c
                                                                       : '?');
    }
    if (!at_start)
        (void)putchar('\n');
}

static void print_part(int fd, off_t from, size_t len)
{
    char *text = malloc(len);
    ssize_t n = 0;

    if (!text)
        die("malloc");
    n = pread(fd, text, len, from);
    if (n > 0)
        print_quoted(text, (size_t)n);
    free(text);
}

static void print_output(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);

    if (size <= 0)
        return;
    if (size <= 2 * (off_t)OUTPUT_MAX) {
        print_part(fd, 0, (size_t)size);
        return;
    }
    print_part(fd, 0, OUTPUT_MAX);
    (void)printf("# [... %lld bytes left out ...]\n",
                 (long long)size - 2 * (long long)OUTPUT_MAX);
    print_part(fd, size - OUTPUT_MAX, OUTPUT_MAX);
}

/* In TAP, a '#' would start a directive, and a line break another line, so
 * replace both. */
static void print_word(const char *word)
{
    for (; *word; word++)
        (void)putchar(*word == '#' || *word == '\n' ? '_' : *word);
}

static void print_result(const struct run *run, size_t number)
{
    bool failed = run->report.verdict == FAILED;

    (void)printf("%s %zu - ", failed ? "not ok" : "ok", number);
    print_word(run->test->name);
    if (run->report.verdict == SKIPPED) {
        (void)fputs(" # SKIP ", stdout);
        print_word(run->report.why);
    }
    (void)putchar('\n');
    if (failed) {
        (void)printf("# %s\n", run->report.why);
        if (run->output_fd >= 0)
            print_output(run->output_fd);
    }
    (void)fflush(stdout);
}

/* Wait, for a second at most, until a case ends, a case times out, or the
 * runner gets a signal to stop. Returns the signal (SIGCHLD if a case ended),
 * or -1. */
static int wait_for_change(const struct run *runs, size_t count,
                           const sigset_t *awaited)
{
    int64_t left_ms = INT64_MAX;
    struct timespec left;

    for (size_t i = 0; i < count; i++)
        if (runs[i].pid && !runs[i].timed_out &&
            runs[i].deadline_ms - now_ms() < left_ms)
            left_ms = runs[i].deadline_ms - now_ms();
    if (left_ms < 0)
        left_ms = 0;
    if (left_ms > 1000)
        left_ms = 1000;
    left.tv_sec = (time_t)(left_ms / 1000);
    left.tv_nsec = (long)(left_ms % 1000) * 1000000L;
    return sigtimedwait(awaited, NULL, &left);
}

static void kill_cases(const struct run *runs, size_t count, int signal_number)
{
    for (size_t i = 0; i < count; i++)
        if (runs[i].pid)
            (void)kill(-runs[i].pid, SIGKILL);
    (void)printf("Bail out! stopped by signal %d (%s)\n", signal_number,
                 strsignal(signal_number));
    (void)fflush(stdout);
}

static unsigned reap_cases(struct run *runs, size_t count)
{
    unsigned ended = 0;

    for (size_t i = 0; i < count; i++) {
        if (!runs[i].pid)
            continue;
        if (reap_case(&runs[i])) {
            ended++;
        } else if (!runs[i].timed_out && now_ms() >= runs[i].deadline_ms) {
            runs[i].timed_out = true;
            (void)kill(-runs[i].pid, SIGKILL);
        }
    }
    return ended;
}

/* The signals that the runner waits for are blocked before the first fork, so
 * none is lost, and no handler is needed. */
static void block_signals(sigset_t *awaited, sigset_t *mask)
{
    /* If SIGCHLD is ignored, children leave no exit status. */
    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigemptyset(awaited);
    (void)sigaddset(awaited, SIGCHLD);
    (void)sigaddset(awaited, SIGINT);
    (void)sigaddset(awaited, SIGTERM);
    (void)sigaddset(awaited, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, awaited, mask);
}

/* Print the first case that has failed, and end the others. Returns false if
 * none has. */
static bool give_up(struct run *runs, size_t started)
{
    size_t i = 0;

    while (i < started && !(runs[i].done && runs[i].report.verdict == FAILED))
        i++;
    if (i == started)
        return false;
    print_result(&runs[i], i + 1);
    for (i = 0; i < started; i++) {
        if (runs[i].pid) {
            (void)kill(-runs[i].pid, SIGKILL);
            (void)waitpid(runs[i].pid, NULL, 0);
        }
    }
    return true;
}

static int run_forked(struct run *runs, size_t count, unsigned jobs)
{
    bool first_only = getenv("HF_TEST_FIRST_FAILURE") != NULL;
    sigset_t awaited;
    sigset_t mask;
    size_t next = 0;
    size_t printed = 0;
    unsigned running = 0;
    int failed = 0;

    block_signals(&awaited, &mask);
    while (printed < count) {
        int signal_number = 0;

        for (; next < count && running < jobs; running++)
            start_case(&runs[next++], &mask);
        signal_number = wait_for_change(runs, next, &awaited);
        if (signal_number > 0 && signal_number != SIGCHLD) {
            kill_cases(runs, next, signal_number);
            return 128 + signal_number;
        }
        running -= reap_cases(runs, next);
        if (first_only && give_up(runs, next))
            return 1;
        for (; printed < next && runs[printed].done; printed++) {
            print_result(&runs[printed], printed + 1);
            (void)close(runs[printed].output_fd);
            failed |= runs[printed].report.verdict == FAILED;
        }
    }
    return failed;
}

static int run_serially(struct run *runs, size_t count)
{
    int failed = 0;

    for (size_t i = 0; i < count; i++) {
        runs[i].report = run_case(runs[i].test);
        print_result(&runs[i], i + 1);
        failed |= runs[i].report.verdict == FAILED;
    }
    return failed;
}

static int usage(const char *problem)
{
    (void)fprintf(stderr,
                  "%s: %s\n"
                  "usage: %s [--list] [--serial] [--jobs=N] [NAME...]\n",
                  args[0], problem, args[0]);
    return 2;
}

/* Parse the arguments of the program. Returns 0, or the status to exit with. */
static int read_options(struct options *o)
{
    int i = 1;

    for (; i < arg_count && strncmp(args[i], "--", 2) == 0; i++) {
        char *end = NULL;

        if (strcmp(args[i], "--list") == 0) {
            o->list = true;
        } else if (strcmp(args[i], "--serial") == 0) {
            o->serial = true;
        } else if (strncmp(args[i], "--jobs=", 7) == 0) {
            o->jobs = (unsigned)strtoul(args[i] + 7, &end, 10);
            if (*end || o->jobs < 1)
                return usage("--jobs needs a number");
        } else {
            return usage("unknown option");
        }
    }
    o->filters = args + i;
    o->filter_count = arg_count - i;
    return 0;
}

static bool is_selected(const struct options *o, const char *name)
{
    for (int i = 0; i < o->filter_count; i++)
        if (strstr(name, o->filters[i]))
            return true;
    return o->filter_count == 0;
}

bool hf_test_will_run(const char *name)
{
    struct options o = {.jobs = 0};

    return arg_count > 0 && read_options(&o) == 0 && !o.list &&
           is_selected(&o, name);
}

static int run_selected(const char *suite, struct run *runs, size_t count,
                        const struct options *o)
{
    if (o->list) {
        for (size_t i = 0; i < count; i++)
            (void)printf("%s\n", runs[i].test->name);
        return 0;
    }
    (void)printf("# %s\n1..%zu\n", suite, count);
    (void)fflush(stdout);
    return o->serial ? run_serially(runs, count)
                     : run_forked(runs, count, o->jobs);
}

int hf_test_main(const char *suite, const struct CMUnitTest *cases,
                 size_t count, unsigned jobs)
{
    struct options o = {.jobs = jobs ? jobs : JOBS_DEFAULT};
    struct run *runs = NULL;
    size_t selected = 0;
    int status = read_options(&o);

    if (status)
        return status;
    if (o.jobs > JOBS_MAX)
        o.jobs = JOBS_MAX;
    runs = calloc(count ? count : 1, sizeof(*runs));
    if (!runs)
        die("calloc");
    for (size_t i = 0; i < count; i++) {
        if (!is_selected(&o, cases[i].name))
            continue;
        runs[selected].test = &cases[i];
        runs[selected].output_fd = -1;
        selected++;
    }
    status = selected ? run_selected(suite, runs, selected, &o)
                      : usage("no case has this name");
    free(runs);
    return status;
}
