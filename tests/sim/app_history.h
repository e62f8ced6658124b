/* app_history.h - the times in the history of simulated applications. */
#ifndef HF_TESTS_SIM_APP_HISTORY_H
#define HF_TESTS_SIM_APP_HISTORY_H

#include "sim/apps.h"

/* The simulated time in nanoseconds. Each call returns more than the last. */
uint64_t apps_history_now(struct apps *apps);

/* The simulated time at which the application's clock shows `local`. */
uint64_t apps_history_instant(const struct app *app, hf_time local);

#endif
