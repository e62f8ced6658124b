/* directory.h - the directory of a raft node: initialise it, open it.
 *
 *     identity               its cluster and node (identity.h)
 *     lock                   locked while a process uses the directory
 *     log-*, spare-*         the write-ahead log (segment.h)
 *     snapshot-*             snapshots (snapshot_file.h)
 *     reserve                space for the next snapshot (wal.h)
 *     tmp-*                  files that are being made; removed at start
 *     initialising           until the directory is initialised
 *     incarnation            a number that each start raises (src/node)
 *     config, pid            files of the daemon (src/daemon)
 *
 * A node that has lost its directory must not start as the member that it was:
 * it has forgotten its votes, and could vote twice. So opening creates no file
 * but the lock, and initialising is a step of its own. */
#ifndef HF_LOG_DIRECTORY_H
#define HF_LOG_DIRECTORY_H

#include "log/disk.h"
#include "log/identity.h"

/* Initialise an empty directory, with an empty log. The directory stays locked
 * until the disk is closed. `identity->secret` must be random.
 * `identity->segment_size` is a multiple of 512 from HF_WAL_SEGMENT_SIZE_MIN to
 * HF_WAL_SEGMENT_SIZE_MAX, or 0 for HF_WAL_SEGMENT_SIZE.
 *
 * If this is interrupted, it can be repeated.
 *
 * HF_ESTATE  already initialised, or not empty
 * HF_EBUSY   another process uses the directory
 * HF_EINVAL  the node is 0, or the segment size is not allowed
 * HF_ELIMIT, HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_log_directory_init(struct hf_disk *disk,
                                  const struct hf_log_identity *identity,
                                  struct hf_error *error);

/* The same in two steps, for a caller that adds files of its own in between.
 * The directory is initialised when the second step has written the identity.
 * Both get the same identity, with a segment size. */
enum hf_err hf_log_directory_init_begin(struct hf_disk *disk,
                                        const struct hf_log_identity *identity,
                                        struct hf_error *error);
enum hf_err hf_log_directory_init_end(struct hf_disk *disk,
                                      const struct hf_log_identity *identity,
                                      struct hf_error *error);

/* Lock the directory, check that it belongs to `node` of `cluster`, remove
 * temporary files, and fill `*identity`. The directory stays locked until the
 * disk is closed.
 *
 * HF_ESTATE        not initialised
 * HF_EBUSY         another process uses the directory
 * HF_EINVAL        belongs to another cluster or node, or its segment size is
 *                  not allowed
 * HF_EUNSUPPORTED  written by a newer version
 * HF_EPROTO        the identity is damaged
 * HF_ELIMIT, HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_log_directory_open(struct hf_disk *disk,
                                  const struct hf_log_cluster *cluster,
                                  uint64_t node,
                                  struct hf_log_identity *identity,
                                  struct hf_error *error);

#endif
