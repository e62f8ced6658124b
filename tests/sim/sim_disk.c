#include "sim/sim_disk_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/container.h"

static struct sim_disk *sim_of(struct hf_disk *disk)
{
    return HF_CONTAINER(disk, struct attached, disk)->sim;
}

static struct sim_inode *inode_of(struct hf_disk_file *file)
{
    return HF_CONTAINER(file, struct handle, file)->inode;
}

void *sim_disk_allocate(size_t size)
{
    void *memory = calloc(1, size);

    HF_ASSERT(memory != NULL);
    return memory;
}

/* ---- Files --------------------------------------------------------------*/

static void grow_version(struct sim_version *version, uint64_t size)
{
    uint64_t capacity = sim_disk_sectors(size) * SIM_DISK_SECTOR;
    uint8_t *data;

    if (capacity <= version->capacity)
        return;
    data = sim_disk_allocate(capacity);
    if (version->capacity > 0)
        memcpy(data, version->data, version->capacity);
    free(version->data);
    version->data = data;
    version->capacity = capacity;
}

void sim_disk_resize_version(struct sim_version *version, uint64_t size)
{
    grow_version(version, size);
    if (size < version->size)
        memset(version->data + size, 0, version->size - size);
    version->size = size;
}

static void mark_dirty(struct sim_inode *inode, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        inode->dirty[i] = true;
    if (inode->dirty_from == inode->dirty_to) {
        inode->dirty_from = from;
        inode->dirty_to = to;
        return;
    }
    if (from < inode->dirty_from)
        inode->dirty_from = from;
    if (to > inode->dirty_to)
        inode->dirty_to = to;
}

void sim_disk_resize_inode(struct sim_inode *inode, uint64_t size)
{
    uint64_t before = inode->seen.capacity / SIM_DISK_SECTOR;
    uint64_t after;
    bool *dirty;

    sim_disk_resize_version(&inode->seen, size);
    after = inode->seen.capacity / SIM_DISK_SECTOR;
    if (after == before)
        return;
    dirty = sim_disk_allocate(after * sizeof(*dirty));
    if (before > 0)
        memcpy(dirty, inode->dirty, before * sizeof(*dirty));
    free(inode->dirty);
    inode->dirty = dirty;
}

static void write_bytes(struct sim_inode *inode, uint64_t offset,
                        const void *from, size_t size)
{
    if (size == 0)
        return;
    if (offset + size > inode->seen.size)
        sim_disk_resize_inode(inode, offset + size);
    if (from)
        memcpy(inode->seen.data + offset, from, size);
    else
        memset(inode->seen.data + offset, 0, size);
    mark_dirty(inode, offset / SIM_DISK_SECTOR,
               sim_disk_sectors(offset + size));
}

void sim_disk_keep_sector(struct sim_inode *inode, uint64_t sector)
{
    uint64_t at = sector * SIM_DISK_SECTOR;

    inode->dirty[sector] = false;
    if (at >= inode->seen.capacity)
        return;
    /* Grow it to its full size at once, and not with each sector. */
    grow_version(&inode->durable, inode->seen.capacity);
    memcpy(inode->durable.data + at, inode->seen.data + at, SIM_DISK_SECTOR);
}

void sim_disk_sync_inode(struct sim_inode *inode)
{
    for (uint64_t i = inode->dirty_from; i < inode->dirty_to; i++) {
        if (inode->dirty[i])
            sim_disk_keep_sector(inode, i);
    }
    inode->dirty_from = inode->dirty_to = 0;
    sim_disk_resize_version(&inode->durable, inode->seen.size);
}

struct sim_inode *sim_disk_new_inode(struct sim_disk *sim)
{
    struct sim_inode **end = &sim->inodes;

    while (*end)
        end = &(*end)->next;
    *end = sim_disk_allocate(sizeof(**end));
    return *end;
}

void sim_disk_free_inode(struct sim_inode *inode)
{
    free(inode->seen.data);
    free(inode->durable.data);
    free(inode->dirty);
    free(inode);
}

/* ---- Names --------------------------------------------------------------*/

/* File systems write changes after a while, even if no program syncs them. */
static void write_oldest_change(struct sim_disk *sim)
{
    sim_disk_apply_change(&sim->durable, &sim->pending[0]);
    sim->pending_count--;
    memmove(&sim->pending[0], &sim->pending[1],
            sim->pending_count * sizeof(sim->pending[0]));
}

static void change_names(struct sim_disk *sim, const char *from, const char *to,
                         struct sim_inode *inode)
{
    struct sim_change *change;

