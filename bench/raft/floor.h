/* floor.h - the least that a replicated lock can do, to compare raft: with.
 *
 * Three processes: a leader and two followers. The leader appends 100 bytes per
 * request to its file, sends them to the followers, and replies when two of the
 * three have called fdatasync(). A lock is a flag with a queue. There are no
 * elections, leases, tokens, sessions or checksums, nothing is read back, and a
 * request has 16 bytes.
 *
 * The plain floor has one batch in flight: one thread writes, syncs and waits.
 * The pipelined floor syncs in another thread, and sends to the followers
 * meanwhile. */
#ifndef BENCH_RAFT_FLOOR_H
#define BENCH_RAFT_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOOR_KEYS 512

enum floor_op {
    FLOOR_LOCK,
    FLOOR_UNLOCK
};

struct floor_request {
    uint32_t op, key;
    uint64_t id;
};

struct floor_reply {
    uint64_t id;
};

struct floor {
    bool is_pipelined;
    int port; /* of the leader, for bench_stream_connect() */
};

/* Start the three processes, which end with this program. */
void floor_start(struct floor *floor);

/* Send one request to the leader, and wait for its reply. */
void floor_call(int fd, enum floor_op op, uint32_t key);

/* A file in the folder of the benchmark. All of its blocks are written when it
 * is opened. After its end, writing goes on at its beginning. */
struct floor_log {
    int file;
    uint64_t offset; /* of the next write */
};

void floor_log_open(struct floor_log *log, const char *name);

/* Write and call fdatasync(). */
void floor_log_append(struct floor_log *log, const void *data, size_t size);

#endif
