/* snapshot_format.h - the bytes of a snapshot file.
 *
 *      0  header: magic, version, size of the configuration, cluster, index,
 *         term, index of the configuration, size of the data, checksum of the
 *         body, checksum of the header; then zeros
 *    512  body: configuration, data
 *
 * Other versions keep magic, version and checksum of the header where they
 * are. */
#ifndef HF_LOG_SNAPSHOT_FORMAT_H
#define HF_LOG_SNAPSHOT_FORMAT_H

#include "log/snapshot_file.h"

#define HF_SNAPSHOT_FORMAT_VERSION 1
#define HF_SNAPSHOT_FORMAT_START 512
#define HF_SNAPSHOT_FORMAT_BLOCK 65536
#define HF_SNAPSHOT_FORMAT_NAME "snapshot-"

struct hf_snapshot_header {
    uint32_t version;
    uint32_t config_size;
    struct hf_log_cluster cluster;
    uint64_t index, term, config_index;
    uint64_t data_size;
    uint64_t body_sum;
};

void hf_snapshot_format_encode(const struct hf_snapshot_header *header,
                               uint8_t to[HF_SNAPSHOT_FORMAT_START]);

/* Returns HF_EUNSUPPORTED for a newer version, HF_EPROTO for a damaged
 * header. */
enum hf_err hf_snapshot_format_decode(
    const uint8_t from[HF_SNAPSHOT_FORMAT_START],
    struct hf_snapshot_header *header);

/* The size of the whole file. */
uint64_t hf_snapshot_format_size(const struct hf_snapshot_header *header);

/* The checksum of a body, computed block by block: the sum of a block is keyed
 * with the sum of the block before it, and with the block's number. All blocks
 * but the last have HF_SNAPSHOT_FORMAT_BLOCK bytes. Start with zeros; `sum` is
 * the checksum of the blocks so far. */
struct hf_snapshot_sum {
    uint64_t sum;
    uint64_t blocks;
};

void hf_snapshot_format_sum(struct hf_snapshot_sum *sum, const void *block,
                            size_t size);

/* Read and verify a whole file, and fill `*header`. Returns HF_EPROTO if it is
 * damaged, HF_EINVAL if it is of another cluster, HF_EUNSUPPORTED if it is of a
 * newer version, HF_ESYSTEM or HF_ENOMEM. */
enum hf_err hf_snapshot_format_verify(struct hf_disk_file *file,
                                      const struct hf_log_cluster *cluster,
                                      struct hf_snapshot_header *header,
                                      struct hf_error *error);

#endif
