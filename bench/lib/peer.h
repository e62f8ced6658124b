/* peer.h - an external program that measures another lock library.
 *
 * It may be written in any language: it reads orders from stdin, one per line,
 * and answers each with a line of numbers. So each round can include it, like
 * any other case. The kernel kills it when the benchmark exits. If it exits
 * first, the benchmark fails. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct bench_peer {
    pid_t pid; /* 0: not running */
    FILE *orders, *answers;
};

/* Start `command` with a shell. */
void bench_peer_start(struct bench_peer *peer, const char *command);

/* Stop the peer: close its stdin, wait until it exits, and close its streams.
 * bench_peer_kill() sends SIGKILL first. */
void bench_peer_stop(struct bench_peer *peer);
void bench_peer_kill(struct bench_peer *peer);

/* Send one line. */
__attribute__((format(printf, 2, 3))) void bench_peer_order(
    struct bench_peer *peer, const char *format, ...);

/* Read the next line, which must be `word`. */
void bench_peer_expect(struct bench_peer *peer, const char *word);

/* Read the next line, which must begin with `count` numbers. */
void bench_peer_numbers(struct bench_peer *peer, double *numbers, size_t count);

#endif
