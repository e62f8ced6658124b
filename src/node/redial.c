#include "node/redial.h"

#define PAUSE_MS 20
#define PAUSE_MAX_MS 500
#define LASTING_MS 1000 /* a connection this old resets the pause */

/* Pauses after a connection that the peer did not read. */
#define UNREAD_PAUSE_MS 500
#define UNREAD_PAUSE_MAX_MS 4000
#define UNREAD_LASTING_MS 10000 /* a connection this old resets them */

static uint32_t double_up_to(uint32_t ms, unsigned times, uint32_t max)
{
    while (times-- > 0 && ms < max)
        ms *= 2;
    return ms < max ? ms : max;
}

void hf_redial_on_failure(struct hf_redial *redial)
{
    redial->unread = 0;
}

void hf_redial_on_end(struct hf_redial *redial, hf_time lasted_ms,
                      bool has_overflowed)
{
    if (!has_overflowed || lasted_ms >= UNREAD_LASTING_MS)
        redial->unread = 0;
    if (has_overflowed)
        redial->unread++;
    if (lasted_ms >= LASTING_MS)
        redial->attempts = 0;
}

uint32_t hf_redial_pause(struct hf_redial *redial, struct hf_random *random)
{
    uint32_t pause = 0;

    if (redial->unread > 0)
        pause = double_up_to(UNREAD_PAUSE_MS, redial->unread - 1,
                             UNREAD_PAUSE_MAX_MS);
    else if (redial->attempts > 0)
        pause = double_up_to(PAUSE_MS, redial->attempts, PAUSE_MAX_MS);
    redial->attempts++;
    return pause / 2 + hf_random_below(random, pause / 2 + 1);
}
