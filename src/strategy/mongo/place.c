#include "strategy/mongo/place.h"

#include "base/assert.h"

#define WRITE_TIMEOUT_MS 7000 /* for a majority to have it; then in doubt */

/* The worst that a thread may still be doing is over within its time-out. */
static bson_t *write_opts(void)
{
    mongoc_write_concern_t *concern = mongoc_write_concern_new();
    bson_t *opts = bson_new();

    mongoc_write_concern_set_wmajority(concern, WRITE_TIMEOUT_MS);
    mongoc_write_concern_set_journal(concern, true);
    HF_ASSERT(mongoc_write_concern_append(concern, opts));
    mongoc_write_concern_destroy(concern);
    return opts;
}

static bson_t *parse(const char *json)
{
    bson_t *made = bson_new_from_json((const uint8_t *)json, -1, NULL);

    HF_ASSERT(made);
    return made;
}

void hf_mongo_place_init(struct hf_mongo_place *place,
                         struct hf_mongo_address *address)
{
    place->address = *address;
    *address = (struct hf_mongo_address){0};
    for (unsigned i = 0; i < HF_MONGO_SCRIPTS; i++)
        place->scripts[i] = parse(hf_mongo_scripts[i]);
    place->write_opts = write_opts();
}

void hf_mongo_place_set_alone(struct hf_mongo_place *place, bool alone)
{
    const uint8_t *data = NULL;
    uint32_t size = 0;
    bson_iter_t at;

    HF_ASSERT(bson_iter_init_find(&at, place->scripts[HF_MONGO_TIMES],
                                  alone ? "standalone" : "replica-set"));
    bson_iter_document(&at, &size, &data);
    place->alone = alone;
    place->times = bson_new_from_data(data, size);
    HF_ASSERT(place->times);
}

void hf_mongo_place_fini(struct hf_mongo_place *place)
{
    for (unsigned i = 0; i < HF_MONGO_SCRIPTS; i++)
        bson_destroy(place->scripts[i]);
    bson_destroy(place->times);
    bson_destroy(place->write_opts);
    hf_mongo_address_fini(&place->address);
}
