/* schedule.h - simulated time: events that happen at their times, and nothing
 * in between.
 *
 * Events of the same time happen in the order in which they were scheduled, so
 * that a seed reproduces a run. An event is embedded in what it belongs to. */
#ifndef HF_TESTS_SIM_SCHEDULE_H
#define HF_TESTS_SIM_SCHEDULE_H

#include "base/heap.h"

struct sim_event {
    struct hf_heap_link link;
    void (*fire)(struct sim_event *event);
};

struct sim_schedule {
    struct hf_heap heap;
    hf_time now;
    uint64_t order;
    uint64_t fired; /* events so far */
};

/* A zeroed struct is an empty schedule. */
void sim_schedule_fini(struct sim_schedule *schedule);

/* Fire `event` at `at`, or now if `at` has passed. An event that is scheduled
 * already moves to `at`. */
void sim_schedule_set(struct sim_schedule *schedule, struct sim_event *event,
                      hf_time at);
void sim_schedule_cancel(struct sim_schedule *schedule,
                         struct sim_event *event);

/* Fire the next event. If none is due by `until`, set the clock to `until` and
 * return false. */
bool sim_schedule_step(struct sim_schedule *schedule, hf_time until);

#endif
