/* history.h - a ring buffer of the newest events, for watches.
 *
 * Each reader has a cursor, so no events are queued per reader. A reader that
 * is too slow gets a DROPPED event where it missed events. The ring is
 * allocated once, by hf_history_init(), and never grows. */
#ifndef HF_CORE_HISTORY_H
#define HF_CORE_HISTORY_H

#include "base/error.h"
#include "base/limits.h"

/* The first record that starts in a block of HF_HISTORY_MIN bytes. */
struct hf_history_mark {
    uint64_t offset; /* UINT64_MAX: none yet */
    uint64_t index;  /* of its event, or of the next event if it has none */
};

struct hf_history {
    uint8_t *bytes;                /* NULL: no events are kept */
    struct hf_history_mark *marks; /* one for each block of the ring */
    uint64_t size;                 /* of the ring in bytes, a power of two */
    /* Offsets of the oldest record, and of the end of the newest. They only
     * increase; modulo `size` they are positions in the ring. */
    uint64_t oldest;
    uint64_t newest;
    uint64_t first; /* index of the oldest event */
    uint64_t next;  /* index of the next event to be added */
};

struct hf_history_cursor {
    uint64_t offset;
    uint64_t index; /* index of the next event to read */
};

/* Start to keep events in a ring of at least `size` and HF_HISTORY_MIN bytes,
 * rounded up to a power of two; `size` is at most HF_HISTORY_MAX. The first
 * event added must have `index`. Can fail with HF_ENOMEM. */
enum hf_err hf_history_init(struct hf_history *history, size_t size,
                            uint64_t index);
void hf_history_fini(struct hf_history *history);

/* Forget all events. The next event added must have `index`. Cursors stay
 * valid: they read DROPPED if they missed events, and skip events that they
 * have read. */
void hf_history_restart(struct hf_history *history, uint64_t index);

/* Add an event, whose index must be one above that of the last event. */
void hf_history_add(struct hf_history *history, const struct hf_event *event);

/* A cursor at `index`, found in logarithmic time. If the event with `index` is
 * no longer kept, the cursor first reads a DROPPED event. If the event with
 * `index` has not happened yet, the cursor skips all events before it. */
struct hf_history_cursor hf_history_seek(const struct hf_history *history,
                                         uint64_t index);

/* Read the next event, or a DROPPED event. Key and owner are valid until the
 * next hf_history_add(). Returns false if there is no event to read. */
bool hf_history_read(const struct hf_history *history,
                     struct hf_history_cursor *cursor, struct hf_event *event);

#endif
