/* address.h - the URL: which servers, which collection, which options.
 *
 *     mongodb://user:password@a,b,c/database?replicaSet=rs&collection=locks
 *     mongodb+srv://...
 *
 * Options that libmongoc knows are passed on to it. Read and write concerns,
 * read preference and retries are always set here, so that a URL cannot weaken
 * a lock. */
#ifndef HF_STRATEGY_MONGO_ADDRESS_H
#define HF_STRATEGY_MONGO_ADDRESS_H

#include <mongoc/mongoc.h>

#include "base/error.h"
#include "base/url.h"

/* The default of ?keep=: how long a document is kept after its lease has
 * expired or its lock was released.
 * docs/decisions/0018-mongodb-tokens-and-clean-up.md explains why the document
 * is not deleted sooner. */
#define HF_MONGO_KEEP_MS 86400000 /* a day */

struct hf_mongo_address {
    mongoc_uri_t *uri;
    char *database;
    char *collection;
    int64_t keep_ms; /* ?keep=, or HF_MONGO_KEEP_MS */
    bool unsafe;     /* ?unsafe=1: accept a standalone server or `direct` */
    bool direct;     /* directConnection: one member, no failover */
};

/* Check `url` and fill `address`. Can fail with HF_ENOMEM, or with HF_EINVAL or
 * HF_EUNSUPPORTED and a text that names the offending part of the URL. */
enum hf_err hf_mongo_address_init(struct hf_mongo_address *address,
                                  struct hf_url *url, struct hf_error *error);
void hf_mongo_address_fini(struct hf_mongo_address *address);

#endif
