/* identity.h - the file "identity", which says to which cluster and node a
 * directory belongs.
 *
 * It is written once, when the directory is initialised. A log of another
 * cluster or node, or a snapshot of another cluster, is refused: a node that
 * starts with the log of another one could vote twice in one term. */
#ifndef HF_LOG_IDENTITY_H
#define HF_LOG_IDENTITY_H

#include "base/buf.h"
#include "base/siphash.h"

#define HF_IDENTITY_FILE "identity"
#define HF_IDENTITY_SIZE 76
#define HF_IDENTITY_VERSION 1

struct hf_log_cluster {
    uint8_t bytes[16];
};

struct hf_log_identity {
    struct hf_log_cluster cluster;
    uint64_t node;
    struct hf_seed secret; /* keys the checksums of records; see record.h */
    uint64_t segment_size;
};

void hf_identity_encode(const struct hf_log_identity *identity,
                        struct hf_buf *buf);

/* Decode a whole file. `*version` is the version of its format. Returns
 * HF_EUNSUPPORTED if that is newer than HF_IDENTITY_VERSION, HF_EPROTO if the
 * file is damaged. */
enum hf_err hf_identity_decode(const void *data, size_t size,
                               struct hf_log_identity *identity,
                               uint32_t *version);

#endif
