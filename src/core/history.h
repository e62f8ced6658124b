/* history.h - the newest events, for watchers: a ring of bytes.
 *
 * Each reader keeps a cursor of its own, so nothing is queued per reader, and
 * one that is too slow sees where events were dropped. The ring's memory is
 * taken once. */
#ifndef HF_CORE_HISTORY_H
#define HF_CORE_HISTORY_H

#include "base/error.h"
#include "base/limits.h"

struct hf_history {
    uint8_t *bytes;  /* HF_HISTORY_BYTES of them; NULL: nothing is kept yet */
    uint64_t oldest; /* offsets of the oldest record and of the end; they */
    uint64_t newest; /* only rise, and are taken modulo the size */
    uint64_t first;  /* indexes of the oldest record */
    uint64_t next;   /* and of the next one to be added */
};

struct hf_history_cursor {
    uint64_t offset;
    uint64_t index; /* of the next event it wants */
};

/* Begin to keep events; the next one added has `index`. */
enum hf_err hf_history_init(struct hf_history *history, uint64_t index);
void hf_history_fini(struct hf_history *history);

/* Add an event, whose index is one more than the last one's. */
void hf_history_add(struct hf_history *history, const struct hf_event *event);

/* A cursor that begins at `index`; what is not kept any more shows as
 * dropped, and what is not yet there is waited for. */
struct hf_history_cursor hf_history_seek(const struct hf_history *history,
                                         uint64_t index);

/* The next event, whose key and owner stay in place until the next
 * hf_history_add(), or a DROPPED mark. False: there is none. */
bool hf_history_read(const struct hf_history *history,
                     struct hf_history_cursor *cursor, struct hf_event *event);

#endif