    if (sim->pending_count == SIM_DISK_NAMES_MAX)
        write_oldest_change(sim);
    change = &sim->pending[sim->pending_count++];
    (void)snprintf(change->from, sizeof(change->from), "%s", from);
    (void)snprintf(change->to, sizeof(change->to), "%s", to);
    change->inode = inode;
    sim_disk_apply_change(&sim->seen, change);
}

/* ---- Faults -------------------------------------------------------------*/

/* Count an operation. Returns the error that it must fail with, or 0. */
static int count_op(struct sim_disk *sim, bool is_change)
{
    sim->ops++;
    sim->changes += is_change;
    if (is_change && sim->off_at && sim->changes >= sim->off_at)
        sim->is_off = true;
    if (sim->is_off)
        return -EIO;
    if (sim->fail_at && (sim->ops == sim->fail_at ||
                         (sim->fails_forever && sim->ops > sim->fail_at)))
        return sim->fail_rc;
    return 0;
}

uint64_t sim_disk_used(const struct sim_disk *disk)
{
    uint64_t used = 0;

    for (const struct sim_inode *inode = disk->inodes; inode;
         inode = inode->next)
        used += inode->seen.size;
    return used;
}

static uint64_t space_left(const struct sim_disk *sim)
{
    uint64_t used = sim_disk_used(sim);

    if (sim->capacity == 0)
        return UINT64_MAX / 4;
    return used < sim->capacity ? sim->capacity - used : 0;
}

/* ---- Operations ---------------------------------------------------------*/

static int op_list(struct hf_disk *disk, hf_disk_name_fn *each, void *arg)
{
    struct sim_disk *sim = sim_of(disk);
    int rc = count_op(sim, false);

    for (size_t i = 0; i < sim->seen.count && !rc; i++)
        each(arg, sim->seen.names[i].text);
    return rc;
}

static void open_handle(struct hf_disk *disk, const char *name,
                        struct sim_inode *inode, struct hf_disk_file **file)
{
    struct handle *handle = sim_disk_allocate(sizeof(*handle));

    handle->inode = inode;
    handle->file.disk = disk;
    (void)snprintf(handle->file.name, sizeof(handle->file.name), "%s", name);
    inode->handles++;
    *file = &handle->file;
}

static int op_create(struct hf_disk *disk, const char *name,
                     struct hf_disk_file **file)
{
    struct sim_disk *sim = sim_of(disk);
    struct sim_inode *inode;
    int rc = count_op(sim, true);

    if (rc)
        return rc;
    if (sim_disk_find_name(&sim->seen, name))
        return -EEXIST;
    inode = sim_disk_new_inode(sim);
    change_names(sim, "", name, inode);
    open_handle(disk, name, inode, file);
    return 0;
}

static int op_open(struct hf_disk *disk, const char *name,
                   struct hf_disk_file **file)
{
    struct sim_disk *sim = sim_of(disk);
    struct sim_name *found = sim_disk_find_name(&sim->seen, name);
    int rc = count_op(sim, false);

    if (rc)
        return rc;
    if (!found)
        return -ENOENT;
    open_handle(disk, name, found->inode, file);
    return 0;
}

static void op_close(struct hf_disk_file *file)
{
    struct handle *handle = HF_CONTAINER(file, struct handle, file);

    handle->inode->handles--;
    free(handle);
}

static int op_size(struct hf_disk_file *file, uint64_t *size)
{
    int rc = count_op(sim_of(file->disk), false);

    if (!rc)
        *size = inode_of(file)->seen.size;
    return rc;
}

static ssize_t op_read(struct hf_disk_file *file, uint64_t offset, void *to,
                       size_t size)
{
    const struct sim_version *seen = &inode_of(file)->seen;
    int rc = count_op(sim_of(file->disk), false);

    if (rc)
        return rc;
    if (offset >= seen->size)
        return 0;
    if (size > seen->size - offset)
        size = (size_t)(seen->size - offset);
    memcpy(to, seen->data + offset, size);
    return (ssize_t)size;
}

/* Returns how many of `size` bytes at `offset` can be written within the
 * capacity of the disk. */
static size_t limit_write(const struct sim_disk *sim,
                          const struct sim_inode *inode, uint64_t offset,
                          size_t size)
{
    uint64_t end = inode->seen.size + space_left(sim);

    if (offset + size <= end)
        return size;
    return offset < end ? (size_t)(end - offset) : 0;
}

