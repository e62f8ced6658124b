#include "strategy/file/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool parse_offset(const char *line, hf_time *offset)
{
    long long seconds, nanoseconds;

    /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers. */
    if (sscanf(line, "monotonic %lld %lld", &seconds, &nanoseconds) != 2)
        return false;
    *offset = seconds * 1000 + nanoseconds / 1000000;
    return true;
}

/* A client with a wrong offset would expire the leases of others early, so it
 * is an error if the offset cannot be read. If the file is missing, the kernel
 * has no time namespaces, and the offset is 0. */
enum hf_err hf_clock_offset(hf_time *offset, struct hf_error *error)
{
    FILE *offsets = fopen("/proc/self/timens_offsets", "re");
    bool found = false;
    char line[128];

    *offset = 0;
    if (!offsets && errno == ENOENT)
        return HF_OK;
    errno = offsets ? EPROTO : errno;
    while (offsets && !found && fgets(line, sizeof(line), offsets))
        found = parse_offset(line, offset);
    if (offsets)
        (void)fclose(offsets);
    if (found)
        return HF_OK;
    return hf_error_set(error, HF_ESYSTEM,
                        "file: cannot read /proc/self/timens_offsets, the "
                        "clock of this time namespace: %s",
                        strerror(errno));
}

enum hf_err hf_clock_now(hf_time *now, struct hf_error *error)
{
    hf_time offset;
    enum hf_err err = hf_clock_offset(&offset, error);

    *now = hf_time_on(CLOCK_MONOTONIC) - offset;
    return err;
}
