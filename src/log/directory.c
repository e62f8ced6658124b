#include "log/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/limits.h"
#include "log/segment.h"

#define LOCK_FILE "lock"
#define MARKER_FILE "initialising" /* from the first file to the identity */
#define TMP_IDENTITY HF_SEGMENT_TMP HF_IDENTITY_FILE
#define TMP_AT_ONCE 16

static enum hf_err lock_node_directory(struct hf_disk *disk,
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

/* ---- What is in a directory ---------------------------------------------*/

struct content {
    bool has_identity;
    bool has_marker;
    /* A file that is neither the identity, the marker, the lock nor temporary.
     * Empty if there is none. */
    char other[HF_DISK_NAME];
    char tmp[TMP_AT_ONCE][HF_DISK_NAME];
    size_t tmp_count;
};

static void on_directory_name(void *arg, const char *name)
{
    struct content *content = arg;

    if (!strcmp(name, LOCK_FILE))
        return;
    if (!strcmp(name, HF_IDENTITY_FILE)) {
        content->has_identity = true;
    } else if (!strcmp(name, MARKER_FILE)) {
        content->has_marker = true;
    } else if (!strncmp(name, HF_SEGMENT_TMP, strlen(HF_SEGMENT_TMP)) &&
               strlen(name) < HF_DISK_NAME) {
        if (content->tmp_count < TMP_AT_ONCE)
            (void)snprintf(content->tmp[content->tmp_count++], HF_DISK_NAME,
                           "%s", name);
    } else {
        (void)snprintf(content->other, HF_DISK_NAME, "%s", name);
    }
}

static enum hf_err read_content(struct hf_disk *disk, struct content *content,
                                struct hf_error *error)
{
    int rc;

    memset(content, 0, sizeof(*content));
    rc = disk->ops->list(disk, on_directory_name, content);
    return rc ? hf_disk_error(error, disk, "", "cannot list", rc) : HF_OK;
}

/* Remove the temporary files that an earlier process has left. */
static enum hf_err remove_temporary(struct hf_disk *disk,
                                    struct hf_error *error)
{
    struct content content;
    enum hf_err err;

    while (!(err = read_content(disk, &content, error)) && content.tmp_count) {
        for (size_t i = 0; i < content.tmp_count; i++) {
            int rc = disk->ops->remove(disk, content.tmp[i]);

            if (rc)
                return hf_disk_error(error, disk, content.tmp[i],
                                     "cannot remove", rc);
        }
    }
    return err;
}

/* ---- Initialising -------------------------------------------------------*/

static enum hf_err check_directory_empty(struct hf_disk *disk,
                                         struct hf_error *error)
{
    struct content content;
    enum hf_err err = read_content(disk, &content, error);

    if (err)
        return err;
    if (content.has_identity)
        return hf_error_set(error, HF_ESTATE,
                            "%s: already initialised. Start the node without "
                            "initialising it.",
                            disk->path);
    if (*content.other && !content.has_marker)
        return hf_error_set(
            error, HF_ESTATE,
            "%s: not empty: it contains %s, but no file " HF_IDENTITY_FILE
            ". Only if no node has ever run here, empty it and initialise it "
            "again.",
            disk->path, content.other);
    return HF_OK;
}

static enum hf_err check_identity(const struct hf_disk *disk,
                                  const struct hf_log_identity *identity,
                                  struct hf_error *error)
{
    uint64_t size = identity->segment_size;

    if (identity->node == 0)
        return hf_error_set(error, HF_EINVAL, "%s: a node id is at least 1",
                            disk->path);
    if (size % HF_RECORD_SECTOR != 0 || size < HF_WAL_SEGMENT_SIZE_MIN ||
        size > HF_WAL_SEGMENT_SIZE_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "%s: the segment size is %" PRIu64
                            "; expected a multiple of %d from %d to %d",
                            disk->path, size, HF_RECORD_SECTOR,
                            HF_WAL_SEGMENT_SIZE_MIN, HF_WAL_SEGMENT_SIZE_MAX);
    return HF_OK;
}

static int write_identity(struct hf_disk *disk,
                          const struct hf_log_identity *identity)
{
    struct hf_disk_file *file = NULL;
    struct hf_buf buf = {0};
    int rc;

    hf_identity_encode(identity, &buf);
    rc = buf.failed ? -ENOMEM : disk->ops->create(disk, TMP_IDENTITY, &file);
    if (!rc)
        rc = hf_disk_write(file, 0, buf.data, buf.size);
    if (!rc)
        rc = disk->ops->sync(file);
    hf_disk_close(file);
    hf_buf_fini(&buf);
    return rc ? rc : hf_disk_rename(disk, TMP_IDENTITY, HF_IDENTITY_FILE);
}

/* Without the identity, a directory with other files may be one of a member
 * that has lost the identity. The marker says that no node has ever run in it,
 * so that an interrupted initialisation can be repeated. */
static int write_marker(struct hf_disk *disk)
{
    struct hf_disk_file *file = NULL;
    int rc = disk->ops->open(disk, MARKER_FILE, &file);

    if (rc == -ENOENT)
        rc = disk->ops->create(disk, MARKER_FILE, &file);
    hf_disk_close(file);
    return rc ? rc : disk->ops->sync_directory(disk);
}

static int write_first_segment(struct hf_disk *disk,
                               const struct hf_log_identity *identity)
{
    struct hf_disk_file *file = NULL;
    int rc = hf_segment_prepare(disk, identity, 1, NULL, &file);

    if (!rc)
        hf_disk_close(file);
    return rc;
}

enum hf_err hf_log_directory_init_begin(struct hf_disk *disk,
                                        const struct hf_log_identity *identity,
                                        struct hf_error *error)
{
    enum hf_err err = check_identity(disk, identity, error);
    int rc;

    if (!err)
        err = lock_node_directory(disk, error);
    if (!err)
        err = check_directory_empty(disk, error);
    if (!err)
        err = remove_temporary(disk, error);
    if (err)
        return err;
    rc = write_marker(disk);
    if (!rc)
        rc = write_first_segment(disk, identity);
    return rc ? hf_disk_error(error, disk, "", "cannot initialise", rc) : HF_OK;
}

enum hf_err hf_log_directory_init_end(struct hf_disk *disk,
                                      const struct hf_log_identity *identity,
                                      struct hf_error *error)
{
    int rc = write_identity(disk, identity);

    if (!rc)
        rc = hf_disk_remove(disk, MARKER_FILE);
    return rc ? hf_disk_error(error, disk, "", "cannot initialise", rc) : HF_OK;
}

enum hf_err hf_log_directory_init(struct hf_disk *disk,
                                  const struct hf_log_identity *identity,
                                  struct hf_error *error)
{
    struct hf_log_identity completed = *identity;
    enum hf_err err;

    if (completed.segment_size == 0)
        completed.segment_size = HF_WAL_SEGMENT_SIZE;
    err = hf_log_directory_init_begin(disk, &completed, error);
    return err ? err : hf_log_directory_init_end(disk, &completed, error);
}

/* ---- Opening ------------------------------------------------------------*/

static enum hf_err refuse_uninitialised(struct hf_disk *disk,
                                        struct hf_error *error)
{
    struct content content;
    enum hf_err err = read_content(disk, &content, error);

    if (err)
        return err;
    if (content.has_marker)
        return hf_error_set(error, HF_ESTATE,
                            "%s: its initialisation was interrupted. "
                            "Initialise it again.",
                            disk->path);
    if (*content.other)
        return hf_error_set(
            error, HF_ESTATE,
            "%s: the file " HF_IDENTITY_FILE " is missing, but there are "
            "others, such as %s. Restore this file, which never changes; "
            "otherwise: " HF_DISK_LOST,
            disk->path, content.other);
    return hf_error_set(
        error, HF_ESTATE,
        "%s: not initialised. If this node is new, initialise the directory. "
        "If it was a member before: " HF_DISK_LOST,
        disk->path);
}

static enum hf_err read_identity(struct hf_disk *disk,
                                 struct hf_log_identity *identity,
                                 struct hf_error *error)
{
    uint8_t data[HF_IDENTITY_SIZE + 1];
    struct hf_disk_file *file;
    uint32_t version = 0;
    enum hf_err err;
    ssize_t got;
    int rc = disk->ops->open(disk, HF_IDENTITY_FILE, &file);

    if (rc == -ENOENT)
        return refuse_uninitialised(disk, error);
    if (rc)
        return hf_disk_error(error, disk, HF_IDENTITY_FILE, "cannot open", rc);
    got = hf_disk_read(file, 0, data, sizeof(data));
    hf_disk_close(file);
    if (got < 0)
        return hf_disk_error(error, disk, HF_IDENTITY_FILE, "cannot read",
                             (int)got);
    err = hf_identity_decode(data, (size_t)got, identity, &version);
    if (err == HF_EUNSUPPORTED)
        return hf_error_set(error, err,
                            "%s/" HF_IDENTITY_FILE ": version %" PRIu32
                            " is newer than this program, which knows %d: "
                            "upgrade this node first",
                            disk->path, version, HF_IDENTITY_VERSION);
    if (err)
        return hf_error_set(error, err,
                            "%s/" HF_IDENTITY_FILE
                            ": damaged. Restore this file, which never "
                            "changes; otherwise: " HF_DISK_LOST,
                            disk->path);
    return check_identity(disk, identity, error);
}

static enum hf_err compare_identity(const struct hf_disk *disk,
                                    const struct hf_log_identity *identity,
                                    const struct hf_log_cluster *cluster,
                                    uint64_t node, struct hf_error *error)
{
    char found[2 * sizeof(cluster->bytes) + 1];
    char expected[sizeof(found)];

    if (identity->node == node &&
        !memcmp(&identity->cluster, cluster, sizeof(*cluster)))
        return HF_OK;
    hf_hex_encode(found, identity->cluster.bytes, sizeof(cluster->bytes));
    hf_hex_encode(expected, cluster->bytes, sizeof(cluster->bytes));
    return hf_error_set(error, HF_EINVAL,
                        "%s: belongs to node %" PRIu64
                        " of cluster %s; expected node %" PRIu64
                        " of cluster %s. Check the configured directory.",
                        disk->path, identity->node, found, node, expected);
}

/* The initialisation was interrupted after its last step but one. */
static enum hf_err remove_marker(struct hf_disk *disk, struct hf_error *error)
{
    struct content content;
    enum hf_err err = read_content(disk, &content, error);
    int rc = !err && content.has_marker ? hf_disk_remove(disk, MARKER_FILE) : 0;

    return rc ? hf_disk_error(error, disk, MARKER_FILE, "cannot remove", rc)
              : err;
}

enum hf_err hf_log_directory_open(struct hf_disk *disk,
                                  const struct hf_log_cluster *cluster,
                                  uint64_t node,
                                  struct hf_log_identity *identity,
                                  struct hf_error *error)
{
    struct hf_log_identity found = {0};
    enum hf_err err = lock_node_directory(disk, error);

    if (!err)
        err = read_identity(disk, &found, error);
    if (!err)
        err = compare_identity(disk, &found, cluster, node, error);
    if (!err)
        err = remove_temporary(disk, error);
    if (!err)
        err = remove_marker(disk, error);
    if (!err)
        *identity = found;
    return err;
}
