#include "sim/schedule.h"

#include "lib/runner.h"

/* A key of the heap is the time in milliseconds, followed by this many bits for
 * the order of scheduling. */
#define ORDER_BITS 20

void sim_schedule_fini(struct sim_schedule *schedule)
{
    hf_heap_fini(&schedule->heap);
    *schedule = (struct sim_schedule){0};
}

void sim_schedule_set(struct sim_schedule *schedule, struct sim_event *event,
                      hf_time at)
{
    hf_time order = (hf_time)(schedule->order++ % (1 << ORDER_BITS));

    if (at < schedule->now)
        at = schedule->now;
    assert_int_equal(
        hf_heap_reserve(&schedule->heap, schedule->heap.count + 64), HF_OK);
    hf_heap_set(&schedule->heap, &event->link, at * (1 << ORDER_BITS) + order);
}

void sim_schedule_cancel(struct sim_schedule *schedule, struct sim_event *event)
{
    hf_heap_drop(&schedule->heap, &event->link);
}

bool sim_schedule_step(struct sim_schedule *schedule, hf_time until)
{
    struct hf_heap_link *top = hf_heap_top(&schedule->heap);
    hf_time at =
        top ? hf_heap_top_key(&schedule->heap) >> ORDER_BITS : HF_NEVER;
    struct sim_event *event;

    if (at > until) {
        schedule->now = until;
        return false;
    }
    event = HF_CONTAINER(top, struct sim_event, link);
    schedule->now = at;
    schedule->fired++;
    hf_heap_drop(&schedule->heap, top);
    event->fire(event);
    return true;
}
