/* verb.h - the subcommands: one file each, one table in main.c. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <stdbool.h>
#include <stdint.h>

struct args;

struct verb {
    const char *name;
    const char *words;   /* "KEY NONCE TOKEN", as shown */
    const char *summary; /* one line */
    const char *text;    /* what it does */
    const char *examples;
    uint32_t options; /* OPTION(TTL) | ..., besides those that all have */
    int words_min, words_max;
    bool command; /* what follows the first word is a command */

    /* Do it; returns the status to exit with. */
    int (*main)(struct args *args);
};

extern const struct verb verb_doctor, verb_force, verb_help, verb_lock, verb_ls,
    verb_renew, verb_run, verb_show, verb_unlock, verb_update, verb_version,
    verb_wait, verb_watch;

/* All of them, in the order in which they are shown; NULL at the end. */
extern const struct verb *const verbs[];

/* NULL if there is no such verb. */
const struct verb *verb_find(const char *name);

/* What `holdfast help [VERB]` prints; NULL: the list of all. */
void help_show_verb(const struct verb *verb);

#endif
