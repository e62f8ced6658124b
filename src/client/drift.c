#include "client/drift.h"

/* The least time that one clock counts while another clock, whose rate may
 * differ by 2 %, counts `span`. */
static uint64_t shorten_by_drift(uint64_t span)
{
    return span - (span + 49) / 50;
}

uint32_t hf_drift_lease_ms(uint32_t ttl_ms)
{
    return ttl_ms + ttl_ms / 16 + 50;
}

hf_time hf_drift_lease_base(const struct hf_anchor *anchor, hf_time first_sent)
{
    if (!anchor->known)
        return first_sent;
    return hf_time_add(anchor->sent, shorten_by_drift(anchor->age_ms));
}

hf_time hf_drift_valid_until(hf_time base, hf_time answer, uint32_t ttl_ms)
{
    hf_time by_answer = hf_time_add(answer, ttl_ms);
    hf_time by_lease =
        hf_time_add(base, shorten_by_drift(hf_drift_lease_ms(ttl_ms)));

    return by_answer < by_lease ? by_answer : by_lease;
}

hf_time hf_drift_expired_by(hf_time latest, uint32_t ttl_ms)
{
    uint64_t lease = hf_drift_lease_ms(ttl_ms);

    return hf_time_add(latest, lease + lease / 50 + 1);
}
