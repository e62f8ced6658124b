/* snapshot.h - encode a whole lock table as bytes, and restore it.
 *
 * Decoding is safe for any input: it builds a table that keeps all promises of
 * table.h, or it returns HF_EPROTO. The checksum detects accidental damage;
 * because it can be forged, decoding also checks that all numbers are
 * consistent. A snapshot has the version of its table; decoding returns
 * HF_EUNSUPPORTED if that is newer than HF_VERSION_NEWEST. The snapshot does
 * not contain the deadlines, which the driver keeps: after decoding, each
 * lease starts again with hold->lease_ms. */
#ifndef HF_CORE_SNAPSHOT_H
#define HF_CORE_SNAPSHOT_H

#include "core/table.h"

/* Equal tables are encoded to equal bytes: tables that have applied the same
 * commands, whatever their seeds, and no matter how often each was restored.
 * buf->failed is set if memory runs out. */
void hf_snapshot_encode(const struct hf_table *table, struct hf_buf *buf);

/* Returns a number of bytes that hf_snapshot_encode() does not exceed. */
size_t hf_snapshot_size_max(const struct hf_table *table);

/* Returns the version of an encoded table; 0 if `data` is none. */
uint8_t hf_snapshot_version(const void *data, size_t size);

/* Restore `table`, which must be empty. On HF_EPROTO, HF_EUNSUPPORTED and
 * HF_ENOMEM the table is empty afterwards. Reports no events. */
enum hf_err hf_snapshot_decode(struct hf_table *table, const void *data,
                               size_t size);

#endif
