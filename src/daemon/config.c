#include "daemon/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"

#define FILE_MAX 8192
#define TMP_FILE "tmp-" HF_CONFIG_FILE
#define TABLE_MIB_MAX 1048576U

/* ---- Values -------------------------------------------------------------*/

bool hf_config_parse_number(const char *text, uint64_t max, uint64_t *number)
{
    unsigned long long read;
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    read = strtoull(text, &end, 10);
    if (*end != '\0' || errno != 0 || read > max)
        return false;
    *number = read;
    return true;
}

bool hf_config_parse_mode(const char *text, enum hf_mode *mode)
{
    bool is_quorum = !strcmp(text, "quorum");

    *mode = is_quorum ? HF_MODE_QUORUM : HF_MODE_RAFT;
    return is_quorum || !strcmp(text, "raft");
}

bool hf_config_parse_cluster(const char *text, struct hf_log_cluster *cluster)
{
    return strlen(text) == 2 * sizeof(cluster->bytes) &&
           hf_hex_decode(cluster->bytes, sizeof(cluster->bytes), text);
}

bool hf_config_split_member(char *text, const char *separators, uint64_t *id,
                            char **peer, char **client)
{
    *peer = strchr(text, separators[0]);
    *client = *peer ? strchr(*peer + 1, separators[1]) : NULL;
    if (!*client)
        return false;
    *(*peer)++ = '\0';
    *(*client)++ = '\0';
    return hf_config_parse_number(text, UINT64_MAX, id);
}

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
    err = peer ? hf_address_parse(peer, &member.peer, error) : HF_OK;
    if (!err)
        err = hf_address_parse(client, &member.client, error);
    if (!err)
        insert_member(config, &member);
    return err;
}

/* ---- Checks -------------------------------------------------------------*/

_Static_assert(HF_QUORUM_MASTERS_MAX == HF_RAFT_VOTERS_MAX, "members");

/* In mode quorum, the addresses for peers are all empty. */
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
            if (address_at(config, i)->text[0] != '\0' &&
                hf_address_equal(address_at(config, i), address_at(config, j)))
                return hf_error_set(error, HF_EINVAL,
                                    "address '%s' is used twice",
                                    address_at(config, i)->text);
        }
    }
    return HF_OK;
}

static enum hf_err check_members(const struct hf_config *config,
                                 struct hf_error *error)
{
    bool has_peers = config->mode == HF_MODE_RAFT;

    if (!has_peers && config->member_count == 0)
        return HF_OK; /* they are in the file of the master */
    if (!hf_config_find(config, config->node))
        return hf_error_set(error, HF_EINVAL,
                            "node %" PRIu64 " is not one of the members",
                            config->node);
    for (size_t i = 0; i < config->member_count; i++) {
        if ((config->members[i].peer.text[0] != '\0') != has_peers)
            return hf_error_set(error, HF_EINVAL,
                                "member %" PRIu64 ": expected %s",
                                config->members[i].id,
                                has_peers ? "an address for peers and one for "
                                            "clients, as ID=PEER,CLIENT"
                                          : "one address, as ID=CLIENT, "
                                            "because masters have no peers");
    }
    return check_addresses(config, error);
}

static enum hf_err check_times(const struct hf_config *config,
                               struct hf_error *error)
{
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
    return HF_OK;
}

static enum hf_err check_settings(const struct hf_config *config,
                                  struct hf_error *error)
{
    if (config->table_mib < 1 || config->table_mib > TABLE_MIB_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "table_mib is %u; expected 1 to %u",
                            (unsigned)config->table_mib, TABLE_MIB_MAX);
    return config->mode == HF_MODE_RAFT ? check_times(config, error) : HF_OK;
}

enum hf_err hf_config_check(const struct hf_config *config,
                            struct hf_error *error)
{
    enum hf_err err = check_settings(config, error);

    return err ? err : check_members(config, error);
}

/* ---- Writing ------------------------------------------------------------*/

