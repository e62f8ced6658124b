/* drift.h - until when a holder may believe that it holds. Pure.
 *
 * The server counts a lease L a little longer than the ttl, from an instant
 * that is no earlier than `base`. Every clock's rate is off by at most 1 %, so
 * while the server counts L, at least L * (1 - 2 %) passes here: validity ends
 * at the earlier of answer + ttl and base + L * (1 - 2 %).
 *
 *      base                     answer        validity ends    server ends it
 *       |--- request --- answer --|-- ttl -----------|............|
 *       |------------------- L * 0.98 ----------------------|     |
 *       |----------------------------- L ------------------------|      */
#ifndef HF_CLIENT_DRIFT_H
#define HF_CLIENT_DRIFT_H

#include "base/time.h"
#include "strategy/strategy.h"

/* The lease to ask a server for, so that the holder gets its ttl. */
uint32_t hf_drift_lease_ms(uint32_t ttl_ms);

/* The instant from which a lease is surely counted: what the anchor says, or
 * else when the request was first sent. */
hf_time hf_drift_lease_base(const struct hf_anchor *anchor, hf_time first_sent);

/* When validity ends, of a lease for `ttl_ms` whose answer came at `answer`. */
hf_time hf_drift_valid_until(hf_time base, hf_time answer, uint32_t ttl_ms);

/* An instant by which no server can still hold the lease to be running, if it
 * was counted from before `latest` and has not been renewed. */
hf_time hf_drift_expired_by(hf_time latest, uint32_t ttl_ms);

#endif
