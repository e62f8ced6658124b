#include "flock.h"

#include <string.h>

static const struct {
    const char *letter, *name, *hint;
} hints[] = {
    {"s", "shared", "holdfast has no shared locks; every lock is exclusive"},
    {"e", "", "every lock is exclusive; omit it"},
    {"u", "unlock",
     "run releases the lock when the command ends; use 'holdfast unlock' "
     "after 'holdfast lock'"},
    {"F", "no-fork",
     "holdfast stays to renew the lock, and to stop the command if the lock is "
     "lost"},
    {"", "nb", "use -n or --no-wait"},
    {"", "nonblock", "use -n or --no-wait"},
    {"", "nonblocking", "use -n or --no-wait"},
    {"", "timeout", "use -w or --wait"},
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
