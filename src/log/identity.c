#include "log/identity.h"

#define MAGIC UINT64_C(0x3144494746482121) /* "!!HFGID1" */
#define CHECKSUM_SIZE 8

static uint64_t identity_checksum(const void *data, size_t size)
{
    static const struct hf_seed zero;

    return hf_siphash(&zero, data, size);
}

void hf_identity_encode(const struct hf_log_identity *identity,
                        struct hf_buf *buf)
{
    hf_buf_u64(buf, MAGIC);
    hf_buf_u32(buf, HF_IDENTITY_VERSION);
    hf_buf_raw(buf, identity->cluster.bytes, sizeof(identity->cluster.bytes));
    hf_buf_u64(buf, identity->node);
    hf_buf_raw(buf, identity->secret.bytes, sizeof(identity->secret.bytes));
    hf_buf_u64(buf, identity->segment_size);
    hf_buf_u64(buf, 0); /* reserved */
    if (!buf->failed)
        hf_buf_u64(buf, identity_checksum(buf->data, buf->size));
}

enum hf_err hf_identity_decode(const void *data, size_t size,
                               struct hf_log_identity *identity,
                               uint32_t *version)
{
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_log_identity decoded;
    uint64_t magic = hf_reader_u64(&reader);
    size_t end = size - CHECKSUM_SIZE;

    *version = hf_reader_u32(&reader);
    if (reader.failed || magic != MAGIC)
        return HF_EPROTO;
    if (*version > HF_IDENTITY_VERSION)
        return HF_EUNSUPPORTED;
    hf_reader_raw(&reader, decoded.cluster.bytes,
                  sizeof(decoded.cluster.bytes));
    decoded.node = hf_reader_u64(&reader);
    hf_reader_raw(&reader, decoded.secret.bytes, sizeof(decoded.secret.bytes));
    decoded.segment_size = hf_reader_u64(&reader);
    (void)hf_reader_u64(&reader);
    if (size != HF_IDENTITY_SIZE ||
        hf_reader_u64(&reader) != identity_checksum(data, end))
        return HF_EPROTO;
    *identity = decoded;
    return HF_OK;
}
