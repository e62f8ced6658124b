/* config.h - the configuration of a node: the file "config" of its directory.
 *
 *     holdfast-node 1
 *     cluster 8e3f41c2a0a54d5f9d1c3c3c1f9b7a60
 *     node 1
 *     election_ms 500
 *     heartbeat_ms 100
 *     table_mib 1024
 *     member 1 127.0.0.1:7001 127.0.0.1:7101
 *     member 2 127.0.0.1:7002 127.0.0.1:7102
 *
 * A member has an id, the address for its peers and the address for clients.
 * The file is written once, when the directory is initialised. It is text, so
 * that ports, times and table_mib can be changed with an editor while the node
 * is stopped. The ids cannot be changed.
 *
 * This is the file of a node of raft:. A master of quorum: has the line "mode
 * quorum", no times and no members: those are in the file "master"
 * (master_file.h), because all members change them together. */
#ifndef HF_DAEMON_CONFIG_H
#define HF_DAEMON_CONFIG_H

#include "base/limits.h"
#include "daemon/address.h"
#include "log/disk.h"
#include "log/identity.h"

#define HF_CONFIG_FILE "config"
#define HF_CONFIG_ELECTION_MS 500
#define HF_CONFIG_HEARTBEAT_MS 100
#define HF_CONFIG_TABLE_MIB 1024

enum hf_mode {
    HF_MODE_RAFT,
    HF_MODE_QUORUM,
};

struct hf_config_member {
    uint64_t id;
    struct hf_address peer; /* text "": none, as in mode quorum */
    struct hf_address client;
};

struct hf_config {
    enum hf_mode mode;
    struct hf_log_cluster cluster;
    uint64_t node;
    uint32_t election_ms;  /* mode raft */
    uint32_t heartbeat_ms; /* mode raft */
    uint32_t table_mib;
    uint32_t lease_max_ms; /* mode quorum; not in the file */
    struct hf_config_member members[HF_RAFT_VOTERS_MAX]; /* in order of ids */
    size_t member_count;
};

/* Returns false if `text` is not a decimal number up to `max`. */
bool hf_config_parse_number(const char *text, uint64_t max, uint64_t *number);

/* Returns false if `text` is not the name of a mode. */
bool hf_config_parse_mode(const char *text, enum hf_mode *mode);

/* Returns false if `text` is not the id of a cluster, 32 hexadecimal digits. */
bool hf_config_parse_cluster(const char *text, struct hf_log_cluster *cluster);

/* Split `text`: an id, separators[0], an address for peers, separators[1], an
 * address for clients. `*peer` and `*client` point into `text`, which is
 * modified. Returns false if a part is missing or the id is not a number. */
bool hf_config_split_member(char *text, const char *separators, uint64_t *id,
                            char **peer, char **client);

/* Add a member; config->members stays in order of ids. `peer` is NULL for a
 * member without such an address. Returns HF_EINVAL if the id is 0 or given
 * twice, or if an address is malformed or not a loopback address, and HF_ELIMIT
 * if there are HF_RAFT_VOTERS_MAX members already. */
enum hf_err hf_config_add(struct hf_config *config, uint64_t id,
                          const char *peer, const char *client,
                          struct hf_error *error);

/* The member with this id, or NULL. */
const struct hf_config_member *hf_config_find(const struct hf_config *config,
                                              uint64_t id);

/* Returns HF_EINVAL if config->node is not a member, two addresses are equal, a
 * member lacks a peer address in mode raft or has one in mode quorum, or a time
 * or table_mib is out of range. In mode quorum, the list of members may be
 * empty, because the caller reads them from another file later. */
enum hf_err hf_config_check(const struct hf_config *config,
                            struct hf_error *error);

/* Write the file of a new directory, and flush it to the disk. Returns
 * HF_ELIMIT if the disk is full, HF_ESYSTEM or HF_ENOMEM. */
enum hf_err hf_config_write(const struct hf_config *config,
                            struct hf_disk *disk, struct hf_error *error);

/* Read and check the file. In mode quorum, the caller adds the members.
 *
 * HF_ESTATE        there is no such file
 * HF_EUNSUPPORTED  written by a newer version
 * HF_EINVAL        malformed, or refused by hf_config_check()
 * HF_ELIMIT        more than HF_RAFT_VOTERS_MAX members
 * HF_ESYSTEM, HF_ENOMEM */
enum hf_err hf_config_read(struct hf_config *config, struct hf_disk *disk,
                           struct hf_error *error);

#endif
