/* sim_disk.h - a disk in memory that loses and tears what was not synced.
 *
 * It keeps two versions of every file and of the directory: what programs see,
 * and what is durable. `sync` copies the bytes and the size of a file, and
 * `sync_directory` the names. sim_disk_crash() throws away what programs see,
 * except for those sectors, sizes and names that the pattern lets through, in
 * any combination: a rename may survive without the bytes of its file, and one
 * sector of a write without its neighbours.
 *
 * One thread uses a disk. The disk outlives the simulated programs that use it:
 * each program calls sim_disk_attach(), as it would open a real directory. */
#ifndef HF_TESTS_SIM_SIM_DISK_H
#define HF_TESTS_SIM_SIM_DISK_H

#include "log/disk.h"

#define SIM_DISK_SECTOR 512
#define SIM_DISK_NAMES_MAX 256

struct sim_disk;

/* What of the unsynced changes survives a crash. Sectors are numbered over all
 * files, in the order of files and offsets; a new size comes after the sectors
 * of its file. Changes of names are numbered separately, in their order. */
enum sim_crash {
    SIM_CRASH_LOSE, /* nothing */
    SIM_CRASH_KEEP, /* everything: it becomes durable */
    SIM_CRASH_PREFIX,
    SIM_CRASH_SUFFIX,
    SIM_CRASH_EVEN,
    SIM_CRASH_ODD,
    SIM_CRASH_FIRST,
    SIM_CRASH_LAST,
    SIM_CRASH_RANDOM, /* by the seed */
    SIM_CRASH_PATTERNS = SIM_CRASH_RANDOM,
    SIM_CRASH_PROCESS, /* everything, but it does not become durable: only the
                          process has died, and a later crash may lose it */
};

struct sim_disk *sim_disk_new(void);
void sim_disk_free(struct sim_disk *disk);

/* Copy the disk, without its faults. No file may be open. */
struct sim_disk *sim_disk_clone(const struct sim_disk *disk);

/* Open the directory. */
struct hf_disk *sim_disk_attach(struct sim_disk *disk);

/* ---- Faults -------------------------------------------------------------
 *
 * Operations are counted from 1; sim_disk_ops() is the number so far. Changes
 * are creating, writing, prewriting, truncating, syncing, renaming and
 * removing. Other operations do not change the disk. */
uint64_t sim_disk_ops(const struct sim_disk *disk);
uint64_t sim_disk_changes(const struct sim_disk *disk);

/* The power fails at change number `change`: it and all later operations return
 * -EIO and do nothing. 0: never. */
void sim_disk_power_off_at(struct sim_disk *disk, uint64_t change);
bool sim_disk_is_off(const struct sim_disk *disk);

/* Operation number `op` returns `rc`, and all later ones too if `forever`; with
 * `op` 0, none fails. If it syncs a file, the unsynced bytes do not become
 * durable, unless they are written again. */
void sim_disk_fail_at(struct sim_disk *disk, uint64_t op, int rc, bool forever);

/* With `on`, each write transfers at most one sector. */
void sim_disk_short_writes(struct sim_disk *disk, bool on);

/* Limit all files together to `bytes`; 0: no limit. */
void sim_disk_set_capacity(struct sim_disk *disk, uint64_t bytes);
uint64_t sim_disk_capacity(const struct sim_disk *disk);
uint64_t sim_disk_used(const struct sim_disk *disk);

/* Call `hook` at the start of every sync of a file that does not fail. A slow
 * sync is a hook that advances a simulated clock. */
void sim_disk_on_sync(struct sim_disk *disk, void (*hook)(void *arg),
                      void *arg);

/* Lose unsynced changes as `pattern` says, turn the power on again, forget all
 * faults but the capacity, and count operations from 1 again. `seed` is for
 * SIM_CRASH_RANDOM. No program may be attached. */
void sim_disk_crash(struct sim_disk *disk, enum sim_crash pattern,
                    uint64_t seed);

/* ---- Damage -------------------------------------------------------------*/

/* Read or change a file directly, both what programs see and what is durable.
 * The file must exist, except for sim_disk_has(), and everything must be
 * synced. */
uint64_t sim_disk_file_size(const struct sim_disk *disk, const char *name);
uint8_t sim_disk_peek(const struct sim_disk *disk, const char *name,
                      uint64_t offset);
void sim_disk_poke(struct sim_disk *disk, const char *name, uint64_t offset,
                   uint8_t byte);
void sim_disk_resize(struct sim_disk *disk, const char *name, uint64_t size);
void sim_disk_delete(struct sim_disk *disk, const char *name);
bool sim_disk_has(const struct sim_disk *disk, const char *name);

#endif
