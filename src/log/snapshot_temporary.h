/* snapshot_temporary.h - the file that becomes a snapshot when it is complete.
 *
 * A writer and a transfer fill it; at start, the files of a process that was
 * killed meanwhile are removed. */
#ifndef HF_LOG_SNAPSHOT_TEMPORARY_H
#define HF_LOG_SNAPSHOT_TEMPORARY_H

#include "log/disk.h"

/* Open the temporary file `name`. It is the reserve under a new name, so that
 * writing needs no space on the disk, or a new file if there is no reserve. */
enum hf_err hf_snapshot_temporary_open(struct hf_disk *disk, const char *name,
                                       struct hf_disk_file **file,
                                       struct hf_error *error);

/* Close and remove the file. */
void hf_snapshot_temporary_drop(struct hf_disk_file *file);

enum hf_err hf_snapshot_temporary_write(struct hf_disk_file *file,
                                        uint64_t offset, const void *data,
                                        size_t size, struct hf_error *error);

/* Make the complete file durable, and give it the name of the snapshot at
 * `index`. The file may have been a longer reserve; it is cut to `size`
 * bytes. */
enum hf_err hf_snapshot_temporary_publish(struct hf_disk_file *file,
                                          uint64_t size, uint64_t index,
                                          struct hf_error *error);

#endif
