/* twin.h - a naive twin of the lock table, to compare the table with.
 *
 * The twin keeps all holders and waiters of all keys in one array, in the order
 * of their arrival, and searches it linearly. It is slow, and aborts if memory
 * runs out, but it is short enough to be obviously correct.
 *
 * The compare functions return NULL, or a text about the first difference,
 * which is valid until the next call. */
#ifndef HF_TESTS_LIB_TWIN_H
#define HF_TESTS_LIB_TWIN_H

#include "core/table.h"

struct hf_twin;

/* An event, with copies of the data that it refers to. */
struct hf_twin_event {
    enum hf_event_kind kind;
    bool waited;
    bool ends;
    uint32_t lease_ms;
    uint64_t index;
    uint64_t token; /* token of the hold */
    uint64_t session;
    struct hf_nonce granted; /* nonce of a claim that was granted after a wait;
                                otherwise zero */
    size_t key_size;
    uint8_t key[HF_KEY_MAX];
};

struct hf_twin_events {
    struct hf_twin_event *list;
    size_t count;
    size_t capacity;
};

struct hf_twin *hf_twin_new(void);
void hf_twin_free(struct hf_twin *twin);

/* Apply a command, like hf_table_apply() with enough memory. Its events are
 * appended to `events`. */
void hf_twin_apply(struct hf_twin *twin, const struct hf_command *command,
                   struct hf_result *result, struct hf_twin_events *events);

/* Append an event of the table. */
void hf_twin_events_add(struct hf_twin_events *events,
                        const struct hf_table_event *event);
void hf_twin_events_fini(struct hf_twin_events *events);

/* The first difference between two results, two lists of events, or the states
 * of both tables. */
const char *hf_twin_compare_results(const struct hf_result *table,
                                    const struct hf_result *twin);
const char *hf_twin_compare_events(const struct hf_twin_events *table,
                                   const struct hf_twin_events *twin);
const char *hf_twin_compare(const struct hf_twin *twin,
                            const struct hf_table *table);

/* Check the invariants of a table. Returns NULL, or a text about the first
 * violation. */
const char *hf_table_check(const struct hf_table *table);

#endif
