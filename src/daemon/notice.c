#include "daemon/notice.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_SIZE 1024

static uint64_t notice_node;

void hf_notice_set_node(uint64_t node)
{
    notice_node = node;
}

static size_t write_prefix(char *line)
{
    struct timespec now;
    struct tm utc;
    size_t size;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    size = strftime(line, LINE_MAX_SIZE, "%Y-%m-%dT%H:%M:%S", &utc);
    size += (size_t)snprintf(line + size, LINE_MAX_SIZE - size,
                             ".%03ldZ node %" PRIu64 ": ",
                             now.tv_nsec / 1000000, notice_node);
    return size;
}

/* Returns false if a write to stderr would block, as to a full pipe. */
static bool can_write(void)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&fd, 1, 0) != 0;
}

/* Use one write() for a line, so that lines of several processes do not mix. If
 * the node would have to wait, the line is dropped. */
static void write_line(const char *line, size_t size)
{
    static unsigned dropped;
    char note[64];

    if (!can_write()) {
        dropped++;
        return;
    }
    (void)!write(STDERR_FILENO, line, size);
    if (dropped > 0 && can_write()) {
        size = (size_t)snprintf(note, sizeof(note),
                                "(%u earlier lines were dropped)\n", dropped);
        (void)!write(STDERR_FILENO, note, size);
        dropped = 0;
    }
}

void hf_notice(const char *format, ...)
{
    char line[LINE_MAX_SIZE];
    size_t size = write_prefix(line);
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line + size, sizeof(line) - size - 1, format, list);
    va_end(list);
    if (length < 0)
        return;
    size += (size_t)length;
    if (size > sizeof(line) - 2)
        size = sizeof(line) - 2;
    line[size++] = '\n';
    write_line(line, size);
}
