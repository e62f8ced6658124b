/* address.h - the address of a Redis server, with credentials and options.
 *
 *     redis://user:password@host:port/db
 *     rediss://user:password@host:port/db?cacert=file&cert=file&key=file
 *     redis+unix://user:password@/path/of/the.socket?db=2
 *
 * Options of all schemes: ?grace=30s, ?unsafe=1, ?require=durable, ?prefix=P
 * (keyspace.h).
 *
 * fini wipes the password from memory. No message contains it. */
#ifndef HF_STRATEGY_REDIS_ADDRESS_H
#define HF_STRATEGY_REDIS_ADDRESS_H

#include "base/error.h"
#include "base/url.h"
#include "strategy/redis/keyspace.h"
#include "strategy/redis/tls.h"

#define HF_REDIS_PORT 6379
#define HF_REDIS_NAME_MAX 300 /* a longer address is cut off in messages */

struct hf_redis_address {
    char *host; /* host name, or path of a socket */
    char *user; /* NULL: none */
    char *password;
    int port; /* TCP port; 0: `host` is a path */
    unsigned db;
    struct hf_redis_keyspace space;
    struct hf_redis_tls *tls;     /* NULL: not encrypted */
    uint32_t grace_ms;            /* ?grace=, or 0 */
    bool unsafe;                  /* ?unsafe=1: the server may evict locks */
    bool requires_durable;        /* ?require=durable */
    char name[HF_REDIS_NAME_MAX]; /* for messages: "redis://host:port/0" */
};

/* Parse `url`. `host` points to one of the hosts of the URL and ends at a comma
 * or NUL. Returns HF_EINVAL if the URL is malformed, HF_EUNSUPPORTED if this
 * build has no TLS, or HF_ENOMEM. */
enum hf_err hf_redis_address_init(struct hf_redis_address *address,
                                  struct hf_url *url, const char *host,
                                  struct hf_error *error);
void hf_redis_address_fini(struct hf_redis_address *address);

/* Parse the option `name` of `url` as a number from 0 to `max`. `*number` is 0
 * if there is no such option. HF_EINVAL: the text is not such a number. */
enum hf_err hf_redis_address_number(struct hf_url *url, const char *name,
                                    unsigned max, unsigned *number,
                                    struct hf_error *error);

#endif
