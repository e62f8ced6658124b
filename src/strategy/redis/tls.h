/* tls.h - encryption of a connection, where hiredis has it.
 *
 * The server's certificate is checked against the authorities of the system,
 * or those in the file `cacert`, and against the host's name. */
#ifndef HF_STRATEGY_REDIS_TLS_H
#define HF_STRATEGY_REDIS_TLS_H

#include <hiredis/hiredis.h>

#include "base/error.h"
#include "base/url.h"

struct hf_redis_tls;

/* By the options of `url`: cacert, and cert with key, which are files. NULL in
 * `*tls` where the scheme is not rediss. HF_EINVAL, HF_ENOMEM;
 * HF_EUNSUPPORTED: this build has no TLS. */
enum hf_err hf_redis_tls_new(struct hf_url *url, struct hf_redis_tls **tls,
                             struct hf_error *error);
void hf_redis_tls_free(struct hf_redis_tls *tls);

/* Begin on a connection that is made. False: it cannot be; the connection says
 * why. */
bool hf_redis_tls_begin(struct hf_redis_tls *tls, redisContext *context,
                        const char *host);

/* Why a connection of this thread's has failed just now, in the words of TLS;
 * NULL where it was something else. */
const char *hf_redis_tls_error_text(void);

#endif
