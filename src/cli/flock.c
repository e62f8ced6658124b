#include "flock.h"

#include <string.h>

static const struct {
    const char *letter, *name, *hint;
} hints[] = {
    {"s", "shared", "holdfast has no shared locks; every lock is exclusive"},
    {"e", "", "every lock is exclusive; leave it out"},
    {"u", "unlock",
     "run gives the lock back when the command ends, and 'holdfast unlock' "
     "what 'holdfast lock' took"},
    {"F", "no-fork",
     "holdfast stays to renew the lock, and to stop the command if it is lost"},
    {"", "nb", "write -n or --no-wait"},
    {"", "nonblock", "write -n or --no-wait"},
    {"", "nonblocking", "write -n or --no-wait"},
    {"", "timeout", "write -w or --wait"},
    {"", "fcntl", "holdfast locks keys, not files"},
};

static int is_word(const char *word, const char *name, size_t size)
{
    return strlen(word) == size && !strncmp(word, name, size);
}

const char *flock_hint(const char *name, size_t size)
{
    for (size_t i = 0; size > 0 && i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (is_word(hints[i].letter, name, size) ||
            is_word(hints[i].name, name, size))
            return hints[i].hint;
    }
    return NULL;
}
