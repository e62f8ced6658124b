/* sim_disk_crash.c - names, faults, crashes, copies and damage of the simulated
 * disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/random.h"
#include "sim/sim_disk_internal.h"

struct sim_disk *sim_disk_new(void)
{
    return sim_disk_allocate(sizeof(struct sim_disk));
}

void sim_disk_free(struct sim_disk *disk)
{
    while (disk->inodes) {
        struct sim_inode *inode = disk->inodes;

        disk->inodes = inode->next;
        sim_disk_free_inode(inode);
    }
    free(disk);
}

/* ---- Names --------------------------------------------------------------*/

struct sim_name *sim_disk_find_name(const struct sim_directory *directory,
                                    const char *text)
{
    for (size_t i = 0; i < directory->count; i++) {
        if (!strcmp(directory->names[i].text, text))
            return (struct sim_name *)&directory->names[i];
    }
    return NULL;
}

void sim_disk_drop_name(struct sim_directory *directory, const char *text)
{
    struct sim_name *name = sim_disk_find_name(directory, text);

    if (name)
        *name = directory->names[--directory->count];
}

static void set_name(struct sim_directory *directory, const char *text,
                     struct sim_inode *inode)
{
    struct sim_name *name = sim_disk_find_name(directory, text);

    if (!name) {
        HF_ASSERT(directory->count < SIM_DISK_NAMES_MAX);
        name = &directory->names[directory->count++];
        (void)snprintf(name->text, sizeof(name->text), "%s", text);
    }
    name->inode = inode;
}

void sim_disk_apply_change(struct sim_directory *directory,
                           const struct sim_change *change)
{
    if (*change->from)
        sim_disk_drop_name(directory, change->from);
    if (*change->to)
        set_name(directory, change->to, change->inode);
}

static void mark_names(const struct sim_directory *directory)
{
    for (size_t i = 0; i < directory->count; i++)
        directory->names[i].inode->is_marked = true;
}

void sim_disk_free_unused(struct sim_disk *sim)
{
    struct sim_inode **at = &sim->inodes;

    for (struct sim_inode *inode = sim->inodes; inode; inode = inode->next)
        inode->is_marked = inode->handles > 0;
    mark_names(&sim->seen);
    mark_names(&sim->durable);
    for (size_t i = 0; i < sim->pending_count; i++) {
        if (sim->pending[i].inode)
            sim->pending[i].inode->is_marked = true;
    }
    while (*at) {
        struct sim_inode *inode = *at;

        if (inode->is_marked) {
            at = &inode->next;
            continue;
        }
        *at = inode->next;
        sim_disk_free_inode(inode);
    }
}

/* ---- Faults -------------------------------------------------------------*/

uint64_t sim_disk_ops(const struct sim_disk *disk)
{
    return disk->ops;
}

uint64_t sim_disk_changes(const struct sim_disk *disk)
{
    return disk->changes;
}

void sim_disk_power_off_at(struct sim_disk *disk, uint64_t change)
{
    disk->off_at = change;
}

bool sim_disk_is_off(const struct sim_disk *disk)
{
    return disk->is_off;
}

void sim_disk_fail_at(struct sim_disk *disk, uint64_t op, int rc, bool forever)
{
    disk->fail_at = op;
    disk->fail_rc = rc;
    disk->fails_forever = forever;
}

void sim_disk_short_writes(struct sim_disk *disk, bool on)
{
    disk->short_writes = on;
}

void sim_disk_set_capacity(struct sim_disk *disk, uint64_t bytes)
{
    disk->capacity = bytes;
}

uint64_t sim_disk_capacity(const struct sim_disk *disk)
{
    return disk->capacity;
}

void sim_disk_on_sync(struct sim_disk *disk, void (*hook)(void *arg), void *arg)
{
    disk->on_sync = hook;
    disk->on_sync_arg = arg;
}

/* ---- Crashes ------------------------------------------------------------*/

/* Decides for one change after another whether it survives a crash. */
struct chooser {
    enum sim_crash pattern;
    uint64_t count, at;
    struct hf_random random;
};

static bool choose(struct chooser *chooser)
{
    uint64_t at = chooser->at++;

    switch (chooser->pattern) {
    case SIM_CRASH_LOSE:
        return false;
    case SIM_CRASH_KEEP:
    case SIM_CRASH_PROCESS:
        return true;
    case SIM_CRASH_PREFIX:
        return at < (chooser->count + 1) / 2;
    case SIM_CRASH_SUFFIX:
        return at >= chooser->count / 2;
    case SIM_CRASH_EVEN:
        return at % 2 == 0;
    case SIM_CRASH_ODD:
        return at % 2 == 1;
    case SIM_CRASH_FIRST:
        return at == 0;
    case SIM_CRASH_LAST:
        return at + 1 == chooser->count;
    case SIM_CRASH_RANDOM:
        break;
    }
    return hf_random_below(&chooser->random, 2) == 1;
}

static uint64_t count_dirty(const struct sim_disk *disk)
{
    uint64_t count = 0;

    for (struct sim_inode *inode = disk->inodes; inode; inode = inode->next) {
        for (uint64_t i = inode->dirty_from; i < inode->dirty_to; i++)
            count += inode->dirty[i];
    }
    return count;
}

static void copy_version(struct sim_version *to, const struct sim_version *from)
{
    free(to->data);
    *to = *from;
    to->data = NULL;
    if (from->capacity == 0)
        return;
    to->data = sim_disk_allocate(from->capacity);
    memcpy(to->data, from->data, from->capacity);
}

