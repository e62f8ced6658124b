#include "daemon/options.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "holdfastd - a node of a holdfast cluster\n"
    "\n"
    "  holdfastd --dir DIR --init --cluster ID --node N --member ... \n"
    "  holdfastd --dir DIR\n"
    "\n"
    "The first form initialises the directory of a new node and exits. The\n"
    "second one runs the node, in the foreground, until SIGTERM, SIGINT or\n"
    "SIGHUP. For a cluster on this machine, 'holdfast cluster up' does both.\n"
    "\n"
    "  --dir DIR            the directory of the node\n"
    "  --init               initialise DIR, which must be empty or missing\n"
    "  --mode MODE          raft, the default: locks are stored by a majority\n"
    "                       of the members. quorum: a majority of masters holds\n"
    "                       them in memory\n"
    "  --cluster ID         32 hexadecimal digits, the same for all members\n"
    "  --node N             the id of this node, from 1 on\n"
    "  --member ID=PEER,CLIENT\n"
    "                       a member: its id, the address for its peers and\n"
    "                       the address for clients; give all of them, this\n"
    "                       node too. Addresses are loopback addresses. In mode\n"
    "                       quorum, ID=CLIENT\n"
    "  --election-ms MS     a silent leader is replaced after MS to 2 * MS;\n"
    "                       500\n"
    "  --heartbeat-ms MS    a leader sends something this often; 100\n"
    "  --lease-max-ms MS    mode quorum, with --init: longer leases are refused,\n"
    "                       and a master that has restarted decides nothing for\n"
    "                       this long; the same for all members; 60000\n"
    "  --table-mib MIB      refuse new locks when the table has reached this\n"
    "                       size; 1024\n"
    "  --ready-fd FD        write \"ready\\n\" to FD and close it, once the\n"
    "                       node accepts connections\n"
    "  --help, --version\n"
    "\n"
    "Times and sizes given to --init are stored; given at a start, they count\n"
    "for this run.\n"
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

void hf_daemon_options_show_help(void)
{
    (void)fputs(help, stdout);
}

/* ---- Values -------------------------------------------------------------*/

static enum hf_err parse_decimal(const char *name, const char *text,
                                 uint64_t min, uint64_t max, uint64_t *number,
                                 struct hf_error *error)
{
    if (!hf_config_parse_number(text, max, number) || *number < min)
        return hf_error_set(
            error, HF_EINVAL, "%s: '%.40s' is not a number from %llu to %llu",
            name, text, (unsigned long long)min, (unsigned long long)max);
    return HF_OK;
}

/* Parse a setting of the configuration. 0 stands for one that is not given. */
static enum hf_err parse_setting(const char *name, const char *text,
                                 uint32_t *setting, struct hf_error *error)
{
    uint64_t number = 0;
    enum hf_err err = parse_decimal(name, text, 1, UINT32_MAX, &number, error);

    *setting = (uint32_t)number;
    return err;
}

static enum hf_err parse_node_id(struct hf_daemon_options *options,
                                 const char *text, struct hf_error *error)
{
    enum hf_err err = parse_decimal("--node", text, 0, UINT64_MAX,
                                    &options->config.node, error);

    if (!err && options->config.node == 0)
        return hf_error_set(error, HF_EINVAL,
                            "--node: the ids of nodes begin at 1");
    return err;
}

static enum hf_err parse_cluster(struct hf_daemon_options *options,
                                 const char *text, struct hf_error *error)
{
    if (!hf_config_parse_cluster(text, &options->config.cluster))
        return hf_error_set(error, HF_EINVAL,
                            "--cluster: expected 32 hexadecimal digits");
    options->has_cluster = true;
    return HF_OK;
}

static enum hf_err parse_node_mode(struct hf_daemon_options *options,
                                   const char *text, struct hf_error *error)
{
    if (!hf_config_parse_mode(text, &options->config.mode))
        return hf_error_set(error, HF_EINVAL,
                            "--mode: '%.40s' is not raft or quorum", text);
    options->has_mode = true;
    return HF_OK;
}

/* Parse ID=PEER,CLIENT or ID=CLIENT. hf_config_check() decides which one the
 * mode has. */
static enum hf_err parse_member(struct hf_daemon_options *options, char *text,
                                struct hf_error *error)
{
    char *peer = NULL;
    char *client = strchr(text, '=');
    uint64_t id;
    bool is_valid;

    if (strchr(text, ',')) {
        is_valid = hf_config_split_member(text, "=,", &id, &peer, &client);
    } else if (client) {
        *client++ = '\0';
        is_valid = hf_config_parse_number(text, UINT64_MAX, &id);
    } else {
        is_valid = false;
    }
    if (!is_valid)
        return hf_error_set(error, HF_EINVAL,
                            "--member: '%.80s' is not ID=PEER,CLIENT, such as "
                            "1=127.0.0.1:7001,127.0.0.1:7101, or ID=CLIENT in "
                            "mode quorum",
                            text);
    return hf_config_add(&options->config, id, peer, client, error);
}

