#include "daemon/master_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOCK_FILE "lock"
#define MARKER_FILE "initialising"
#define TMP_PREFIX "tmp-"
#define TMP_FILE TMP_PREFIX HF_MASTER_FILE

_Static_assert(sizeof(struct hf_log_cluster) == HF_MEMBERS_CLUSTER, "cluster");
_Static_assert(HF_ADDRESS_TEXT == HF_MEMBERS_ADDRESS, "addresses");

static enum hf_err lock_master_directory(struct hf_disk *disk,
                                         struct hf_error *error)
{
    int rc = disk->ops->lock(disk, LOCK_FILE);

    if (rc == -EWOULDBLOCK)
        return hf_error_set(error, HF_EBUSY,
                            "%s: another process is using this directory. "
                            "Stop it first, or give this node a directory of "
                            "its own.",
                            disk->path);
    if (rc)
        return hf_disk_error(error, disk, LOCK_FILE, "cannot lock", rc);
    return HF_OK;
}

/* ---- Writing ------------------------------------------------------------*/

static int write_bytes(struct hf_disk *disk, const struct hf_buf *buf)
{
    struct hf_disk_file *file = NULL;
    int rc = disk->ops->remove(disk, TMP_FILE);

    if (rc && rc != -ENOENT)
        return rc;
    rc = disk->ops->create(disk, TMP_FILE, &file);
    if (!rc)
        rc = hf_disk_write(file, 0, buf->data, buf->size);
    if (!rc)
        rc = disk->ops->sync(file);
    hf_disk_close(file);
    return rc ? rc : hf_disk_rename(disk, TMP_FILE, HF_MASTER_FILE);
}

enum hf_err hf_master_file_write(const struct hf_members_file *file,
                                 struct hf_disk *disk, struct hf_error *error)
{
    struct hf_buf buf = {0};
    int rc;

    hf_members_encode_file(file, &buf);
    rc = buf.failed ? -ENOMEM : write_bytes(disk, &buf);
    hf_buf_fini(&buf);
    return rc ? hf_disk_error(error, disk, HF_MASTER_FILE, "cannot write", rc)
              : HF_OK;
}

/* ---- Initialising -------------------------------------------------------*/

struct content {
    bool has_master;
    bool has_marker;
    char other[HF_DISK_NAME]; /* any other file; empty: none */
};

static void on_name(void *arg, const char *name)
{
    struct content *content = arg;

    if (!strcmp(name, LOCK_FILE) ||
        !strncmp(name, TMP_PREFIX, strlen(TMP_PREFIX)))
        return;
    if (!strcmp(name, HF_MASTER_FILE))
        content->has_master = true;
    else if (!strcmp(name, MARKER_FILE))
        content->has_marker = true;
    else
        (void)snprintf(content->other, sizeof(content->other), "%s", name);
}

static enum hf_err read_master_content(struct hf_disk *disk,
                                       struct content *content,
                                       struct hf_error *error)
{
    int rc;

    *content = (struct content){0};
    rc = disk->ops->list(disk, on_name, content);
    return rc ? hf_disk_error(error, disk, "", "cannot list", rc) : HF_OK;
}

static enum hf_err check_master_directory(struct hf_disk *disk,
                                          struct hf_error *error)
{
    struct content content;
    enum hf_err err = read_master_content(disk, &content, error);

    if (err)
        return err;
    if (content.has_master)
        return hf_error_set(error, HF_ESTATE,
                            "%s: already initialised. Start the node without "
                            "initialising it.",
                            disk->path);
    if (*content.other && !content.has_marker)
        return hf_error_set(error, HF_ESTATE,
                            "%s: not empty: it contains %s. Only if no node "
                            "has ever run here, empty it and initialise it "
                            "again.",
                            disk->path, content.other);
    return HF_OK;
}

/* The marker says that no node has ever run here, so that an interrupted
 * initialisation can be repeated. */
static int write_master_marker(struct hf_disk *disk)
{
    struct hf_disk_file *file = NULL;
    int rc = disk->ops->open(disk, MARKER_FILE, &file);

    if (rc == -ENOENT)
        rc = disk->ops->create(disk, MARKER_FILE, &file);
    hf_disk_close(file);
    return rc ? rc : disk->ops->sync_directory(disk);
}

static void fill_file(const struct hf_config *config,
                      struct hf_members_file *file)
{
    struct hf_members *members = &file->members;

    *file = (struct hf_members_file){.node = config->node};
    members->set = 1;
    members->lease_max_ms = config->lease_max_ms;
    members->count = config->member_count;
    memcpy(members->cluster, config->cluster.bytes, sizeof(members->cluster));
    for (size_t i = 0; i < config->member_count; i++) {
        members->masters[i].id = config->members[i].id;
        memcpy(members->masters[i].address, config->members[i].client.text,
               HF_ADDRESS_TEXT);
    }
}

/* An interrupted attempt may have left its config. */
static enum hf_err replace_config(const struct hf_config *config,
                                  struct hf_disk *disk, struct hf_error *error)
{
    int rc = disk->ops->remove(disk, TMP_PREFIX HF_CONFIG_FILE);

