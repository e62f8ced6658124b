/* incarnation.h - a number that is higher at each start of the node: the file
 * "incarnation".
 *
 * Every frame to another node carries this number, so that the receiver
 * recognizes frames of an earlier process. The number must be durable before
 * the first frame is sent. The file has two slots that are overwritten in turn,
 * so that a crash leaves one of them, and no space is needed on a full disk. */
#ifndef HF_NODE_INCARNATION_H
#define HF_NODE_INCARNATION_H

#include "log/disk.h"

/* Raise the number in the file, durably, and return it in `*incarnation`. The
 * first is 1; only the first start of a node may create the file. Blocks. Fails
 * if the file is missing otherwise, if both slots are damaged, or if the file
 * cannot be read or written. */
enum hf_err hf_incarnation_raise(struct hf_disk *disk, bool is_first_start,
                                 uint64_t *incarnation, struct hf_error *error);

#endif
