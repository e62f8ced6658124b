/* verb.h - the subcommands. Each has a file of its own; main.c has their
 * table. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <stdbool.h>
#include <stdint.h>

struct args;

struct verb {
    const char *name;
    const char *words;   /* positional arguments, such as "KEY NONCE TOKEN" */
    const char *summary; /* one line */
    const char *text;    /* description of the verb, for `help` */
    const char *examples;
    uint64_t options; /* OPTION(TTL) | ...; without OPTIONS_COMMON */
    int words_min, words_max;
    bool command; /* the verb takes a command after its first word */

    /* Run the verb. Returns the exit status. */
    int (*main)(struct args *args);
};

extern const struct verb verb_cluster, verb_doctor, verb_force, verb_help,
    verb_lock, verb_ls, verb_renew, verb_run, verb_show, verb_status,
    verb_torture, verb_unlock, verb_update, verb_version, verb_wait, verb_watch;

/* All verbs in the order in which `help` lists them; NULL at the end. */
extern const struct verb *const verbs[];

/* The verb called `name`, or NULL. */
const struct verb *verb_find(const char *name);

/* Print the help for `verb`, or the list of all verbs if `verb` is NULL. */
void help_show_verb(const struct verb *verb);

#endif
