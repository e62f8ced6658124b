/* tls.h - TLS for rediss:, if hiredis was built with it.
 *
 * The server's certificate is verified against the certificate authorities of
 * the system, or those of ?cacert=, and against the host name. */
#ifndef HF_STRATEGY_REDIS_TLS_H
#define HF_STRATEGY_REDIS_TLS_H

#include <hiredis/hiredis.h>

#include "base/error.h"
#include "base/url.h"

struct hf_redis_tls;

/* Load the files that the options cacert, cert and key name. `*tls` is NULL if
 * the scheme is not rediss. Returns HF_EINVAL if a file cannot be used or only
 * one of cert and key is given, HF_EUNSUPPORTED if this build has no TLS, or
 * HF_ENOMEM. */
enum hf_err hf_redis_tls_new(struct hf_url *url, struct hf_redis_tls **tls,
                             struct hf_error *error);
void hf_redis_tls_free(struct hf_redis_tls *tls);

/* Start the TLS handshake on a connected socket. Returns false if it fails; see
 * hf_redis_tls_error_text(). */
bool hf_redis_tls_begin(struct hf_redis_tls *tls, redisContext *context,
                        const char *host);

/* Take the oldest TLS error of this thread, and return its text; NULL if there
 * is none, because the failure was not a TLS error. */
const char *hf_redis_tls_error_text(void);

#endif
