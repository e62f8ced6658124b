/* drift.h - how long a lock is certain to be held, given clock drift. Pure.
 *
 * The server counts a lease L, which is a little longer than the ttl, from an
 * instant that is no earlier than `base`. The rate of each clock is off by at
 * most 1 %, so while the server counts L, at least L * 0.98 passes on this
 * machine. Validity ends at answer + ttl or at base + L * 0.98, whichever is
 * earlier.
 *
 *    base                    answer      validity ends      lease expires
 *      |--- request, answer ----|------ ttl ------|      |       |
 *      |-------------------- L * 0.98 -------------------|       |
 *      |--------------------------- L ---------------------------| */
#ifndef HF_CLIENT_DRIFT_H
#define HF_CLIENT_DRIFT_H

#include "base/time.h"
#include "strategy/strategy.h"

/* The lease to request, so that the holder gets the whole ttl. */
uint32_t hf_drift_lease_ms(uint32_t ttl_ms);

/* `base` for a granted lease: computed from the anchor if it is known,
 * otherwise the instant at which the request was first sent. */
hf_time hf_drift_lease_base(const struct hf_anchor *anchor, hf_time first_sent);

/* When validity ends. The answer arrived at `answer`. */
hf_time hf_drift_valid_until(hf_time base, hf_time answer, uint32_t ttl_ms);

/* The instant by which a lease that is not renewed has expired, whatever the
 * rate of the server's clock, if the server counts it from `latest` or
 * earlier. */
hf_time hf_drift_expired_by(hf_time latest, uint32_t ttl_ms);

#endif
