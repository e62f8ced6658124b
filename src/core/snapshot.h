/* snapshot.h - a whole lock table as bytes.
 *
 * Decoding survives any input: it builds a table that keeps every promise of
 * table.h or answers HF_EPROTO and leaves none. A checksum finds accidents;
 * that every number fits every other is checked besides, because a checksum
 * can be forged. What the driver keeps (leases) is not part of it: every lease
 * starts again, in full, from hold->lease_ms. */
#ifndef HF_CORE_SNAPSHOT_H
#define HF_CORE_SNAPSHOT_H

#include "core/table.h"

/* A failed `buf` says that memory ran out. */
void hf_snapshot_encode(const struct hf_table *table, struct hf_buf *buf);

/* Fill `table`, which is fresh from hf_table_init(). On HF_EPROTO and
 * HF_ENOMEM it is as fresh as before. No event is told. */
enum hf_err hf_snapshot_decode(struct hf_table *table, const void *data,
                               size_t size);

#endif
