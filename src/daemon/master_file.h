/* master_file.h - the directory of a master of quorum:.
 *
 *     config        mode, cluster and node (config.h)
 *     master        members, longest lease and mark (quorum/members.h)
 *     pid, lock     which process uses the directory
 *     tmp-master    the next file "master", while it is written
 *     initialising  until the directory is initialised
 *
 * A master that has lost its file must not start as the member that it was: it
 * would promise numbers again that it has promised before. So initialising is a
 * step of its own, and a damaged file is refused. */
#ifndef HF_DAEMON_MASTER_FILE_H
#define HF_DAEMON_MASTER_FILE_H

#include "daemon/config.h"
#include "quorum/members.h"

#define HF_MASTER_FILE "master"

/* Initialise an empty directory, with config and mark 0. The directory stays
 * locked until the disk is closed. If this is interrupted, it can be repeated.
 *
 * HF_ESTATE  already initialised, or not empty
 * HF_EBUSY   another process uses the directory
 * HF_ELIMIT, HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_master_file_init(const struct hf_config *config,
                                struct hf_disk *disk, struct hf_error *error);

/* Lock the directory, read the file, and check that it belongs to the node of
 * `config`, to which it adds the members and the longest lease. The directory
 * stays locked until the disk is closed.
 *
 * HF_ESTATE        the file is missing
 * HF_EBUSY         another process uses the directory
 * HF_EINVAL        belongs to another cluster or node
 * HF_EUNSUPPORTED  written by a newer version
 * HF_EPROTO        damaged
 * HF_ELIMIT, HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_master_file_open(struct hf_members_file *file,
                                struct hf_config *config, struct hf_disk *disk,
                                struct hf_error *error);

/* Replace the file, and make it durable. After a failure, the old file or the
 * new one is there. Blocks. Returns HF_ELIMIT if the disk is full, HF_ESYSTEM
 * or HF_ENOMEM. */
enum hf_err hf_master_file_write(const struct hf_members_file *file,
                                 struct hf_disk *disk, struct hf_error *error);

#endif
