/* bounds.h - how far a run explores. */
#ifndef HF_MODEL_QUORUM_BOUNDS_H
#define HF_MODEL_QUORUM_BOUNDS_H

#include "state.h"

#include <stdio.h>

struct hf_bounds {
    uint8_t claims;
    uint8_t updaters;              /* of the value of claim A */
    uint8_t ballots[CLIENTS_MAX];  /* how many each client may use */
    uint8_t renewals[CLIENTS_MAX]; /* renewals and repairs of each claim */
    uint8_t ends[CLIENTS_MAX];     /* 0: the claim does not unlock or give up */
    uint8_t first_numbers[CLIENTS_MAX]; /* first ballots are 1 to this */
    uint8_t restarts;                   /* of all masters together */
    uint8_t drops; /* of records, by all masters together */
    uint8_t reads;
    uint8_t no_fast; /* 1: no claim is held by votes alone */
    uint8_t slow;    /* 1: a claim may ask for slow votes */
    uint8_t no_time; /* 1: time does not pass, no validity ends */
    uint8_t outcome; /* 1: check only what clients can see */
};

/* Set once, before the first state. */
extern struct hf_bounds hf_bounds;

/* The bounds without any option: two claims, one ballot each, no failures. */
struct hf_bounds hf_bounds_default(void);

/* Set the bound with this name, as in "--ballots", from the text of a number or
 * of a list; `text` is NULL for a bound without a value. Returns false if the
 * text is wrong. */
bool hf_bounds_set(struct hf_bounds *bounds, const char *name,
                   const char *text);

/* Returns true if there are as many clients as a state has room for. */
bool hf_bounds_fit(const struct hf_bounds *bounds);

/* Print the bounds as options, without those that have their default. */
void hf_bounds_print(const struct hf_bounds *bounds, FILE *out);

/* ---- clients ------------------------------------------------------------ */

static inline uint8_t client_count(void)
{
    return (uint8_t)(hf_bounds.claims + hf_bounds.updaters);
}

static inline bool is_updater(uint8_t client)
{
    return client >= hf_bounds.claims && client < client_count();
}

/* The claim for which a client acts. */
static inline uint8_t claim_of(uint8_t client)
{
    return is_updater(client) ? 0 : client;
}

#endif
