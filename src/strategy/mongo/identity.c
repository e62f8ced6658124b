#include "strategy/mongo/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "strategy/mongo/escape.h"

#define SKIPS_MAX 16 /* LOCKs that skip the fast path after contention */

enum hf_err hf_mongo_identity_init(struct hf_mongo_identity *identity,
                                   struct hf_host *host)
{
    const char *owner = host->ops->owner(host);
    uint8_t id[HF_MONGO_CLIENT_SIZE / 2];
    enum hf_err err = hf_random_bytes(host->ops->random(host), id, sizeof(id));

    if (err)
        return err;
    hf_hex_encode(identity->client, id, sizeof(id));
    identity->owner = hf_mongo_escape_new(owner, strlen(owner));
    return identity->owner ? HF_OK : HF_ENOMEM;
}

void hf_mongo_identity_fini(struct hf_mongo_identity *identity)
{
    free(identity->owner);
    identity->owner = NULL;
}

void hf_mongo_identity_name_command(struct hf_mongo_identity *identity,
                                    char name[HF_MONGO_COMMAND_SIZE + 1])
{
    (void)snprintf(name, HF_MONGO_COMMAND_SIZE + 1, "%s-%llx", identity->client,
                   (unsigned long long)++identity->commands);
}

void hf_mongo_identity_note_contention(struct hf_mongo_identity *identity)
{
    identity->contended = SKIPS_MAX;
}

bool hf_mongo_identity_try_fast_path(struct hf_mongo_identity *identity)
{
    if (identity->contended == 0)
        return true;
    identity->contended--;
    return false;
}
