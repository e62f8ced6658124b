/* incarnation.h - how often the node was started: the file "incarnation".
 *
 * Every frame to another node carries this number, so that the receiver
 * recognizes frames of an earlier process. The number must be durable before
 * the first frame is sent. */
#ifndef HF_NODE_INCARNATION_H
#define HF_NODE_INCARNATION_H

#include "log/disk.h"

/* Add 1 to the number in the file, durably, and return the sum in
 * `*incarnation`. The first is 1. Blocks. Fails if the file is damaged, or
 * cannot be read or written. */
enum hf_err hf_incarnation_raise(struct hf_disk *disk, uint64_t *incarnation,
                                 struct hf_error *error);

#endif