static void crash_inode(struct sim_inode *inode, struct chooser *chooser)
{
    uint64_t size = inode->durable.size;

    for (uint64_t i = inode->dirty_from; i < inode->dirty_to; i++) {
        if (inode->dirty[i] && choose(chooser))
            sim_disk_keep_sector(inode, i);
    }
    if (inode->seen.size != size && choose(chooser))
        size = inode->seen.size;
    /* Clear the bytes after the size, although sectors there may have been
     * kept: a file system reads them as zeros. */
    inode->durable.size = inode->durable.capacity;
    sim_disk_resize_version(&inode->durable, size);
    copy_version(&inode->seen, &inode->durable);
    free(inode->dirty);
    inode->dirty = sim_disk_allocate(
        (inode->seen.capacity / SIM_DISK_SECTOR + 1) * sizeof(*inode->dirty));
    inode->dirty_from = inode->dirty_to = 0;
}

/* A change survives. If an earlier change of the same file does not, the file
 * still has only one name, because renaming never makes a second one. */
static void keep_change(struct sim_disk *disk, const struct sim_change *change)
{
    struct sim_directory *names = &disk->durable;

    for (size_t i = names->count; change->inode && i > 0; i--) {
        if (names->names[i - 1].inode == change->inode)
            sim_disk_drop_name(names, names->names[i - 1].text);
    }
    sim_disk_apply_change(names, change);
}

static void lose_unsynced(struct sim_disk *disk, enum sim_crash pattern,
                          uint64_t seed)
{
    struct chooser names = {.pattern = pattern, .count = disk->pending_count};
    struct chooser sectors = {.pattern = pattern, .count = count_dirty(disk)};

    hf_random_init(&names.random, 2 * seed + 1);
    hf_random_init(&sectors.random, 2 * seed + 2);
    for (size_t i = 0; i < disk->pending_count; i++) {
        if (choose(&names))
            keep_change(disk, &disk->pending[i]);
    }
    for (struct sim_inode *inode = disk->inodes; inode; inode = inode->next)
        crash_inode(inode, &sectors);
    disk->seen = disk->durable;
    disk->pending_count = 0;
}

void sim_disk_crash(struct sim_disk *disk, enum sim_crash pattern,
                    uint64_t seed)
{
    HF_ASSERT(!disk->is_locked);
    if (pattern != SIM_CRASH_PROCESS)
        lose_unsynced(disk, pattern, seed);
    disk->is_off = false;
    disk->ops = disk->changes = 0;
    disk->off_at = disk->fail_at = 0;
    disk->short_writes = false;
    disk->on_sync = NULL;
    sim_disk_free_unused(disk);
}

/* ---- Copies -------------------------------------------------------------*/

static void copy_inode(struct sim_inode *to, const struct sim_inode *from)
{
    size_t sectors = from->seen.capacity / SIM_DISK_SECTOR + 1;

    HF_ASSERT(from->handles == 0);
    copy_version(&to->seen, &from->seen);
    copy_version(&to->durable, &from->durable);
    to->dirty = sim_disk_allocate(sectors * sizeof(*to->dirty));
    if (from->dirty)
        memcpy(to->dirty, from->dirty, (sectors - 1) * sizeof(*to->dirty));
    to->dirty_from = from->dirty_from;
    to->dirty_to = from->dirty_to;
}

static void copy_names(struct sim_directory *to,
                       const struct sim_directory *from)
{
    *to = *from;
    for (size_t i = 0; i < to->count; i++)
        to->names[i].inode = from->names[i].inode->copy;
}

struct sim_disk *sim_disk_clone(const struct sim_disk *disk)
{
    struct sim_disk *copy = sim_disk_new();

    for (struct sim_inode *inode = disk->inodes; inode; inode = inode->next) {
        inode->copy = sim_disk_new_inode(copy);
        copy_inode(inode->copy, inode);
    }
    copy_names(&copy->seen, &disk->seen);
    copy_names(&copy->durable, &disk->durable);
    copy->pending_count = disk->pending_count;
    for (size_t i = 0; i < disk->pending_count; i++) {
        copy->pending[i] = disk->pending[i];
        if (disk->pending[i].inode)
            copy->pending[i].inode = disk->pending[i].inode->copy;
    }
    return copy;
}

/* ---- Damage -------------------------------------------------------------*/

bool sim_disk_has(const struct sim_disk *disk, const char *name)
{
    return sim_disk_find_name(&disk->seen, name) != NULL;
}

static struct sim_inode *inode_named(const struct sim_disk *disk,
                                     const char *name)
{
    struct sim_name *found = sim_disk_find_name(&disk->seen, name);

    HF_ASSERT(found != NULL);
    return found->inode;
}

uint64_t sim_disk_file_size(const struct sim_disk *disk, const char *name)
{
    return inode_named(disk, name)->seen.size;
}

uint8_t sim_disk_peek(const struct sim_disk *disk, const char *name,
                      uint64_t offset)
{
    const struct sim_inode *inode = inode_named(disk, name);

    HF_ASSERT(offset < inode->seen.size);
    return inode->seen.data[offset];
}

void sim_disk_poke(struct sim_disk *disk, const char *name, uint64_t offset,
                   uint8_t byte)
{
    struct sim_inode *inode = inode_named(disk, name);

    HF_ASSERT(offset < inode->seen.size);
    HF_ASSERT(offset < inode->durable.size);
    inode->seen.data[offset] = byte;
    inode->durable.data[offset] = byte;
}

void sim_disk_resize(struct sim_disk *disk, const char *name, uint64_t size)
{
    struct sim_inode *inode = inode_named(disk, name);

    sim_disk_resize_inode(inode, size);
    sim_disk_resize_version(&inode->durable, size);
}

void sim_disk_delete(struct sim_disk *disk, const char *name)
{
    sim_disk_drop_name(&disk->seen, name);
    sim_disk_drop_name(&disk->durable, name);
}
