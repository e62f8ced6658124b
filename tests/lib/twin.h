/* twin.h - a stupid twin of the lock table, and what both must agree on.
 *
 * The twin keeps everybody, holders and waiters of all keys, in one array in
 * the order in which they came, and finds things by looking at each. It is
 * slow, it may stop the program where memory runs out, and it is short enough
 * to be read and believed.
 *
 * What can differ is told as a text, or NULL where nothing does; the text is
 * good until the next call. */
#ifndef HF_TESTS_LIB_TWIN_H
#define HF_TESTS_LIB_TWIN_H

#include "core/table.h"

struct hf_twin;

/* An event, with what it is about copied out of the table. */
struct hf_twin_event {
    enum hf_event_kind kind;
    bool waited;
    bool ends;
    uint32_t lease_ms;
    uint64_t index;
    uint64_t token; /* of the hold */
    uint64_t session;
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

/* Apply a command, as hf_table_apply() does with memory to spare. Its events
 * are added to `events`. */
void hf_twin_apply(struct hf_twin *twin, const struct hf_command *command,
                   struct hf_result *result, struct hf_twin_events *events);

/* The grant that `session` has waited longest to hear of, once. */
bool hf_twin_take_grant(struct hf_twin *twin, uint64_t session,
                        struct hf_nonce *nonce, uint64_t *token);

/* Add an event of the table. */
void hf_twin_events_add(struct hf_twin_events *events,
                        const struct hf_table_event *event);
void hf_twin_events_fini(struct hf_twin_events *events);

/* The first difference between two answers, two lists of events, or the whole
 * state of both tables. */
const char *hf_twin_compare_results(const struct hf_result *table,
                                    const struct hf_result *twin);
const char *hf_twin_compare_events(const struct hf_twin_events *table,
                                   const struct hf_twin_events *twin);
const char *hf_twin_compare(const struct hf_twin *twin,
                            const struct hf_table *table);

/* What is always true of a table, or the first thing that is not. */
const char *hf_table_check(const struct hf_table *table);

#endif
