/* app_faults.h - what goes wrong between simulated applications and nodes; see
 * node_faults.h. */
#ifndef HF_TESTS_SIM_APP_FAULTS_H
#define HF_TESTS_SIM_APP_FAULTS_H

#include "sim/apps.h"
#include "sim/node_faults.h"

/* What is due for an application. */
struct app_faults_due {
    struct sim_event heal; /* its cuts end */
    struct sim_event lose; /* its connections break, and it is cut off, */
    uint32_t pause_ms;     /* or paused for this long; 0: it is not */
    hf_time until;         /* until when that lasts */
    struct apps *apps;
    unsigned number;
};

struct app_faults {
    struct apps *apps;
    struct app_faults_due due[SIM_APPS];
};

/* Add the faults of applications to those of nodes. */
void app_faults_init(struct app_faults *faults, struct apps *apps,
                     struct node_faults *nodes);

/* End all faults except drifting clocks. */
void app_faults_end(struct app_faults *faults);

#endif
