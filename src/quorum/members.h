/* members.h - the members of a quorum, and the file of a master.
 *
 * The file is text:
 *
 *     holdfast-master 1
 *     cluster 8e3f41c2a0a54d5f9d1c3c3c1f9b7a60
 *     node 1
 *     lease_max_ms 60000
 *     set 1
 *     master 1 127.0.0.1:7001
 *     master 2 127.0.0.1:7002
 *     mark 4294967296
 *     checksum 61b1ec9d5e5d4f4b
 *
 * The mark is above every number that the master has promised. A master that
 * started with an older mark could promise a number twice, so the file is not
 * for editors: the checksum is that of all lines before it. */
#ifndef HF_QUORUM_MEMBERS_H
#define HF_QUORUM_MEMBERS_H

#include "base/buf.h"
#include "base/limits.h"
#include "base/time.h"

#define HF_MEMBERS_ADDRESS 64 /* bytes of an address, with its NUL */
#define HF_MEMBERS_CLUSTER 16 /* bytes of the id of a cluster */
#define HF_MEMBERS_FILE_MAX 4096
#define HF_MEMBERS_VERSION 1

struct hf_member {
    uint64_t id;
    char address[HF_MEMBERS_ADDRESS]; /* "host:port", for clients */
};

/* The same at every member, except while it changes. */
struct hf_members {
    uint8_t cluster[HF_MEMBERS_CLUSTER];
    uint64_t set;          /* rises with each change; from 1 */
    uint32_t lease_max_ms; /* longer leases are refused */
    struct hf_member masters[HF_QUORUM_MASTERS_MAX]; /* in order of ids */
    size_t count;
};

/* The master with this id, or NULL. */
const struct hf_member *hf_members_find(const struct hf_members *members,
                                        uint64_t id);

/* Append the members as in the reply to HELLO, see wire/mux.h. */
void hf_members_write(const struct hf_members *members, struct hf_buf *buf);

/* What the file of a master contains. */
struct hf_members_file {
    struct hf_members members;
    uint64_t node; /* whose file it is, one of the masters */
    uint64_t mark;
};

void hf_members_encode_file(const struct hf_members_file *file,
                            struct hf_buf *buf);

/* Decode a whole file. Returns HF_EUNSUPPORTED if a newer version has written
 * it, HF_EPROTO for anything else that hf_members_encode_file() does not write,
 * or HF_ENOMEM. */
enum hf_err hf_members_decode_file(struct hf_members_file *file,
                                   struct hf_bytes bytes);

#endif
