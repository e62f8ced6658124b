#include "lib/sleeper.h"

#include <fcntl.h>
#include <unistd.h>

#include "lib/bench.h"

void bench_sleeper_open(struct bench_sleeper *sleeper, pid_t id)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)id);
    sleeper->state = open(path, O_RDONLY | O_CLOEXEC);
    if (sleeper->state < 0)
        bench_fail("cannot read the state of a thread in /proc");
}

void bench_sleeper_close(struct bench_sleeper *sleeper)
{
    (void)close(sleeper->state);
}

/* The file contains "1234 (name) S ...". The names of our threads contain no
 * parenthesis, so the state follows the first ')'. */
bool bench_sleeps(const struct bench_sleeper *sleeper)
{
    char text[128];
    ssize_t size = pread(sleeper->state, text, sizeof(text) - 1, 0);
    const char *state;

    text[size > 0 ? size : 0] = '\0';
    state = strchr(text, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}
