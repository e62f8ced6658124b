/* identity.h - how a client identifies itself and its commands in documents.
 *
 * The identity also records contention: a client whose LOCK met another client
 * skips the fast path for a while. Used in the client's context only. */
#ifndef HF_STRATEGY_MONGO_IDENTITY_H
#define HF_STRATEGY_MONGO_IDENTITY_H

#include "strategy/strategy.h"

#define HF_MONGO_CLIENT_SIZE 16 /* hex digits of a client id */
#define HF_MONGO_COMMAND_SIZE (HF_MONGO_CLIENT_SIZE + 1 + 16)

struct hf_mongo_identity {
    char client[HF_MONGO_CLIENT_SIZE + 1]; /* random, so it is unique */
    char *owner;                           /* escaped */
    uint64_t commands;                     /* the number of the last command */
    unsigned contended; /* how many of the next LOCKs skip the fast path */
};

/* Can fail with HF_ENOMEM, and with HF_ESYSTEM if the kernel has no random
 * bytes for the client id. */
enum hf_err hf_mongo_identity_init(struct hf_mongo_identity *identity,
                                   struct hf_host *host);
void hf_mongo_identity_fini(struct hf_mongo_identity *identity);

/* Write the name of the next command, "CLIENT-NUMBER". No two commands of any
 * clients have the same name. */
void hf_mongo_identity_name_command(struct hf_mongo_identity *identity,
                                    char name[HF_MONGO_COMMAND_SIZE + 1]);

/* Record that a LOCK on the fast path met another client, so that the next
 * LOCKs skip the fast path. */
void hf_mongo_identity_note_contention(struct hf_mongo_identity *identity);

/* Decide whether the next LOCK tries the fast path, and count that LOCK: each
 * call that returns false uses up one of the LOCKs to skip. */
bool hf_mongo_identity_try_fast_path(struct hf_mongo_identity *identity);

#endif
