/* segment.h - the files of the write-ahead log.
 *
 *     log-EPOCH       a segment of the log; epochs are consecutive
 *     spare-NUMBER    a file that is ready to become a segment
 *     tmp-...         a file that is being made; removed at start
 *
 * Segments and spare files have the same size. A file gets its name log-EPOCH
 * only after its header is durable, so a segment with an invalid header is a
 * damaged one. A segment made from an older one contains records of its old
 * epoch, which are not valid in the new one; an epoch is never used twice.
 * Other versions keep the first 68 bytes of the header: magic, version, ...,
 * checksum. */
#ifndef HF_LOG_SEGMENT_H
#define HF_LOG_SEGMENT_H

#include "log/disk.h"
#include "log/identity.h"
#include "log/record.h"

#define HF_SEGMENT_VERSION 1
#define HF_SEGMENT_START HF_RECORD_SECTOR /* the offset of the first record */

/* Prefixes of file names. In a segment or a spare file, 16 hexadecimal digits
 * follow. */
#define HF_SEGMENT_LOG "log-"
#define HF_SEGMENT_SPARE "spare-"
#define HF_SEGMENT_TMP "tmp-"

void hf_segment_name(char name[HF_DISK_NAME], const char *prefix,
                     uint64_t number);

/* Set `*number` to the number in `name`. Returns false if `name` is not
 * `prefix` and a number. */
bool hf_segment_parse(const char *name, const char *prefix, uint64_t *number);

/* Make segment `epoch` from the spare file `spare`, or from a new file if
 * `spare` is NULL. On success `*file` is open and its name is durable. Returns
 * 0 or a negative errno value. */
int hf_segment_prepare(struct hf_disk *disk,
                       const struct hf_log_identity *identity, uint64_t epoch,
                       const char *spare, struct hf_disk_file **file);

/* Make the spare file `name` of `size` bytes. If the disk is full, no part of
 * the file remains. Returns 0 or a negative errno value. */
int hf_segment_make_spare(struct hf_disk *disk, uint64_t size,
                          const char *name);

/* Check the header of segment `epoch`, which was read from `file` into `data`,
 * and the file's `size`. Returns HF_EPROTO if the file is damaged, HF_EINVAL if
 * it belongs to another cluster or node, HF_EUNSUPPORTED for a newer
 * version. */
enum hf_err hf_segment_check(const struct hf_disk_file *file,
                             const uint8_t *data, uint64_t size,
                             const struct hf_log_identity *identity,
                             uint64_t epoch, struct hf_error *error);

#endif