static ssize_t op_write(struct hf_disk_file *file, uint64_t offset,
                        const void *from, size_t size)
{
    struct sim_disk *sim = sim_of(file->disk);
    struct sim_inode *inode = inode_of(file);
    int rc = count_op(sim, true);

    if (rc)
        return rc;
    size = limit_write(sim, inode, offset, size);
    if (size == 0)
        return -ENOSPC;
    if (sim->short_writes && size > SIM_DISK_SECTOR)
        size = SIM_DISK_SECTOR;
    write_bytes(inode, offset, from, size);
    return (ssize_t)size;
}

static int op_prewrite(struct hf_disk_file *file, uint64_t size)
{
    struct sim_disk *sim = sim_of(file->disk);
    struct sim_inode *inode = inode_of(file);
    uint64_t from = inode->seen.size;
    int rc = count_op(sim, true);

    if (rc || from >= size)
        return rc;
    if (size - from > space_left(sim))
        return -ENOSPC;
    write_bytes(inode, from, NULL, (size_t)(size - from));
    return 0;
}

static int op_truncate(struct hf_disk_file *file, uint64_t size)
{
    struct sim_inode *inode = inode_of(file);
    int rc = count_op(sim_of(file->disk), true);

    if (!rc)
        sim_disk_resize_inode(inode, size);
    return rc;
}

/* After a failed sync, Linux regards the pages as clean: they stay visible, but
 * no later sync writes them. */
static void forget_dirty(struct sim_inode *inode)
{
    for (uint64_t i = inode->dirty_from; i < inode->dirty_to; i++)
        inode->dirty[i] = false;
    inode->dirty_from = inode->dirty_to = 0;
}

static int op_sync(struct hf_disk_file *file)
{
    struct sim_disk *sim = sim_of(file->disk);
    int rc = count_op(sim, true);

    if (rc) {
        if (!sim->is_off)
            forget_dirty(inode_of(file));
        return rc;
    }
    if (sim->on_sync)
        sim->on_sync(sim->on_sync_arg);
    sim_disk_sync_inode(inode_of(file));
    return 0;
}

static int op_sync_directory(struct hf_disk *disk)
{
    struct sim_disk *sim = sim_of(disk);
    int rc = count_op(sim, true);

    if (rc)
        return rc;
    sim->durable = sim->seen;
    sim->pending_count = 0;
    sim_disk_free_unused(sim);
    return 0;
}

static int op_rename(struct hf_disk *disk, const char *from, const char *to)
{
    struct sim_disk *sim = sim_of(disk);
    struct sim_name *name = sim_disk_find_name(&sim->seen, from);
    int rc = count_op(sim, true);

    if (rc)
        return rc;
    if (!name)
        return -ENOENT;
    change_names(sim, from, to, name->inode);
    return 0;
}

static int op_remove(struct hf_disk *disk, const char *name)
{
    struct sim_disk *sim = sim_of(disk);
    int rc = count_op(sim, true);

    if (rc)
        return rc;
    if (!sim_disk_find_name(&sim->seen, name))
        return -ENOENT;
    change_names(sim, name, "", NULL);
    return 0;
}

static int op_space(struct hf_disk *disk, uint64_t *bytes)
{
    struct sim_disk *sim = sim_of(disk);
    int rc = count_op(sim, false);

    if (!rc)
        *bytes = space_left(sim);
    return rc;
}

static int op_lock(struct hf_disk *disk, const char *name)
{
    struct attached *attached = HF_CONTAINER(disk, struct attached, disk);
    int rc = count_op(attached->sim, false);

    (void)name;
    if (rc)
        return rc;
    if (attached->sim->is_locked)
        return -EWOULDBLOCK;
    attached->sim->is_locked = true;
    attached->has_lock = true;
    return 0;
}

static void op_close_directory(struct hf_disk *disk)
{
    struct attached *attached = HF_CONTAINER(disk, struct attached, disk);

    if (attached->has_lock)
        attached->sim->is_locked = false;
    free(attached);
}

static const struct hf_disk_ops sim_ops = {
    .list = op_list,
    .create = op_create,
    .open = op_open,
    .close = op_close,
    .size = op_size,
    .read = op_read,
    .write = op_write,
    .prewrite = op_prewrite,
    .truncate = op_truncate,
    .sync = op_sync,
    .sync_directory = op_sync_directory,
    .rename = op_rename,
    .remove = op_remove,
    .space = op_space,
    .lock = op_lock,
    .close_directory = op_close_directory,
};

/* ---- Programs -----------------------------------------------------------*/

struct hf_disk *sim_disk_attach(struct sim_disk *disk)
{
    struct attached *attached = sim_disk_allocate(sizeof(*attached));

    attached->disk = (struct hf_disk){.ops = &sim_ops, .path = "/sim"};
    attached->sim = disk;
    return &attached->disk;
}
