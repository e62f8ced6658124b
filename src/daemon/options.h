/* options.h - the command line of holdfastd. */
#ifndef HF_DAEMON_OPTIONS_H
#define HF_DAEMON_OPTIONS_H

#include "daemon/config.h"

enum hf_daemon_action {
    HF_DAEMON_ACTION_RUN,
    HF_DAEMON_ACTION_INIT,
    HF_DAEMON_ACTION_HELP,
    HF_DAEMON_ACTION_VERSION,
};

struct hf_daemon_options {
    enum hf_daemon_action action;
    const char *dir;
    int ready_fd;            /* -1: none */
    bool has_cluster;        /* --cluster was given */
    bool has_mode;           /* --mode was given */
    struct hf_config config; /* RUN: only times and table_mib; 0: not given */
};

/* Parse the command line; `argv` begins after the name of the program. Returns
 * HF_EINVAL if it is wrong, or HF_ELIMIT if it has too many members. */
enum hf_err hf_daemon_options_parse(struct hf_daemon_options *options,
                                    char **argv, struct hf_error *error);

/* Write the text of --help to stdout. */
void hf_daemon_options_show_help(void);

#endif
