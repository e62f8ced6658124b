#include "daemon/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

#define FILE_MAX 8192
#define TMP_FILE "tmp-" HF_CONFIG_FILE

/* ---- Members ------------------------------------------------------------*/

const struct hf_config_member *hf_config_find(const struct hf_config *config,
                                              uint64_t id)
{
    for (size_t i = 0; i < config->member_count; i++) {
        if (config->members[i].id == id)
            return &config->members[i];
    }
    return NULL;
}

static void insert_member(struct hf_config *config,
                          const struct hf_config_member *member)
{
    size_t i = config->member_count++;

    for (; i > 0 && config->members[i - 1].id > member->id; i--)
        config->members[i] = config->members[i - 1];
    config->members[i] = *member;
}

enum hf_err hf_config_add(struct hf_config *config, uint64_t id,
                          const char *peer, const char *client,
                          struct hf_error *error)
{
    struct hf_config_member member = {.id = id};
    enum hf_err err;

    if (id == 0)
        return hf_error_set(error, HF_EINVAL,
                            "member: an id is a number from 1 on");
    if (hf_config_find(config, id))
        return hf_error_set(error, HF_EINVAL,
                            "member %" PRIu64 " is given twice", id);
    if (config->member_count == HF_RAFT_VOTERS_MAX)
        return hf_error_set(error, HF_ELIMIT,
                            "a cluster has at most %d members",
                            HF_RAFT_VOTERS_MAX);
    err = hf_address_parse(peer, &member.peer, error);
    if (!err)
        err = hf_address_parse(client, &member.client, error);
    if (!err)
        insert_member(config, &member);
    return err;
}

/* ---- Checks -------------------------------------------------------------*/

static const struct hf_address *address_at(const struct hf_config *config,
                                           size_t i)
{
    const struct hf_config_member *member = &config->members[i / 2];

    return i % 2 ? &member->client : &member->peer;
}

static enum hf_err check_addresses(const struct hf_config *config,
                                   struct hf_error *error)
{
    for (size_t i = 0; i < 2 * config->member_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (hf_address_equal(address_at(config, i), address_at(config, j)))
                return hf_error_set(error, HF_EINVAL,
                                    "address '%s' is used twice",
                                    address_at(config, i)->text);
        }
    }
    return HF_OK;
}

enum hf_err hf_config_check(const struct hf_config *config,
                            struct hf_error *error)
{
    if (!hf_config_find(config, config->node))
        return hf_error_set(error, HF_EINVAL,
                            "node %" PRIu64 " is not one of the members",
                            config->node);
    if (config->election_ms < 10 || config->election_ms > 60000)
        return hf_error_set(error, HF_EINVAL,
                            "election_ms is %u; expected 10 to 60000",
                            (unsigned)config->election_ms);
    if (config->heartbeat_ms < 1 ||
        config->heartbeat_ms >= config->election_ms / 2)
        return hf_error_set(error, HF_EINVAL,
                            "heartbeat_ms is %u; expected at least 1, and "
                            "less than half of election_ms (%u)",
                            (unsigned)config->heartbeat_ms,
                            (unsigned)config->election_ms);
    return check_addresses(config, error);
}

/* ---- Writing ------------------------------------------------------------*/

static void encode_config(const struct hf_config *config, struct hf_buf *buf)
{
    char line[3 * HF_ADDRESS_TEXT];
    char cluster[2 * sizeof(config->cluster.bytes) + 1];

    hf_hex_encode(cluster, config->cluster.bytes,
                  sizeof(config->cluster.bytes));
    hf_buf_raw(buf, line,
               (size_t)snprintf(line, sizeof(line),
                                "holdfast-node 1\ncluster %s\n", cluster));
    hf_buf_raw(buf, line,
               (size_t)snprintf(line, sizeof(line),
                                "node %" PRIu64
                                "\nelection_ms %u\nheartbeat_ms %u\n",
                                config->node, (unsigned)config->election_ms,
                                (unsigned)config->heartbeat_ms));
    for (size_t i = 0; i < config->member_count; i++) {
        const struct hf_config_member *member = &config->members[i];

        hf_buf_raw(buf, line,
                   (size_t)snprintf(line, sizeof(line),
                                    "member %" PRIu64 " %s %s\n", member->id,
                                    member->peer.text, member->client.text));
    }
}

static int write_config_file(struct hf_disk *disk, const struct hf_buf *buf)
{
    struct hf_disk_file *file = NULL;
    int rc = disk->ops->create(disk, TMP_FILE, &file);

    if (!rc)
        rc = hf_disk_write(file, 0, buf->data, buf->size);
    if (!rc)
        rc = disk->ops->sync(file);
    hf_disk_close(file);
    return rc ? rc : hf_disk_rename(disk, TMP_FILE, HF_CONFIG_FILE);
}

enum hf_err hf_config_write(const struct hf_config *config,
                            struct hf_disk *disk, struct hf_error *error)
{
    struct hf_buf buf = {0};
    int rc;

    encode_config(config, &buf);
    rc = buf.failed ? -ENOMEM : write_config_file(disk, &buf);
    hf_buf_fini(&buf);
    if (rc)
        return hf_disk_error(error, disk, HF_CONFIG_FILE, "cannot write", rc);
    return HF_OK;
}

