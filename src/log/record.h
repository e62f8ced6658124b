/* record.h - the records of the write-ahead log as bytes.
 *
 * A record is what one flush writes: all entries, and the term and the vote
 * that are durable with them. It is valid as a whole or not at all.
 *
 *      0  checksum of everything after it, up to the end of the last sector
 *      8  magic
 *     12  size of header and items
 *     16  epoch of the segment
 *     24  checksum of the previous record
 *     32  term, vote                         after this record
 *     48  index and term of the last entry   before this record
 *     64  items, then zeros up to the next multiple of HF_RECORD_SECTOR
 *
 * An item is a series of entries (remove all entries from `index` on, then
 * append these), or a base (remove all entries; the log continues after this
 * snapshot). Numbers are little-endian.
 *
 * The checksum is keyed with a secret of the directory, so that no client can
 * write a value that looks like a record. */
#ifndef HF_LOG_RECORD_H
#define HF_LOG_RECORD_H

#include "base/buf.h"
#include "base/siphash.h"

#define HF_RECORD_SECTOR 512
#define HF_RECORD_HEADER 64
#define HF_RECORD_ITEM 13  /* bytes of an item of entries, without entries */
#define HF_RECORD_ENTRY 13 /* bytes of an entry, without its data */
#define HF_RECORD_BASE 17  /* bytes of a base */

struct hf_log_entry {
    uint64_t term;
    uint8_t kind; /* of the consensus library; not interpreted here */
    struct hf_bytes data;
};

/* The state of the log at some point, without its entries. */
struct hf_log_state {
    uint64_t term;
    uint64_t vote;       /* the node voted for in `term`, or 0 */
    uint64_t last_index; /* of the last entry, or of the snapshot */
    uint64_t last_term;
};

/* The header of a record. */
struct hf_record {
    uint64_t checksum;
    uint32_t size;
    uint64_t epoch;
    uint64_t previous;
    struct hf_log_state state;
};

/* Receives the content of the log, in order. */
struct hf_log_visitor {
    /* The log is empty now, and continues after this index and term. */
    void (*base)(void *arg, uint64_t index, uint64_t term);

    /* Entry `index`. It replaces an entry with the same index and all entries
     * after that one. `entry` is borrowed for the call. */
    enum hf_err (*entry)(void *arg, uint64_t index,
                         const struct hf_log_entry *entry);
    void *arg;
};

/* The bytes that a record of `size` bytes occupies on the disk. */
static inline size_t hf_record_padded(size_t size)
{
    return (size + HF_RECORD_SECTOR - 1) & ~(size_t)(HF_RECORD_SECTOR - 1);
}

/* ---- Writing ------------------------------------------------------------*/

/* Start a record in `buf`, which is empty. This and the next three functions
 * set buf->failed if memory is exhausted. */
void hf_record_start(struct hf_buf *buf);

/* Add an item of `count` entries; `index` is the index of the first one. */
void hf_record_add_entries(struct hf_buf *buf, uint64_t index,
                           const struct hf_log_entry *entries, size_t count);
/* Add an item that is a base: the entry `index` of `term`. */
void hf_record_add_base(struct hf_buf *buf, uint64_t index, uint64_t term);

/* Append zeros up to the next multiple of HF_RECORD_SECTOR. */
void hf_record_pad(struct hf_buf *buf);

/* Compute record->checksum, and fill in the header of `data`, a record of
 * `padded` bytes, from `*record`. May be called again if the write is
 * repeated. */
void hf_record_seal(uint8_t *data, size_t padded, struct hf_record *record,
                    const struct hf_seed *secret);

/* ---- Reading ------------------------------------------------------------*/

/* Returns true if `data`, which has `available` bytes, begins with a valid
 * record of the segment `epoch`. If so, fills `*record`. */
bool hf_record_check(const uint8_t *data, size_t available, uint64_t epoch,
                     const struct hf_seed *secret, struct hf_record *record);

/* Pass the items of a valid record to `visitor`, and change `*state`, which is
 * the state before the record, to the state after it. Returns HF_EPROTO if an
 * item is malformed or the record does not fit `*state`; otherwise the first
 * error of the visitor. */
enum hf_err hf_record_replay(const uint8_t *data,
                             const struct hf_record *record,
                             struct hf_log_state *state,
                             const struct hf_log_visitor *visitor);

#endif
