#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Signals that report faults of this program. They keep their default action,
 * which dumps core. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                             SIGTRAP, SIGSYS, SIGABRT};

/* Fill `kept` with every signal that is neither a fault nor ignored. Ignored
 * signals must not be blocked, because the kernel queues a blocked signal even
 * if it is ignored. SIGCHLD is kept even if it is ignored, because loop_open()
 * restores its default action. */
static void choose_kept(sigset_t *kept)
{
    struct sigaction action;

    (void)sigfillset(kept);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void)sigdelset(kept, faults[i]);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        if (signal != SIGCHLD && !sigaction(signal, NULL, &action) &&
            action.sa_handler == SIG_IGN)
            (void)sigdelset(kept, signal);
    }
}

int loop_open(struct loop *loop)
{
    struct sigaction normal = {.sa_handler = SIG_DFL};

    *loop = (struct loop){.signals = -1, .timer = -1, .armed = LOOP_NEVER};
    choose_kept(&loop->kept);
    /* Restore the default action of SIGCHLD, because the kernel discards the
     * statuses of children while SIGCHLD is ignored. */
    (void)sigaction(SIGCHLD, &normal, &loop->children);
    (void)sigprocmask(SIG_BLOCK, &loop->kept, &loop->before);
    loop->signals = signalfd(-1, &loop->kept, SFD_CLOEXEC | SFD_NONBLOCK);
    loop->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return loop->signals < 0 || loop->timer < 0 ? errno : 0;
}

void loop_close(struct loop *loop)
{
    if (loop->timer >= 0)
        (void)close(loop->timer);
    if (loop->signals >= 0)
        (void)close(loop->signals);
}

int64_t loop_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void arm_timer(struct loop *loop, int64_t until)
{
    struct itimerspec at = {0};

    if (loop->armed == until)
        return;
    loop->armed = until;
    if (until != LOOP_NEVER) {
        at.it_value.tv_sec = until > 0 ? until / 1000 : 0;
        at.it_value.tv_nsec = until > 0 ? until % 1000 * 1000000 : 0;
        at.it_value.tv_nsec += at.it_value.tv_sec == 0; /* 0 disarms it */
    }
    (void)timerfd_settime(loop->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

bool loop_sleep(struct loop *loop, struct hf_client *client, int fd,
                int64_t until, void (*first)(void *arg), void *arg)
{
    struct pollfd fds[] = {
        {.fd = loop->signals, .events = POLLIN},
        {.fd = loop->timer, .events = POLLIN},
        {.fd = client ? hf_fd(client) : -1, .events = POLLIN},
        {.fd = fd, .events = POLLIN},
    };
    uint64_t count;

    arm_timer(loop, until);
    if (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0)
        fds[3].revents = 0;
    if (first)
        first(arg);
    if (read(loop->timer, &count, sizeof(count)) > 0)
        loop->armed = LOOP_NEVER;
    if (client)
        (void)hf_process(client);
    return fds[3].revents != 0;
}

int loop_signal(struct loop *loop)
{
    struct signalfd_siginfo info;

    if (read(loop->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    return (int)info.ssi_signo;
}

bool loop_can_report(void)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&fd, 1, 0) > 0 && (fd.revents & POLLOUT);
}

bool loop_is_fatal(int signal)
{
    return signal != SIGCHLD && signal != SIGCONT && signal != SIGWINCH &&
           signal != SIGURG && !loop_is_stop(signal);
}

bool loop_is_stop(int signal)
{
    return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

void loop_stop(int signal, bool all)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, signal);
    (void)kill(all ? 0 : getpid(), signal);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL); /* the process stops here */
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

void loop_die(int signal)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, signal);
    (void)kill(getpid(), signal);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + signal); /* reached if the signal is ignored or not fatal */
}
