/* floor.h - the least that a lock at three masters can do, to compare quorum:
 * with.
 *
 * Three processes answer each request at once and remember nothing. A client
 * sends a request to all of them, and waits for two or three answers. There are
 * no locks, leases, ballots or queues. A request and an answer have 16
 * bytes. */
#ifndef BENCH_QUORUM_FLOOR_H
#define BENCH_QUORUM_FLOOR_H

#include <stdint.h>

#define FLOOR_SERVERS 3
#define FLOOR_MAJORITY 2
#define FLOOR_MEMBERS_MAX 64

struct floor {
    int ports[FLOOR_SERVERS];
};

enum floor_op {
    FLOOR_CALL,
    FLOOR_JOIN, /* this connection is that of the member `member` */
    FLOOR_PASS, /* send FLOOR_PUSH to the member `member`, too */
    FLOOR_PUSH,
};

struct floor_client {
    unsigned servers; /* the others are down */
    int fds[FLOOR_SERVERS];
    uint64_t calls, turns; /* sent, awaited */
    uint64_t answers[FLOOR_SERVERS], pushes[FLOOR_SERVERS];
};

/* Start the processes, which end with this program. */
void floor_start(struct floor *floor);

/* Connect to the first `servers` processes. floor_close() waits until they have
 * answered everything. */
void floor_open(struct floor_client *client, const struct floor *floor,
                unsigned servers);
void floor_close(struct floor_client *client);

/* Send a request to all, and wait for the answers of `needed`. */
void floor_call(struct floor_client *client, enum floor_op op, uint32_t member,
                unsigned needed);

/* Wait until all servers have sent FLOOR_PUSH once more. */
void floor_await_push(struct floor_client *client);

#endif
