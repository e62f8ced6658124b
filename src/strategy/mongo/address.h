/* address.h - where the locks are: which servers, which collection.
 *
 *     mongodb://user:password@a,b,c/database?replicaSet=rs&collection=locks
 *     mongodb+srv://...
 *
 * What libmongoc knows as an option is handed on to it, but for what would
 * make a lock weaker: concerns and retries are set here, whatever it says. */
#ifndef HF_STRATEGY_MONGO_ADDRESS_H
#define HF_STRATEGY_MONGO_ADDRESS_H

#include <mongoc/mongoc.h>

#include "base/error.h"
#include "base/url.h"

/* A document goes this long after its lease or its release; see
 * docs/decisions/0018-mongodb-tokens-and-clean-up.md for why not sooner. */
#define HF_MONGO_KEEP_MS 86400000 /* a day */

struct hf_mongo_address {
    mongoc_uri_t *uri;
    char *database;
    char *collection;
    int64_t keep_ms;
    bool unsafe; /* a standalone server will do */
    bool direct; /* one member, whatever its name leads to */
};

/* HF_EINVAL with a text that names the part; HF_ENOMEM. */
enum hf_err hf_mongo_address_init(struct hf_mongo_address *address,
                                  struct hf_url *url, struct hf_error *error);
void hf_mongo_address_fini(struct hf_mongo_address *address);

#endif