static void add_text(struct hf_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append at most three addresses. */
static void add_text(struct hf_buf *buf, const char *format, ...)
{
    char text[3 * HF_ADDRESS_TEXT];
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    hf_buf_raw(buf, text, (size_t)size);
}

static void encode_members(const struct hf_config *config, struct hf_buf *buf)
{
    for (size_t i = 0; i < config->member_count; i++)
        add_text(buf, "member %" PRIu64 " %s %s\n", config->members[i].id,
                 config->members[i].peer.text, config->members[i].client.text);
}

static void encode_config(const struct hf_config *config, struct hf_buf *buf)
{
    char cluster[2 * sizeof(config->cluster.bytes) + 1];

    hf_hex_encode(cluster, config->cluster.bytes,
                  sizeof(config->cluster.bytes));
    add_text(buf, "holdfast-node 1\n");
    if (config->mode == HF_MODE_QUORUM)
        add_text(buf, "mode quorum\n");
    add_text(buf, "cluster %s\nnode %" PRIu64 "\n", cluster, config->node);
    if (config->mode == HF_MODE_RAFT)
        add_text(buf, "election_ms %u\nheartbeat_ms %u\n",
                 (unsigned)config->election_ms, (unsigned)config->heartbeat_ms);
    add_text(buf, "table_mib %u\n", (unsigned)config->table_mib);
    if (config->mode == HF_MODE_RAFT)
        encode_members(config, buf);
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

static enum hf_err parse_member_line(struct hf_config *config, char *text,
                                     struct hf_error *error)
{
    char *peer, *client;
    uint64_t id;

    if (!hf_config_split_member(text, "  ", &id, &peer, &client))
        return hf_error_set(error, HF_EINVAL,
                            "expected member ID PEER-ADDRESS CLIENT-ADDRESS");
    return hf_config_add(config, id, peer, client, error);
}

static enum hf_err parse_config_line(struct hf_config *config, const char *name,
                                     char *value, struct hf_error *error)
{
    uint64_t number = 0;
    bool valid = true;

    if (!strcmp(name, "member"))
        return parse_member_line(config, value, error);
    if (!strcmp(name, "mode"))
        valid = hf_config_parse_mode(value, &config->mode);
    else if (!strcmp(name, "cluster"))
        valid = hf_config_parse_cluster(value, &config->cluster);
    else if (!strcmp(name, "node"))
        valid = hf_config_parse_number(value, UINT64_MAX, &config->node);
    else if (!strcmp(name, "election_ms") || !strcmp(name, "heartbeat_ms") ||
             !strcmp(name, "table_mib"))
        valid = hf_config_parse_number(value, UINT32_MAX, &number);
    else
        return hf_error_set(error, HF_EINVAL, "unknown setting '%.40s'", name);
    if (!valid)
        return hf_error_set(error, HF_EINVAL, "%s: '%.80s' is not valid", name,
                            value);
    if (!strcmp(name, "election_ms"))
        config->election_ms = (uint32_t)number;
    if (!strcmp(name, "heartbeat_ms"))
        config->heartbeat_ms = (uint32_t)number;
    if (!strcmp(name, "table_mib"))
        config->table_mib = (uint32_t)number;
    return HF_OK;
}

#define REPAIR                                                                 \
    ". Correct it with an editor, or copy the file of another member and "     \
    "change its line 'node'."

static enum hf_err parse_version(const char *line, const char *path,
                                 struct hf_error *error)
{
    static const char name[] = "holdfast-node ";

    if (!line || strncmp(line, name, strlen(name)) != 0)
        return hf_error_set(error, HF_EINVAL,
                            "%s/" HF_CONFIG_FILE ": not the configuration of "
                            "a node" REPAIR,
                            path);
    if (strcmp(line + strlen(name), "1") != 0)
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "%s/" HF_CONFIG_FILE ": format %.20s was written "
                            "by a newer holdfastd; this one reads format 1. "
                            "Upgrade this node.",
                            path, line + strlen(name));
    return HF_OK;
}

static enum hf_err refuse_config(struct hf_error *error,
                                 const struct hf_error *cause, const char *path)
{
    return hf_error_set(error, cause->code, "%s/" HF_CONFIG_FILE ": %s" REPAIR,
                        path, cause->text);
}

/* An editor may leave blanks, or the line ends of another system. */
static void cut_trailing_blanks(char *line)
{
    size_t size = strlen(line);

    while (size > 0 && strchr(" \t\r", line[size - 1]))
        line[--size] = '\0';
}

/* The next line of the file that is not empty, or NULL. */
static char *next_line(char *text, char **rest)
{
    char *line = strtok_r(text, "\n", rest);

    if (line)
        cut_trailing_blanks(line);
    return line;
}

static enum hf_err parse_config(struct hf_config *config, char *text,
                                const char *path, struct hf_error *error)
{
    char *rest = NULL;
    char *line = next_line(text, &rest);
    struct hf_error cause = {0};
    enum hf_err err = parse_version(line, path, error);

    if (err)
        return err;
    while ((line = next_line(NULL, &rest))) {
        char *value = strchr(line, ' ');

        if (line[0] == '#' || line[0] == '\0')
            continue;
        if (value)
            *value++ = '\0';
        err = value ? parse_config_line(config, line, value, &cause)
                    : hf_error_set(&cause, HF_EINVAL, "'%.40s' has no value",
                                   line);
        if (err)
            return refuse_config(error, &cause, path);
    }
    err = hf_config_check(config, &cause);
    if (!err && config->mode == HF_MODE_QUORUM && config->member_count > 0)
        err = hf_error_set(&cause, HF_EINVAL,
                           "the members of a quorum are in the file master");
    if (err)
        return refuse_config(error, &cause, path);
    return HF_OK;
}

static enum hf_err refuse_without_config(struct hf_disk *disk,
                                         struct hf_error *error)
{
    struct hf_disk_file *identity = NULL;
    int rc = disk->ops->open(disk, HF_IDENTITY_FILE, &identity);

    hf_disk_close(identity);
    if (!rc)
        return hf_error_set(error, HF_ESTATE,
                            "%s/" HF_CONFIG_FILE ": the file is missing. Copy "
                            "the file of another member, and change its line "
                            "'node'.",
                            disk->path);
    return hf_error_set(error, HF_ESTATE,
                        "%s: no node was initialised here. Initialise a new "
                        "node with --init; to restart one, give its "
                        "directory.",
                        disk->path);
}

enum hf_err hf_config_read(struct hf_config *config, struct hf_disk *disk,
                           struct hf_error *error)
{
    struct hf_disk_file *file = NULL;
    char text[FILE_MAX];
    ssize_t size;
    int rc = disk->ops->open(disk, HF_CONFIG_FILE, &file);

    if (rc == -ENOENT)
        return refuse_without_config(disk, error);
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
                            "a node" REPAIR,
                            disk->path);
    text[size] = '\0';
    *config = (struct hf_config){.election_ms = HF_CONFIG_ELECTION_MS,
                                 .heartbeat_ms = HF_CONFIG_HEARTBEAT_MS,
                                 .table_mib = HF_CONFIG_TABLE_MIB};
    return parse_config(config, text, disk->path, error);
}
