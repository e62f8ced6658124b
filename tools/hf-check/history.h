/* history.h - a recorded history: operations and events of many clients.
 *
 * Events are client deaths, locks reported as lost, and notes by the nemesis
 * (the fault injector). format.md describes the file format; decoder.h and
 * encoder.h read and write it. check.h decides whether a history is correct. */
#ifndef HF_CHECK_TOOL_HISTORY_H
#define HF_CHECK_TOOL_HISTORY_H

#include "op.h"

struct hf_op_death {
    uint64_t time;
    uint32_t client;
};

/* The library reported to `client` that its lock is lost: no longer valid. */
struct hf_op_lost {
    uint64_t time, token;
    uint32_t client, key;
};

struct hf_op_note {
    uint64_t time;
    uint32_t text;
};

struct hf_check_history {
    struct hf_intern strings;
    struct hf_op *ops;
    size_t op_count, op_room;
    struct hf_op_death *deaths;
    size_t death_count, death_room;
    struct hf_op_lost *losts;
    size_t lost_count, lost_room;
    struct hf_op_note *notes;
    size_t note_count, note_room;
    bool fifo;     /* the service promises to grant in order of arrival */
    bool no_fence; /* it does not promise that tokens rise: see check.h */
};

void hf_check_history_init(struct hf_check_history *h, bool fifo);
void hf_check_history_fini(struct hf_check_history *h);

/* Append a copy of `op`. Returns its index. */
size_t hf_check_history_add(struct hf_check_history *h, const struct hf_op *op);
void hf_check_history_add_death(struct hf_check_history *h,
                                struct hf_op_death death);
void hf_check_history_add_lost(struct hf_check_history *h,
                               struct hf_op_lost lost);
void hf_check_history_add_note(struct hf_check_history *h,
                               struct hf_op_note note);

/* Return when each client died, sorted by client, for
 * hf_check_history_find_death(). The recorded instant is just before the kill
 * was sent, so a client may act after it; such a client died at its last act.
 * The caller frees the list. */
struct hf_op_death *hf_check_history_deaths(const struct hf_check_history *h,
                                            size_t *count);

/* Return the death of `client`, or NULL if it did not die. */
struct hf_op_death *hf_check_history_find_death(struct hf_op_death *deaths,
                                                size_t count, uint32_t client);

#endif
