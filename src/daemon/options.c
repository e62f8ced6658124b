#include "daemon/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

static const char help[] =
    "holdfastd - a node of a holdfast cluster\n"
    "\n"
    "  holdfastd --dir DIR --init --cluster ID --node N --member ... \n"
    "  holdfastd --dir DIR\n"
    "\n"
    "The first form initialises the directory of a new node and exits. The\n"
    "second one runs the node, in the foreground, until SIGTERM or SIGINT. For\n"
    "a cluster on this machine, 'holdfast cluster up' does both.\n"
    "\n"
    "  --dir DIR            the directory of the node: log, snapshots, config\n"
    "  --init               initialise DIR, which must be empty or missing\n"
    "  --cluster ID         32 hexadecimal digits, the same for all members\n"
    "  --node N             the id of this node, from 1 on\n"
    "  --member ID=PEER,CLIENT\n"
    "                       a member: its id, the address for its peers and\n"
    "                       the address for clients; give all of them, this\n"
    "                       node too. Addresses are loopback addresses\n"
    "  --election-ms MS     a silent leader is replaced after MS to 2 * MS;\n"
    "                       500\n"
    "  --heartbeat-ms MS    a leader sends something this often; 100\n"
    "  --ready-fd FD        write \"ready\\n\" to FD and close it, once the\n"
    "                       node accepts connections\n"
    "  --help, --version\n"
    "\n"
    "The times given to --init are stored; given at a start, they count for\n"
    "this run.\n"
    "\n"
    "A directory that is lost must not be initialised again for the same\n"
    "member: the node has forgotten its votes, and two leaders could be\n"
    "elected. A cluster of one node:\n"
    "\n"
    "  holdfastd --dir node-1 --init --node 1 \\\n"
    "      --cluster $(od -An -tx1 -N16 /dev/urandom | tr -d ' ') \\\n"
    "      --member 1=127.0.0.1:7001,127.0.0.1:7101\n"
    "  holdfastd --dir node-1 &\n"
    "  redis-cli -p 7101 LOCK deploy 10000\n";

void hf_options_show_help(void)
{
    (void)fputs(help, stdout);
}

/* ---- Values -------------------------------------------------------------*/

static enum hf_err parse_decimal(const char *name, const char *text,
                                 uint64_t max, uint64_t *number,
                                 struct hf_error *error)
{
    char *end;

    errno = 0;
    *number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *number > max)
        return hf_error_set(error, HF_EINVAL,
                            "%s: '%.40s' is not a number from 0 to %llu", name,
                            text, (unsigned long long)max);
    return HF_OK;
}

static enum hf_err parse_cluster(struct hf_options *options, const char *text,
                                 struct hf_error *error)
{
    struct hf_log_cluster *cluster = &options->config.cluster;

    if (strlen(text) != 2 * sizeof(cluster->bytes) ||
        !hf_hex_decode(cluster->bytes, sizeof(cluster->bytes), text))
        return hf_error_set(error, HF_EINVAL,
                            "--cluster: expected 32 hexadecimal digits");
    options->has_cluster = true;
    return HF_OK;
}

/* Parse "ID=PEER,CLIENT". */
static enum hf_err parse_member(struct hf_options *options, char *text,
                                struct hf_error *error)
{
    char *peer = strchr(text, '=');
    char *client = peer ? strchr(peer, ',') : NULL;
    uint64_t id;
    enum hf_err err;

    if (!client)
        return hf_error_set(error, HF_EINVAL,
                            "--member: '%.80s' is not ID=PEER,CLIENT, such as "
                            "1=127.0.0.1:7001,127.0.0.1:7101",
                            text);
    *peer++ = '\0';
    *client++ = '\0';
    err = parse_decimal("--member", text, UINT64_MAX, &id, error);
    if (!err)
        err = hf_config_add(&options->config, id, peer, client, error);
    return err;
}

static enum hf_err parse_option_value(struct hf_options *options,
                                      const char *name, char *value,
                                      struct hf_error *error)
{
    uint64_t number = 0;
    enum hf_err err = HF_OK;

    if (!strcmp(name, "--dir")) {
        options->dir = value;
    } else if (!strcmp(name, "--cluster")) {
        err = parse_cluster(options, value, error);
    } else if (!strcmp(name, "--member")) {
        err = parse_member(options, value, error);
    } else if (!strcmp(name, "--node")) {
        err = parse_decimal(name, value, UINT64_MAX, &options->config.node,
                            error);
    } else if (!strcmp(name, "--election-ms")) {
        err = parse_decimal(name, value, UINT32_MAX, &number, error);
        options->config.election_ms = (uint32_t)number;
    } else if (!strcmp(name, "--heartbeat-ms")) {
        err = parse_decimal(name, value, UINT32_MAX, &number, error);
        options->config.heartbeat_ms = (uint32_t)number;
    } else {
        err = parse_decimal(name, value, 65535, &number, error);
        options->ready_fd = (int)number;
    }
    return err;
}

/* ---- Options ------------------------------------------------------------*/

static bool takes_value(const char *name)
{
    static const char *const names[] = {
        "--dir",         "--cluster",      "--member",   "--node",
        "--election-ms", "--heartbeat-ms", "--ready-fd",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(names[i], name))
            return true;
    }
    return false;
}

static bool parse_flag(struct hf_options *options, const char *name)
{
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        options->action = HF_OPTIONS_HELP;
    else if (!strcmp(name, "--version"))
        options->action = HF_OPTIONS_VERSION;
    else if (!strcmp(name, "--init"))
        options->action = HF_OPTIONS_INIT;
    else
        return false;
    return true;
}

/* Parse "--name", "--name=value" or "--name value" at the start of `argv`, and
 * increment `*used` for each word. */
static enum hf_err parse_daemon_option(struct hf_options *options, char **argv,
                                       size_t *used, struct hf_error *error)
{
    char *value = strchr(argv[0], '=');

    ++*used;
    if (parse_flag(options, argv[0]))
        return HF_OK;
    if (value)
        *value++ = '\0';
    if (!takes_value(argv[0]))
        return hf_error_set(error, HF_EINVAL, "unknown option '%.40s'",
                            argv[0]);
    if (!value) {
        value = argv[1];
        ++*used;
    }
    if (!value)
        return hf_error_set(error, HF_EINVAL, "%s requires a value", argv[0]);
    return parse_option_value(options, argv[0], value, error);
}

static enum hf_err check_options(const struct hf_options *options,
                                 struct hf_error *error)
{
    bool for_init = options->has_cluster || options->config.node ||
                    options->config.member_count;

    if (!options->dir)
        return hf_error_set(error, HF_EINVAL, "--dir is missing");
    if (options->action == HF_OPTIONS_RUN && for_init)
        return hf_error_set(error, HF_EINVAL,
                            "--cluster, --node and --member are for --init; "
                            "a node finds them in its directory");
    if (options->action == HF_OPTIONS_INIT &&
        !(options->has_cluster && options->config.node &&
          options->config.member_count))
        return hf_error_set(error, HF_EINVAL,
                            "--init requires --cluster, --node and --member");
    return HF_OK;
}

enum hf_err hf_options_parse(struct hf_options *options, char **argv,
                             struct hf_error *error)
{
    size_t next = 0;
    enum hf_err err = HF_OK;

    *options = (struct hf_options){.ready_fd = -1};
    while (!err && argv[next])
        err = parse_daemon_option(options, argv + next, &next, error);
    if (err || options->action == HF_OPTIONS_HELP ||
        options->action == HF_OPTIONS_VERSION)
        return err;
    return check_options(options, error);
}
