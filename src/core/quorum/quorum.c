#include "core/quorum/quorum.h"

#include "base/sha256.h"

struct hf_claim_id hf_claim_id_of(const struct hf_nonce *nonce)
{
    uint8_t hash[HF_SHA256_SIZE];
    struct hf_claim_id id;

    hf_sha256(hash, nonce->bytes, sizeof(nonce->bytes));
    memcpy(id.bytes, hash, sizeof(id.bytes));
    return id;
}