static enum hf_err parse_option_value(struct hf_daemon_options *options,
                                      const char *name, char *value,
                                      struct hf_error *error)
{
    uint64_t number = 0;
    enum hf_err err = HF_OK;

    if (!strcmp(name, "--dir")) {
        options->dir = value;
    } else if (!strcmp(name, "--cluster")) {
        err = parse_cluster(options, value, error);
    } else if (!strcmp(name, "--mode")) {
        err = parse_node_mode(options, value, error);
    } else if (!strcmp(name, "--lease-max-ms")) {
        err = parse_decimal(name, value, 1, HF_LEASE_MAX_MS, &number, error);
        options->config.lease_max_ms = (uint32_t)number;
    } else if (!strcmp(name, "--member")) {
        err = parse_member(options, value, error);
    } else if (!strcmp(name, "--node")) {
        err = parse_node_id(options, value, error);
    } else if (!strcmp(name, "--election-ms")) {
        err = parse_setting(name, value, &options->config.election_ms, error);
    } else if (!strcmp(name, "--heartbeat-ms")) {
        err = parse_setting(name, value, &options->config.heartbeat_ms, error);
    } else if (!strcmp(name, "--table-mib")) {
        err = parse_setting(name, value, &options->config.table_mib, error);
    } else {
        err = parse_decimal(name, value, 0, 65535, &number, error);
        options->ready_fd = (int)number;
    }
    return err;
}

/* ---- Options ------------------------------------------------------------*/

static bool takes_value(const char *name)
{
    static const char *const names[] = {
        "--dir",         "--cluster",      "--member",    "--node",
        "--election-ms", "--heartbeat-ms", "--table-mib", "--ready-fd",
        "--mode",        "--lease-max-ms",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(names[i], name))
            return true;
    }
    return false;
}

static bool parse_flag(struct hf_daemon_options *options, const char *name)
{
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        options->action = HF_DAEMON_ACTION_HELP;
    else if (!strcmp(name, "--version"))
        options->action = HF_DAEMON_ACTION_VERSION;
    else if (!strcmp(name, "--init"))
        options->action = HF_DAEMON_ACTION_INIT;
    else
        return false;
    return true;
}

/* Parse "--name", "--name=value" or "--name value" at the start of `argv`, and
 * add the number of its words to `*used`. */
static enum hf_err parse_daemon_option(struct hf_daemon_options *options,
                                       char **argv, size_t *used,
                                       struct hf_error *error)
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

/* Options of one mode are refused in the other. */
static enum hf_err check_mode_options(const struct hf_config *config,
                                      struct hf_error *error)
{
    bool is_quorum = config->mode == HF_MODE_QUORUM;

    if (is_quorum && (config->election_ms || config->heartbeat_ms))
        return hf_error_set(error, HF_EINVAL,
                            "--election-ms and --heartbeat-ms are for --mode "
                            "raft: masters have no leader");
    if (!is_quorum && config->lease_max_ms)
        return hf_error_set(error, HF_EINVAL,
                            "--lease-max-ms is for --mode quorum");
    return HF_OK;
}

static enum hf_err check_daemon_options(const struct hf_daemon_options *options,
                                        struct hf_error *error)
{
    const struct hf_config *config = &options->config;
    bool for_init = options->has_cluster || options->has_mode || config->node ||
                    config->member_count || config->lease_max_ms;

    if (!options->dir)
        return hf_error_set(error, HF_EINVAL, "--dir is missing");
    if (options->action == HF_DAEMON_ACTION_RUN)
        return for_init ? hf_error_set(error, HF_EINVAL,
                                       "--mode, --cluster, --node, --member "
                                       "and --lease-max-ms are for --init; a "
                                       "node finds them in its directory")
                        : HF_OK;
    if (!(options->has_cluster && config->node && config->member_count))
        return hf_error_set(error, HF_EINVAL,
                            "--init requires --cluster, --node and --member");
    return check_mode_options(config, error);
}

enum hf_err hf_daemon_options_parse(struct hf_daemon_options *options,
                                    char **argv, struct hf_error *error)
{
    size_t next = 0;
    enum hf_err err = HF_OK;

    *options = (struct hf_daemon_options){.ready_fd = -1};
    while (!err && argv[next])
        err = parse_daemon_option(options, argv + next, &next, error);
    if (err || options->action == HF_DAEMON_ACTION_HELP ||
        options->action == HF_DAEMON_ACTION_VERSION)
        return err;
    return check_daemon_options(options, error);
}
