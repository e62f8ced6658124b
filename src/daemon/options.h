/* options.h - the command line of holdfastd. */
#ifndef HF_DAEMON_OPTIONS_H
#define HF_DAEMON_OPTIONS_H

#include "daemon/config.h"

enum hf_options_action {
    HF_OPTIONS_RUN,
    HF_OPTIONS_INIT,
    HF_OPTIONS_HELP,
    HF_OPTIONS_VERSION,
};

struct hf_options {
    enum hf_options_action action;
    const char *dir;
    int ready_fd;            /* -1: none */
    bool has_cluster;        /* --cluster was given */
    struct hf_config config; /* RUN uses the times only; 0: not given */
};

/* Parse the command line; `argv` begins after the name of the program. Returns
 * HF_EINVAL if it is wrong, or HF_ELIMIT if it has too many members. */
enum hf_err hf_options_parse(struct hf_options *options, char **argv,
                             struct hf_error *error);

/* Write the text of --help to stdout. */
void hf_options_show_help(void);

#endif
