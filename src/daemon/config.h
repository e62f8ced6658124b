/* config.h - the configuration of a node: the file "config" of its directory.
 *
 *     holdfast-node 1
 *     cluster 8e3f41c2a0a54d5f9d1c3c3c1f9b7a60
 *     node 1
 *     election_ms 500
 *     heartbeat_ms 100
 *     member 1 127.0.0.1:7001 127.0.0.1:7101
 *     member 2 127.0.0.1:7002 127.0.0.1:7102
 *
 * A member has an id, the address for its peers and the address for clients.
 * The file is written once, when the directory is initialised. It is text, so
 * that ports and times can be changed with an editor while the node is stopped;
 * the ids of the members cannot. */
#ifndef HF_DAEMON_CONFIG_H
#define HF_DAEMON_CONFIG_H

#include "base/limits.h"
#include "daemon/address.h"
#include "log/disk.h"
#include "log/identity.h"

#define HF_CONFIG_FILE "config"
#define HF_CONFIG_ELECTION_MS 500
#define HF_CONFIG_HEARTBEAT_MS 100

struct hf_config_member {
    uint64_t id;
    struct hf_address peer;
    struct hf_address client;
};

struct hf_config {
    struct hf_log_cluster cluster;
    uint64_t node;
    uint32_t election_ms;
    uint32_t heartbeat_ms;
    struct hf_config_member members[HF_RAFT_VOTERS_MAX]; /* in order of ids */
    size_t member_count;
};

/* Add a member; config->members stays in order of ids. Returns HF_EINVAL if the
 * id is 0 or given twice, or an address is malformed or not a loopback address,
 * and HF_ELIMIT if there are HF_RAFT_VOTERS_MAX members already. */
enum hf_err hf_config_add(struct hf_config *config, uint64_t id,
                          const char *peer, const char *client,
                          struct hf_error *error);

/* The member with this id, or NULL. */
const struct hf_config_member *hf_config_find(const struct hf_config *config,
                                              uint64_t id);

/* Returns HF_EINVAL if config->node is not a member, two addresses are equal,
 * election_ms is not 10 to 60000, or heartbeat_ms is 0 or not less than half of
 * it. */
enum hf_err hf_config_check(const struct hf_config *config,
                            struct hf_error *error);

/* Write the file of a new directory, and flush it to the disk. Returns
 * HF_ELIMIT if the disk is full, HF_ESYSTEM or HF_ENOMEM. */
enum hf_err hf_config_write(const struct hf_config *config,
                            struct hf_disk *disk, struct hf_error *error);

/* Read and check the file.
 *
 * HF_ESTATE        there is no such file
 * HF_EUNSUPPORTED  written by a newer version
 * HF_EINVAL        malformed, or refused by hf_config_check()
 * HF_ELIMIT        more than HF_RAFT_VOTERS_MAX members
 * HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_config_read(struct hf_config *config, struct hf_disk *disk,
                           struct hf_error *error);

#endif