    if (rc && rc != -ENOENT)
        return hf_disk_error(error, disk, TMP_PREFIX HF_CONFIG_FILE,
                             "cannot remove", rc);
    return hf_config_write(config, disk, error);
}

enum hf_err hf_master_file_init(const struct hf_config *config,
                                struct hf_disk *disk, struct hf_error *error)
{
    struct hf_members_file file;
    enum hf_err err = lock_master_directory(disk, error);
    int rc;

    if (!err)
        err = check_master_directory(disk, error);
    if (err)
        return err;
    rc = write_master_marker(disk);
    if (rc)
        return hf_disk_error(error, disk, "", "cannot initialise", rc);
    fill_file(config, &file);
    err = replace_config(config, disk, error);
    if (!err)
        err = hf_master_file_write(&file, disk, error);
    if (err)
        return err;
    rc = hf_disk_remove(disk, MARKER_FILE);
    return rc ? hf_disk_error(error, disk, "", "cannot initialise", rc) : HF_OK;
}

/* ---- Opening ------------------------------------------------------------*/

static enum hf_err refuse_missing(struct hf_disk *disk, struct hf_error *error)
{
    struct content content;
    enum hf_err err = read_master_content(disk, &content, error);

    if (err)
        return err;
    if (content.has_marker)
        return hf_error_set(error, HF_ESTATE,
                            "%s: its initialisation was interrupted. "
                            "Initialise it again.",
                            disk->path);
    return hf_error_set(error, HF_ESTATE,
                        "%s/" HF_MASTER_FILE ": the file is missing. Restore "
                        "the last one; otherwise: " HF_DISK_LOST,
                        disk->path);
}

static enum hf_err read_master_file(struct hf_members_file *file,
                                    struct hf_disk *disk,
                                    struct hf_error *error)
{
    char text[HF_MEMBERS_FILE_MAX];
    struct hf_disk_file *opened = NULL;
    enum hf_err err;
    ssize_t size;
    int rc = disk->ops->open(disk, HF_MASTER_FILE, &opened);

    if (rc == -ENOENT)
        return refuse_missing(disk, error);
    if (rc)
        return hf_disk_error(error, disk, HF_MASTER_FILE, "cannot open", rc);
    size = hf_disk_read(opened, 0, text, sizeof(text));
    hf_disk_close(opened);
    if (size < 0)
        return hf_disk_error(error, disk, HF_MASTER_FILE, "cannot read",
                             (int)size);
    err = hf_members_decode_file(file, (struct hf_bytes){text, (size_t)size});
    if (err == HF_EUNSUPPORTED)
        return hf_error_set(error, err,
                            "%s/" HF_MASTER_FILE ": written by a newer "
                            "holdfastd. Upgrade this node.",
                            disk->path);
    if (err == HF_EPROTO)
        return hf_error_set(error, err,
                            "%s/" HF_MASTER_FILE ": damaged. Restore the last "
                            "one; otherwise: " HF_DISK_LOST,
                            disk->path);
    return err ? hf_error_set_code(error, err) : HF_OK;
}

static enum hf_err compare_config(const struct hf_members_file *file,
                                  const struct hf_config *config,
                                  const struct hf_disk *disk,
                                  struct hf_error *error)
{
    if (file->node == config->node &&
        !memcmp(file->members.cluster, config->cluster.bytes,
                sizeof(file->members.cluster)))
        return HF_OK;
    return hf_error_set(error, HF_EINVAL,
                        "%s/" HF_MASTER_FILE ": belongs to node %" PRIu64
                        " of another cluster, or to another node than %" PRIu64
                        ", which is that of " HF_CONFIG_FILE
                        ". Give each node its own directory.",
                        disk->path, file->node, config->node);
}

static enum hf_err add_members(const struct hf_members *members,
                               struct hf_config *config, struct hf_error *error)
{
    enum hf_err err = HF_OK;

    config->lease_max_ms = members->lease_max_ms;
    for (size_t i = 0; !err && i < members->count; i++)
        err = hf_config_add(config, members->masters[i].id, NULL,
                            members->masters[i].address, error);
    return err ? err : hf_config_check(config, error);
}

/* The initialisation was interrupted after its last step but one. */
static enum hf_err remove_master_marker(struct hf_disk *disk,
                                        struct hf_error *error)
{
    struct content content;
    enum hf_err err = read_master_content(disk, &content, error);
    int rc = !err && content.has_marker ? hf_disk_remove(disk, MARKER_FILE) : 0;

    return rc ? hf_disk_error(error, disk, MARKER_FILE, "cannot remove", rc)
              : err;
}

enum hf_err hf_master_file_open(struct hf_members_file *file,
                                struct hf_config *config, struct hf_disk *disk,
                                struct hf_error *error)
{
    enum hf_err err = lock_master_directory(disk, error);

    if (!err)
        err = read_master_file(file, disk, error);
    if (!err)
        err = compare_config(file, config, disk, error);
    if (!err)
        err = add_members(&file->members, config, error);
    return err ? err : remove_master_marker(disk, error);
}
