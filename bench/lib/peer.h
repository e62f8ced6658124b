/* peer.h - a program that measures what we are compared with, in a language of
 * its own: told what to do by a line, it answers by a line of numbers.
 *
 * So it takes its turn in each round, like any other case. It dies with us; if
 * it ends before, so does the benchmark. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct bench_peer {
    pid_t pid; /* 0: there is none */
    FILE *orders, *answers;
};

/* Start `command`, as a shell reads it. */
void bench_peer_start(struct bench_peer *peer, const char *command);

/* Let it end, or end it. */
void bench_peer_stop(struct bench_peer *peer);
void bench_peer_kill(struct bench_peer *peer);

__attribute__((format(printf, 2, 3))) void bench_peer_order(
    struct bench_peer *peer, const char *format, ...);

/* Wait for its next line: it is to be `word`, or so many numbers. */
void bench_peer_expect(struct bench_peer *peer, const char *word);
void bench_peer_numbers(struct bench_peer *peer, double *numbers, size_t count);

#endif
