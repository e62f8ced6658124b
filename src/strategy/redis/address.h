/* address.h - where a Redis server is, and who asks there.
 *
 *     redis://user:password@host:port/db
 *     rediss://user:password@host:port/db?cacert=file&cert=file&key=file
 *     redis+unix://user:password@/path/of/the.socket?db=2
 *
 * and the options of all of them: ?grace=30s, ?unsafe=1, ?prefix=P (see
 * keyspace.h).
 *
 * The password is wiped when the address is freed, and is in no text. */
#ifndef HF_STRATEGY_REDIS_ADDRESS_H
#define HF_STRATEGY_REDIS_ADDRESS_H

#include "base/error.h"
#include "base/url.h"
#include "strategy/redis/keyspace.h"
#include "strategy/redis/tls.h"

#define HF_REDIS_PORT 6379
#define HF_REDIS_NAME_MAX 300 /* of a server, in texts */

struct hf_redis_address {
    char *host; /* or the path of a socket */
    char *user; /* NULL: none */
    char *password;
    int port; /* 0: `host` is a path */
    unsigned db;
    struct hf_redis_keyspace space;
    struct hf_redis_tls *tls;     /* NULL: it is not encrypted */
    uint32_t grace_ms;            /* ?grace=: no grants after a start; or 0 */
    bool unsafe;                  /* ?unsafe=1: it may evict locks */
    bool requires_durable;        /* ?require=durable */
    char name[HF_REDIS_NAME_MAX]; /* "redis://host:port/0": for texts */
};

/* The address that `url` names; with several hosts, that of `host`, up to the
 * next comma. HF_EINVAL, HF_EUNSUPPORTED: TLS in a build without; HF_ENOMEM. */
enum hf_err hf_redis_address_init(struct hf_redis_address *address,
                                  struct hf_url *url, const char *host,
                                  struct hf_error *error);
void hf_redis_address_fini(struct hf_redis_address *address);

/* A number among the options of `url`, at most `max`; 0 if it is not there.
 * HF_EINVAL. */
enum hf_err hf_redis_address_number(struct hf_url *url, const char *name,
                                    unsigned max, unsigned *number,
                                    struct hf_error *error);

#endif
