/* in_process.h - a client of a lock table that is kept in this process: what
 * memory: and file: have in common.
 *
 * The strategy says how to go inside, where the table is as it ought to be and
 * nobody else touches it; here is what is done there: requests are answered,
 * grants and events are found, and told outside, one by one, because who hears
 * of one may ask again at once. */
#ifndef HF_STRATEGY_IN_PROCESS_H
#define HF_STRATEGY_IN_PROCESS_H

#include "core/store.h"
#include "strategy/strategy.h"
#include "strategy/watches.h"

struct hf_in_process {
    const struct hf_in_process_ops *ops;
    struct hf_host *host;
    struct hf_store *store;
    uint64_t session;
    hf_time offset;               /* this client's clock less the store's */
    uint32_t poll_ms;             /* first in line: look so often; 0: no need */
    struct hf_timer expiry_timer; /* while it watches: the next lease ends */
    struct hf_watches watches;
    struct hf_post more;   /* events are left for the next turn */
    uint64_t forced_token; /* the token of a lock of this client's that was
                            broken, HF_ANY_TOKEN: of several; 0: none. Touched
                            inside only */
    bool has_reports;      /* a grant or an event waits to be told */
    bool is_reporting;     /* and is being told */
    bool report_failed;    /* and could not be */
    const char *cause;     /* why the command that was run failed, or NULL */
};

struct hf_in_process_ops {
    /* HF_OK: inside, until leave. */
    enum hf_err (*enter)(struct hf_in_process *local);
    void (*leave)(struct hf_in_process *local);

    /* News could not be told, for what enter said: tell them soon. */
    void (*retry_report)(struct hf_in_process *local);

    /* Inside: run a command of this client. */
    void (*run)(struct hf_in_process *local, hf_time now,
                const struct hf_command *command, struct hf_result *result);

    /* Inside: `key` is about to be read or listed. End its hold if the holder is
     * gone. May be NULL. */
    void (*reap_holder)(struct hf_in_process *local, struct hf_key key);

    /* Inside: a watch is to begin, from event `from` on; the last has ended. */
    enum hf_err (*watch)(struct hf_in_process *local, uint64_t from);
    void (*unwatch)(struct hf_in_process *local);
};

/* The members that are not the host's are the strategy's to set, before or
 * after. HF_ENOMEM. */
enum hf_err hf_in_process_init(struct hf_in_process *local,
                               struct hf_host *host,
                               const struct hf_in_process_ops *ops);
void hf_in_process_fini(struct hf_in_process *local);

/* What a table in this process promises: hf_strategy.caps. */
uint32_t hf_in_process_caps(const void *self);

/* Inside: open the session of this client; end one, its own or another's. */
enum hf_err hf_in_process_open_session(struct hf_in_process *local);
enum hf_err hf_in_process_close_session(struct hf_in_process *local,
                                        uint64_t session);

/* The time by the store's clock. */
hf_time hf_in_process_now(const struct hf_in_process *local);

/* Serve and answer a request; or what enter said, and nothing is done. */
enum hf_err hf_in_process_submit(struct hf_in_process *local,
                                 struct hf_request *request);

/* Report the grants and events that have gathered. Events over the limit of one
 * turn are left for the next one. */
void hf_in_process_report(struct hf_in_process *local);

/* Inside: a lock of this client's was broken. */
void hf_in_process_note_forced(struct hf_in_process *local, uint64_t token);

/* Inside: the store was made anew. What the watches missed shows as dropped. */
void hf_in_process_reset_cursors(struct hf_in_process *local);

#endif