/* ---- Reading ------------------------------------------------------------*/

static bool parse_config_number(const char *text, uint64_t max,
                                uint64_t *number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0 && *number <= max;
}

static bool parse_cluster_line(const char *text, struct hf_log_cluster *cluster)
{
    return strlen(text) == 2 * sizeof(cluster->bytes) &&
           hf_hex_decode(cluster->bytes, sizeof(cluster->bytes), text);
}

/* Parse "ID PEER CLIENT". */
static enum hf_err parse_member_line(struct hf_config *config, char *text,
                                     struct hf_error *error)
{
    char *rest = NULL;
    const char *id = strtok_r(text, " ", &rest);
    const char *peer = strtok_r(NULL, " ", &rest);
    const char *client = strtok_r(NULL, " ", &rest);
    uint64_t number;

    if (!client || strtok_r(NULL, " ", &rest) ||
        !parse_config_number(id, UINT64_MAX, &number))
        return hf_error_set(error, HF_EINVAL,
                            "expected member ID PEER-ADDRESS CLIENT-ADDRESS");
    return hf_config_add(config, number, peer, client, error);
}

static enum hf_err parse_config_line(struct hf_config *config, const char *name,
                                     char *value, struct hf_error *error)
{
    uint64_t number = 0;
    bool valid = true;

    if (!strcmp(name, "member"))
        return parse_member_line(config, value, error);
    if (!strcmp(name, "cluster"))
        valid = parse_cluster_line(value, &config->cluster);
    else if (!strcmp(name, "node"))
        valid = parse_config_number(value, UINT64_MAX, &config->node);
    else if (!strcmp(name, "election_ms") || !strcmp(name, "heartbeat_ms"))
        valid = parse_config_number(value, UINT32_MAX, &number);
    else
        return hf_error_set(error, HF_EINVAL, "unknown setting '%.40s'", name);
    if (!valid)
        return hf_error_set(error, HF_EINVAL, "%s: '%.80s' is not valid", name,
                            value);
    if (!strcmp(name, "election_ms"))
        config->election_ms = (uint32_t)number;
    if (!strcmp(name, "heartbeat_ms"))
        config->heartbeat_ms = (uint32_t)number;
    return HF_OK;
}

static enum hf_err parse_version(const char *line, const char *path,
                                 struct hf_error *error)
{
    static const char name[] = "holdfast-node ";

    if (!line || strncmp(line, name, strlen(name)) != 0)
        return hf_error_set(error, HF_EINVAL,
                            "%s/" HF_CONFIG_FILE ": not the configuration of "
                            "a node",
                            path);
    if (strcmp(line + strlen(name), "1") != 0)
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "%s/" HF_CONFIG_FILE ": format %.20s was written "
                            "by a newer holdfastd; this one reads format 1",
                            path, line + strlen(name));
    return HF_OK;
}

static enum hf_err parse_config(struct hf_config *config, char *text,
                                const char *path, struct hf_error *error)
{
    char *rest = NULL;
    char *line = strtok_r(text, "\n", &rest);
    struct hf_error cause = {0};
    enum hf_err err = parse_version(line, path, error);

    if (err)
        return err;
    while ((line = strtok_r(NULL, "\n", &rest))) {
        char *value = strchr(line, ' ');

        if (line[0] == '#')
            continue;
        if (value)
            *value++ = '\0';
        err = value ? parse_config_line(config, line, value, &cause)
                    : hf_error_set(&cause, HF_EINVAL, "'%.40s' has no value",
                                   line);
        if (err)
            return hf_error_set(error, err, "%s/" HF_CONFIG_FILE ": %s", path,
                                cause.text);
    }
    err = hf_config_check(config, &cause);
    if (err)
        return hf_error_set(error, err, "%s/" HF_CONFIG_FILE ": %s", path,
                            cause.text);
    return HF_OK;
}

enum hf_err hf_config_read(struct hf_config *config, struct hf_disk *disk,
                           struct hf_error *error)
{
    struct hf_disk_file *file = NULL;
    char text[FILE_MAX];
    ssize_t size;
    int rc = disk->ops->open(disk, HF_CONFIG_FILE, &file);

    if (rc == -ENOENT)
        return hf_error_set(error, HF_ESTATE,
                            "%s: no node was initialised here. Initialise a "
                            "new node with --init; to restart one, give its "
                            "directory.",
                            disk->path);
    if (rc)
        return hf_disk_error(error, disk, HF_CONFIG_FILE, "cannot open", rc);
    size = hf_disk_read(file, 0, text, sizeof(text));
    hf_disk_close(file);
    if (size < 0)
        return hf_disk_error(error, disk, HF_CONFIG_FILE, "cannot read",
                             (int)size);
    if ((size_t)size == sizeof(text) || memchr(text, '\0', (size_t)size))
        return hf_error_set(error, HF_EINVAL,
                            "%s/" HF_CONFIG_FILE ": not the configuration of "
                            "a node",
                            disk->path);
    text[size] = '\0';
    *config = (struct hf_config){.election_ms = HF_CONFIG_ELECTION_MS,
                                 .heartbeat_ms = HF_CONFIG_HEARTBEAT_MS};
    return parse_config(config, text, disk->path, error);
}
