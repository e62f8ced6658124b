#include "lib/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/bench.h"

#define LINE_MAX_SIZE 256

static _Noreturn void peer_main(const char *command, int orders, int answers)
{
    char text[4096];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(orders, STDIN_FILENO);
    (void)dup2(answers, STDOUT_FILENO);
    (void)snprintf(text, sizeof(text), "exec %s", command);
    (void)execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

void bench_peer_start(struct bench_peer *peer, const char *command)
{
    int orders[2], answers[2];

    if (pipe2(orders, O_CLOEXEC) || pipe2(answers, O_CLOEXEC))
        bench_fail("cannot create a pipe");
    (void)signal(SIGPIPE, SIG_IGN);
    peer->pid = fork();
    if (peer->pid < 0)
        bench_fail("cannot start a process");
    if (peer->pid == 0)
        peer_main(command, orders[0], answers[1]);
    (void)close(orders[0]);
    (void)close(answers[1]);
    peer->orders = fdopen(orders[1], "w");
    peer->answers = fdopen(answers[0], "r");
    if (!peer->orders || !peer->answers)
        bench_fail("out of memory");
}

void bench_peer_stop(struct bench_peer *peer)
{
    (void)fclose(peer->orders); /* the peer exits at the end of its stdin */
    (void)waitpid(peer->pid, NULL, 0);
    (void)fclose(peer->answers);
    peer->pid = 0;
}

void bench_peer_kill(struct bench_peer *peer)
{
    (void)kill(peer->pid, SIGKILL);
    bench_peer_stop(peer);
}

void bench_peer_order(struct bench_peer *peer, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(peer->orders, format, args);
    va_end(args);
    (void)fputc('\n', peer->orders);
    if (fflush(peer->orders))
        bench_fail("the peer has exited");
}

static void read_line(struct bench_peer *peer, char line[LINE_MAX_SIZE])
{
    if (!fgets(line, LINE_MAX_SIZE, peer->answers))
        bench_fail("the peer has exited");
}

void bench_peer_expect(struct bench_peer *peer, const char *word)
{
    char line[LINE_MAX_SIZE];

    read_line(peer, line);
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, word) != 0)
        bench_fail("unexpected answer from the peer");
}

void bench_peer_numbers(struct bench_peer *peer, double *numbers, size_t count)
{
    char line[LINE_MAX_SIZE], *at = line, *end;

    read_line(peer, line);
    for (size_t i = 0; i < count; i++, at = end) {
        numbers[i] = strtod(at, &end);
        if (end == at)
            bench_fail("unexpected answer from the peer: not a number");
    }
}
