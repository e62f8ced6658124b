/* membership.h - the voters of a cluster, as the bytes of an entry of the kind
 * HF_ENTRY_CHANGE.
 *
 * The bytes are those of libraft's configuration: the library decodes them
 * itself, and does not check bounds, so everything from outside is checked here
 * first. The configuration has an address for each server, which is not used to
 * connect: it is the id in decimal. */
#ifndef HF_RAFT_MEMBERSHIP_H
#define HF_RAFT_MEMBERSHIP_H

#include "base/buf.h"
#include "base/limits.h"

struct hf_membership {
    uint64_t voters[HF_RAFT_VOTERS_MAX]; /* in increasing order */
    size_t count;
};

/* Returns true if `members` has 1 to HF_RAFT_VOTERS_MAX ids in increasing
 * order, none of them 0. */
bool hf_membership_is_valid(const struct hf_membership *members);

bool hf_membership_has(const struct hf_membership *members, uint64_t id);

/* Append the encoding of `members` to `buf`. Equal members give equal bytes. */
void hf_membership_encode(struct hf_buf *buf,
                          const struct hf_membership *members);

/* Decode `bytes`, all of them. Returns HF_EPROTO if they are not the encoding
 * of valid members. */
enum hf_err hf_membership_decode(struct hf_bytes bytes,
                                 struct hf_membership *members);

#endif
