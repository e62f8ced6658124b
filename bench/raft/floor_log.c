/* floor_log.c - the file of the floor, and its requests. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/stream.h"
#include "raft/floor.h"

#define LOG_SIZE (8 << 20)

void floor_log_open(struct floor_log *log, const char *name)
{
    static const char block[65536] = "x";
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", bench_folder(), name);
    *log = (struct floor_log){open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), 0};
    if (log->file < 0)
        bench_fail(path);
    for (off_t at = 0; at < LOG_SIZE; at += (off_t)sizeof(block)) {
        if (pwrite(log->file, block, sizeof(block), at) !=
            (ssize_t)sizeof(block))
            bench_fail(path);
    }
    if (fsync(log->file))
        bench_fail(path);
}

void floor_log_append(struct floor_log *log, const void *data, size_t size)
{
    if (log->offset + size > LOG_SIZE)
        log->offset = 0;
    if (pwrite(log->file, data, size, (off_t)log->offset) != (ssize_t)size ||
        fdatasync(log->file))
        bench_fail("pwrite, fdatasync");
    log->offset += size;
}

void floor_call(int fd, enum floor_op op, uint32_t key)
{
    struct floor_request request = {op, key, 1};
    struct floor_reply reply;

    bench_stream_write(fd, &request, sizeof(request));
    bench_stream_read(fd, &reply, sizeof(reply));
}
