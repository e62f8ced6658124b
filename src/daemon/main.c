/* main.c - the daemon holdfastd: one node of a cluster. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "daemon/daemon.h"
#include "daemon/master_file.h"
#include "daemon/notice.h"
#include "daemon/options.h"
#include "daemon/pid_file.h"
#include "log/directory.h"

/* Exit statuses: as in sysexits.h, and as those of the command `holdfast`. */
enum status {
    STATUS_OK = 0,
    STATUS_USAGE = 64,
    STATUS_FAILED = 69,
};

static int report_failure(const struct hf_error *error)
{
    (void)fprintf(stderr, "holdfastd: %s\n", error->text);
    return STATUS_FAILED;
}

static enum hf_err open_disk(const char *dir, bool create,
                             struct hf_disk **disk, struct hf_error *error)
{
    int rc = hf_disk_posix_open(dir, create, disk);

    if (rc == -ENOENT && !create)
        return hf_error_set(error, HF_ESTATE,
                            "%s: there is no such directory. Initialise a new "
                            "node with --init; a lost directory of an old one "
                            "must be restored, because the node has forgotten "
                            "its votes.",
                            dir);
    if (rc == -EACCES)
        return hf_error_set(error, HF_ESYSTEM,
                            "%s: permission denied. Run holdfastd as the owner "
                            "of the directory.",
                            dir);
    if (rc == -ENOENT)
        return hf_error_set(error, HF_ESYSTEM,
                            "%s: cannot create this directory: the one that "
                            "it is in does not exist. Create that one first.",
                            dir);
    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "%s: cannot open: %s", dir,
                            strerror(-rc));
    return HF_OK;
}

/* ---- --init -------------------------------------------------------------*/

static enum hf_err init_raft_directory(const struct hf_config *config,
                                       struct hf_disk *disk,
                                       struct hf_error *error)
{
    struct hf_log_identity identity = {
        .cluster = config->cluster,
        .node = config->node,
        .segment_size = HF_WAL_SEGMENT_SIZE,
    };
    struct hf_random random;
    enum hf_err err;

    hf_random_init(&random, 0);
    if (hf_random_bytes(&random, &identity.secret, sizeof(identity.secret)))
        return hf_error_set(error, HF_ESYSTEM,
                            "the kernel has no random "
                            "numbers");
    err = hf_log_directory_init_begin(disk, &identity, error);
    if (!err)
        err = hf_config_write(config, disk, error);
    if (!err)
        err = hf_log_directory_init_end(disk, &identity, error);
    return err;
}

static void set_defaults(struct hf_config *config)
{
    if (!config->election_ms)
        config->election_ms = HF_CONFIG_ELECTION_MS;
    if (!config->heartbeat_ms)
        config->heartbeat_ms = HF_CONFIG_HEARTBEAT_MS;
    if (!config->table_mib)
        config->table_mib = HF_CONFIG_TABLE_MIB;
    if (!config->lease_max_ms)
        config->lease_max_ms = HF_QUORUM_LEASE_MS;
}

static int init_node(struct hf_daemon_options *options)
{
    struct hf_config *config = &options->config;
    struct hf_disk *disk = NULL;
    struct hf_error error = {0};
    enum hf_err err;

    set_defaults(config);
    err = hf_config_check(config, &error);
    if (!err)
        err = open_disk(options->dir, true, &disk, &error);
    if (!err)
        err = config->mode == HF_MODE_QUORUM
                  ? hf_master_file_init(config, disk, &error)
                  : init_raft_directory(config, disk, &error);
    if (disk)
        disk->ops->close_directory(disk);
    return err ? report_failure(&error) : STATUS_OK;
}

/* ---- Running ------------------------------------------------------------*/

static enum hf_err open_node_directory(const struct hf_daemon_options *options,
                                       struct hf_disk *disk,
                                       struct hf_config *config,
                                       struct hf_error *error)
{
    enum hf_err err = hf_config_read(config, disk, error);

    if (err)
        return err;
    if (config->mode == HF_MODE_QUORUM &&
        (options->config.election_ms || options->config.heartbeat_ms))
        return hf_error_set(error, HF_EINVAL,
                            "%s: this is a master of a quorum. --election-ms "
                            "and --heartbeat-ms are for mode raft.",
                            options->dir);
    if (options->config.election_ms)
        config->election_ms = options->config.election_ms;
    if (options->config.heartbeat_ms)
        config->heartbeat_ms = options->config.heartbeat_ms;
    if (options->config.table_mib)
        config->table_mib = options->config.table_mib;
    err = hf_config_check(config, error);
    return err ? err : hf_pid_file_lock(options->dir, error);
}

static int run_node(const struct hf_daemon_options *options)
{
    struct hf_config config = {0};
    struct hf_disk *disk = NULL;
    struct hf_error error = {0};
    enum hf_err err = open_disk(options->dir, false, &disk, &error);

    if (!err)
        err = open_node_directory(options, disk, &config, &error);
    if (err) {
        (void)report_failure(&error);
    } else {
        hf_notice_set_node(config.node);
        hf_notice("starting: holdfastd %s, directory %s", HF_VERSION,
                  options->dir);
        err = hf_daemon_run(&config, disk, options->ready_fd, &error);
        hf_notice(err ? "stopped: %s" : "stopped", error.text);
    }
    if (disk)
        disk->ops->close_directory(disk);
    return err ? STATUS_FAILED : STATUS_OK;
}

/* ---- Descriptors --------------------------------------------------------*/

/* If a standard descriptor is closed, the next open() returns its number, and
 * lines for stderr would be written into the log of the node. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDWR);
    }
}

/* A descriptor that is not open would be that of a file of the node by the time
 * that "ready" is written to it. */
static enum hf_err check_ready_fd(int fd, struct hf_error *error)
{
    if (fd < 0 || fcntl(fd, F_GETFD) >= 0)
        return HF_OK;
    return hf_error_set(error, HF_EINVAL,
                        "--ready-fd: the descriptor %d is not open. Open it "
                        "in the shell, as in --ready-fd 3 3>FILE",
                        fd);
}

static enum hf_err parse_options(struct hf_daemon_options *options, char **argv,
                                 struct hf_error *error)
{
    enum hf_err err = hf_daemon_options_parse(options, argv, error);

    return err ? err : check_ready_fd(options->ready_fd, error);
}

int main(int argc, char **argv)
{
    struct hf_daemon_options options;
    struct hf_error error = {0};

    fill_standard_descriptors();
    /* realloc() then moves a large array, such as the heap of leases, by
     * changing the page tables. Copying it would take milliseconds, in a turn.
     * By default, the limit rises above the size of such an array. */
    (void)mallopt(M_MMAP_THRESHOLD, HF_DAEMON_MMAP_BYTES);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* write() fails with EFBIG instead */
    if (parse_options(&options, argv + (argc > 0), &error)) {
        (void)fprintf(stderr, "holdfastd: %s\nTry 'holdfastd --help'.\n",
                      error.text);
        return STATUS_USAGE;
    }
    switch (options.action) {
    case HF_DAEMON_ACTION_HELP:
        hf_daemon_options_show_help();
        return STATUS_OK;
    case HF_DAEMON_ACTION_VERSION:
        (void)printf("holdfastd %s\n", HF_VERSION);
        return STATUS_OK;
    case HF_DAEMON_ACTION_INIT:
        return init_node(&options);
    case HF_DAEMON_ACTION_RUN:
        break;
    }
    return run_node(&options);
}
