/* args.h - parse the command line.
 *
 * An option means the same for every verb, so there is one table of options,
 * and each verb lists the ones it accepts. Only --keys takes a number for
 * `torture` and none for `ls`, so it has two rows. Options and words
 * (positional arguments) may come in any order; "--" ends the options, "-" is a
 * word. Options cannot be abbreviated: a script must not change its meaning
 * when a later version adds an option. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <holdfast.h>

#include "verb.h"

/* X(id, name, letter, value, description), in the order in which `help` lists
 * them. The description of --quiet depends on the verb. */
#define ARGS_OPTIONS(X)                                                        \
    X(TTL, "ttl", 0, "TIME", "hold the lock for TIME without a renewal; 10s")  \
    X(WAIT, "wait", 'w', "TIME", "wait at most TIME; default: for ever")       \
    X(NO_WAIT, "no-wait", 'n', NULL, "do not wait at all")                     \
    X(BUSY_STATUS, "conflict-exit-code", 'E', "CODE",                          \
      "exit status if the key stays busy; 75")                                 \
    X(COMMAND, "command", 'c', "TEXT", "run TEXT with a shell")                \
    X(EXCLUSIVE, "exclusive", 'x', NULL, "no effect: every lock is exclusive") \
    X(CLOSE, "close", 'o', NULL,                                               \
      "do not wait for processes the command leaves")                          \
    X(HOLD, "hold", 0, NULL, "renew until stdin closes, then release")         \
    X(VALUE, "value", 0, "TEXT", "store TEXT with the lock, for all to see")   \
    X(EXPECT, "expect", 0, "TEXT", "replace only if the value is TEXT now")    \
    X(NOTE, "note", 0, "TEXT", "show others what the lock is held for")        \
    X(HELD, "held", 0, NULL, "wait until somebody holds the key")              \
    X(TOKEN, "token", 0, "N", "the token of the lock to break")                \
    X(NOW, "now", 0, NULL, "grant the key to the next waiter at once")         \
    X(FROM, "from", 0, "INDEX", "start with the event at this index")          \
    X(KINDS, "kinds", 0, "LIST", "only these kinds, such as granted,expired")  \
    X(COUNT, "count", 0, "N", "exit after N events")                           \
    X(KEYS, "keys", 0, NULL, "print only the keys")                            \
    X(FOR, "for", 0, "TIME", "end after TIME; 1m")                             \
    X(CLIENTS, "clients", 0, "N", "run N client processes at a time; 8")       \
    X(KEY_COUNT, "keys", 0, "N", "use N keys at a time; 4")                    \
    X(KILL, "kill", 0, NULL, "kill clients at random, and start new ones")     \
    X(HISTORY, "history", 0, "FILE", "write the last history to FILE")         \
    X(SEED, "seed", 0, "N", "repeat the random choices of the seed N")         \
    X(MODE, "mode", 0, "MODE", "raft or quorum, for a new cluster; raft")      \
    X(NODES, "nodes", 0, "N", "the number of nodes of a new cluster; 3")       \
    X(LEASE_MAX, "lease-max", 0, "TIME",                                       \
      "the longest lease of a new quorum cluster; 1m")                         \
    X(DIR, "dir", 0, "DIR", "the directory of the cluster")                    \
    X(QUIET, "quiet", 'q', NULL, "")                                           \
    X(URL, "url", 0, "URL", "the store; default: HOLDFAST_URL, else file:")    \
    X(JSON, "json", 0, NULL, "print one JSON object per line, errors too")     \
    X(VERBOSE, "verbose", 'v', NULL, "report progress on stderr")              \
    X(HELP, "help", 'h', NULL, "show this help")

enum option {
#define ARGS_OPTION_ID(id, name, letter, value, text) OPTION_##id,
    ARGS_OPTIONS(ARGS_OPTION_ID)
#undef ARGS_OPTION_ID
    OPTION_COUNT_OF,
};

_Static_assert(OPTION_COUNT_OF <= 64, "a set of options has 64 bits");

#define OPTION(id) (UINT64_C(1) << OPTION_##id)
#define OPTIONS_COMMON                                                         \
    (OPTION(URL) | OPTION(JSON) | OPTION(VERBOSE) | OPTION(HELP))

struct args {
    const struct verb *verb; /* NULL until the verb is parsed */
    uint64_t given;          /* OPTION(TTL) | ... */

    char *url; /* points into argv */
    const char *note;
    const char *value;
    const char *expect;
    bool json, verbose, quiet, close, hold, held, now, keys, kill;
    uint32_t ttl_ms;
    uint32_t wait_ms;   /* 0 with --no-wait; HF_FOREVER without a limit */
    int64_t wait_until; /* end of the wait, by loop_now(); INT64_MAX: none */
    int busy_status;
    uint64_t token;
    uint64_t from;
    uint64_t count;
    unsigned mode;         /* enum cluster_mode; 0: not given */
    unsigned nodes;        /* 0: not given */
    uint32_t lease_max_ms; /* 0: not given */
    const char *dir;       /* NULL: not given */
    uint32_t kinds;
    uint32_t for_ms;
    unsigned clients, key_count; /* 0: not given */
    const char *history;         /* NULL: not given */
    uint64_t seed;

    char **words;
    int word_count;
    char **command;    /* NULL-terminated argv of the command, or NULL */
    char *in_shell[4]; /* the command of -c */
};

/* Fill `args` with the defaults. */
void args_init(struct args *args);

/* Parse the options in front of the verb, as in "holdfast --json ls", from
 * argv[*next] on, and set `*next` to the index of the verb. Returns 0, or the
 * exit status 64 after reporting the error. */
int args_parse_before_verb(struct args *args, char **argv, int *next);

/* Parse the arguments of args->verb. args->words points into `argv`, which is
 * rearranged. Returns 0, or the exit status 64 after reporting the error. */
int args_parse(struct args *args, char **argv);

/* The milliseconds left until wait_until; HF_FOREVER if there is no limit. */
uint32_t args_wait_left(const struct args *args);

/* The first word, as a key. */
struct hf_key args_key(const struct args *args);

/* Print one line for each option that `verb` accepts. */
void args_describe(const struct verb *verb);

#endif
