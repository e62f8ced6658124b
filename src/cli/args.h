/* args.h - what the command line asks for.
 *
 * An option has one meaning everywhere, so there is one table of them, and a
 * verb says which it takes. Options and words may come in any order; "--" ends
 * the options, "-" is a word. Options are not shortened: what is added later
 * must not change what a script means. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <holdfast.h>

#include "verb.h"

/*   name, letter, value, what it does. Sorted as they are shown. */
#define ARGS_OPTIONS(X)                                                        \
    X(TTL, "ttl", 0, "TIME", "lease: hold it for TIME without renewal; 10s")   \
    X(WAIT, "wait", 'w', "TIME", "wait at most TIME; without it, for ever")    \
    X(NO_WAIT, "no-wait", 'n', NULL, "do not wait at all")                     \
    X(BUSY_STATUS, "conflict-exit-code", 'E', "CODE",                          \
      "exit status if the key stays busy; 75")                                 \
    X(COMMAND, "command", 'c', "TEXT", "run TEXT with a shell")                \
    X(EXCLUSIVE, "exclusive", 'x', NULL, "no effect: every lock is exclusive") \
    X(CLOSE, "close", 'o', NULL,                                               \
      "do not wait for what the command leaves running")                       \
    X(HOLD, "hold", 0, NULL, "renew until stdin closes, then give it back")    \
    X(VALUE, "value", 0, "TEXT", "keep TEXT with the lock, for all to see")    \
    X(EXPECT, "expect", 0, "TEXT", "replace only if the value is TEXT now")    \
    X(NOTE, "note", 0, "TEXT", "tell others what it is held for")              \
    X(HELD, "held", 0, NULL, "wait until somebody holds it")                   \
    X(TOKEN, "token", 0, "N", "the token of the lock to break")                \
    X(NOW, "now", 0, NULL, "grant it to the next waiter at once")              \
    X(FROM, "from", 0, "INDEX", "start with the event of this index")          \
    X(KINDS, "kinds", 0, "LIST", "only these kinds, such as granted,expired")  \
    X(COUNT, "count", 0, "N", "exit after N events")                           \
    X(KEYS, "keys", 0, NULL, "print only the keys")                            \
    X(QUIET, "quiet", 'q', NULL, "")                                           \
    X(URL, "url", 0, "URL", "the store; default: HOLDFAST_URL, else file:")    \
    X(JSON, "json", 0, NULL, "print one JSON object per line, errors too")     \
    X(VERBOSE, "verbose", 'v', NULL, "report progress on stderr")              \
    X(HELP, "help", 'h', NULL, "show this")

enum option {
#define ARGS_OPTION_ID(id, name, letter, value, text) OPTION_##id,
    ARGS_OPTIONS(ARGS_OPTION_ID)
#undef ARGS_OPTION_ID
    OPTION_COUNT_OF,
};

#define OPTION(id) (1u << OPTION_##id)
#define OPTIONS_COMMON                                                         \
    (OPTION(URL) | OPTION(JSON) | OPTION(VERBOSE) | OPTION(HELP))

struct args {
    const struct verb *verb; /* NULL while it is not known */
    uint32_t given;          /* OPTION(TTL) | ... */

    char *url; /* in argv */
    const char *note;
    const char *value;
    const char *expect;
    bool json, verbose, quiet, close, hold, held, now, keys;
    uint32_t ttl_ms;
    uint32_t wait_ms;   /* HF_FOREVER where nothing is said */
    int64_t wait_until; /* when that is over, of CLOCK_BOOTTIME; INT64_MAX */
    int busy_status;
    uint64_t token;
    uint64_t from;
    uint64_t count;
    uint32_t kinds;

    char **words;
    int word_count;
    char **command;    /* NULL at its end; or NULL if there is none */
    char *in_shell[4]; /* the command of -c */
};

/* Fill `args` with the defaults. */
void args_init(struct args *args);

/* Read options up to the first word, which names a verb: "holdfast --json ls".
 * `*next` is its place in `argv`. Status 0, or 64, told. */
int args_parse_before_verb(struct args *args, char **argv, int *next);

/* Read what follows the verb in args->verb. The words point into `argv`, which
 * is rearranged. Status 0, or 64, told. */
int args_parse(struct args *args, char **argv);

/* What is left of the wait, in milliseconds, HF_FOREVER for ever. */
uint32_t args_wait_left(const struct args *args);

/* The key in the first word. */
struct hf_key args_key(const struct args *args);

/* One line an option that `verb` takes, on stdout. */
void args_describe(const struct verb *verb);

#endif
