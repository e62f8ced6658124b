/* sim_disk_internal.h - what the sources of the simulated disk share. */
#ifndef HF_TESTS_SIM_SIM_DISK_INTERNAL_H
#define HF_TESTS_SIM_SIM_DISK_INTERNAL_H

#include "sim/sim_disk.h"

/* A version of the content of a file. */
struct sim_version {
    uint8_t *data; /* zeros after `size` */
    uint64_t size;
    uint64_t capacity; /* whole sectors */
};

struct sim_inode {
    struct sim_inode *next;
    struct sim_version seen, durable;
    bool *dirty;                   /* not synced, by sector of `seen` */
    uint64_t dirty_from, dirty_to; /* sectors outside are clean */
    unsigned handles;
    bool is_marked;
    struct sim_inode *copy; /* its copy, while the disk is being cloned */
};

struct sim_name {
    char text[HF_DISK_NAME];
    struct sim_inode *inode;
};

struct sim_directory {
    struct sim_name names[SIM_DISK_NAMES_MAX];
    size_t count;
};

/* A change of names that is not durable: `from` disappears, `to` appears.
 * Either may be empty. */
struct sim_change {
    char from[HF_DISK_NAME], to[HF_DISK_NAME];
    struct sim_inode *inode;
};

struct sim_disk {
    struct sim_inode *inodes; /* oldest first */
    struct sim_directory seen, durable;
    struct sim_change pending[SIM_DISK_NAMES_MAX];
    size_t pending_count;
    bool is_locked, is_off;
    uint64_t ops, changes;
    uint64_t off_at, fail_at;
    int fail_rc;
    bool fails_forever, short_writes;
    uint64_t capacity;
    void (*on_sync)(void *arg);
    void *on_sync_arg;
};

struct attached {
    struct hf_disk disk;
    struct sim_disk *sim;
    bool has_lock;
};

struct handle {
    struct hf_disk_file file;
    struct sim_inode *inode;
};

static inline uint64_t sim_disk_sectors(uint64_t size)
{
    return (size + SIM_DISK_SECTOR - 1) / SIM_DISK_SECTOR;
}

/* calloc() that aborts if memory is exhausted. */
void *sim_disk_allocate(size_t size);

struct sim_inode *sim_disk_new_inode(struct sim_disk *sim);
void sim_disk_free_inode(struct sim_inode *inode);

/* sim_disk_resize_inode() resizes the version of a file that programs see.
 * sim_disk_resize_version() resizes any version. */
void sim_disk_resize_inode(struct sim_inode *inode, uint64_t size);
void sim_disk_resize_version(struct sim_version *version, uint64_t size);

/* sim_disk_keep_sector() makes one sector durable, and sim_disk_sync_inode()
 * all sectors and the size. */
void sim_disk_keep_sector(struct sim_inode *inode, uint64_t sector);
void sim_disk_sync_inode(struct sim_inode *inode);

struct sim_name *sim_disk_find_name(const struct sim_directory *directory,
                                    const char *text);
void sim_disk_drop_name(struct sim_directory *directory, const char *text);
void sim_disk_apply_change(struct sim_directory *directory,
                           const struct sim_change *change);

/* Free the files that have no name and are not open. */
void sim_disk_free_unused(struct sim_disk *sim);

#endif
