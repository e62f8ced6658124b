#include "strategy/mongo/context.h"

#include "base/assert.h"

#define WRITE_TIMEOUT_MS 7000 /* a write that takes longer is in doubt */

/* Build the write concern. Its timeout bounds how long a write waits for a
 * majority. */
static bson_t *new_write_opts(void)
{
    mongoc_write_concern_t *concern = mongoc_write_concern_new();
    bson_t *opts = bson_new();

    mongoc_write_concern_set_wmajority(concern, WRITE_TIMEOUT_MS);
    mongoc_write_concern_set_journal(concern, true);
    HF_ASSERT(mongoc_write_concern_append(concern, opts));
    mongoc_write_concern_destroy(concern);
    return opts;
}

static bson_t *parse_script(const char *json)
{
    bson_t *script = bson_new_from_json((const uint8_t *)json, -1, NULL);

    HF_ASSERT(script);
    return script;
}

void hf_mongo_context_init(struct hf_mongo_context *context,
                           struct hf_mongo_address *address)
{
    context->address = *address;
    *address = (struct hf_mongo_address){0};
    for (unsigned i = 0; i < HF_MONGO_SCRIPTS; i++)
        context->scripts[i] = parse_script(hf_mongo_scripts[i]);
    context->write_opts = new_write_opts();
}

void hf_mongo_context_set_standalone(struct hf_mongo_context *context,
                                     bool standalone)
{
    const uint8_t *data = NULL;
    uint32_t size = 0;
    bson_iter_t iter;

    HF_ASSERT(bson_iter_init_find(&iter,
                                  context->scripts[HF_MONGO_TIME_VARIABLES],
                                  standalone ? "standalone" : "replica-set"));
    bson_iter_document(&iter, &size, &data);
    context->standalone = standalone;
    context->times = bson_new_from_data(data, size);
    HF_ASSERT(context->times);
}

void hf_mongo_context_fini(struct hf_mongo_context *context)
{
    for (unsigned i = 0; i < HF_MONGO_SCRIPTS; i++)
        bson_destroy(context->scripts[i]);
    bson_destroy(context->times);
    bson_destroy(context->write_opts);
    hf_mongo_address_fini(&context->address);
}
