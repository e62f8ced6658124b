/* incarnation.h - how often the node was started: the file "incarnation".
 *
 * Frames carry it, so that those of an earlier process are recognised. It must
 * be durable before the first frame is sent. */
#ifndef HF_NODE_INCARNATION_H
#define HF_NODE_INCARNATION_H

#include "log/disk.h"

/* Read the number, add 1, and make that durable. Blocks. */
enum hf_err hf_incarnation_raise(struct hf_disk *disk, uint64_t *incarnation,
                                 struct hf_error *error);

#endif
