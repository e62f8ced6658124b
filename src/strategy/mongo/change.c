#include "strategy/mongo/change.h"

#include <stdlib.h>
#include <string.h>

#include "strategy/mongo/op.h"

/* ---- Changes ------------------------------------------------------------*/

struct hf_mongo_change *hf_mongo_change_new(uint64_t time, const char *key,
                                            const char *events)
{
    size_t key_size = strlen(key) + 1, events_size = strlen(events) + 1;
    struct hf_mongo_change *change =
        calloc(1, sizeof(*change) + key_size + events_size);

    if (!change)
        return NULL;
    change->time = time;
    change->key = (char *)(change + 1);
    change->events = change->key + key_size;
    memcpy(change->key, key, key_size);
    memcpy(change->events, events, events_size);
    return change;
}

static const char *find_text(const bson_t *document, const char *path)
{
    bson_iter_t iter, found;

    if (bson_iter_init(&iter, document) &&
        bson_iter_find_descendant(&iter, path, &found) &&
        BSON_ITER_HOLDS_UTF8(&found))
        return bson_iter_utf8(&found, NULL);
    return NULL;
}

/* The paths of the field `events` in a change: the first if the document was
 * updated, the second if it was inserted or replaced. */
static const char *const events_paths[] = {
    "updateDescription.updatedFields.events",
    "fullDocument.events",
};

/* The events are part of the change, so the document need not be read. Changes
 * without events, such as deletions, are skipped. */
struct hf_mongo_change *hf_mongo_change_read(const bson_t *document)
{
    const char *key = find_text(document, "documentKey._id");
    const char *events = find_text(document, events_paths[0]);
    uint32_t seconds = 0, increment = 0;
    bson_iter_t iter;

    if (!events)
        events = find_text(document, events_paths[1]);
    if (!key || !events ||
        !bson_iter_init_find(&iter, document, "clusterTime") ||
        !BSON_ITER_HOLDS_TIMESTAMP(&iter))
        return NULL;
    bson_iter_timestamp(&iter, &seconds, &increment);
    return hf_mongo_change_new(hf_mongo_reply_time_of(seconds, increment), key,
                               events);
}

/* ---- Stages -------------------------------------------------------------*/

/* Keep only the fields that hf_mongo_change_read() needs, because values and
 * queues may be long. */
static void add_projection(bson_t *pipeline, const char *number)
{
    bson_t stage, fields;

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, number, &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$project", &fields);
    BSON_APPEND_INT32(&fields, "clusterTime", 1);
    BSON_APPEND_INT32(&fields, "documentKey", 1);
    for (unsigned i = 0; i < sizeof(events_paths) / sizeof(events_paths[0]);
         i++)
        BSON_APPEND_INT32(&fields, events_paths[i], 1);
    bson_append_document_end(&stage, &fields);
    bson_append_document_end(pipeline, &stage);
}

/* Let the server send only the changes whose events contain the word `client`.
 * The grant to a waiter contains it; see event_line.h. */
static void add_filter(bson_t *pipeline, const char *client)
{
    bson_t stage, match, either, path;
    char word[HF_MONGO_CLIENT_SIZE + 3] = " ";

    memcpy(word + 1, client, HF_MONGO_CLIENT_SIZE);
    word[HF_MONGO_CLIENT_SIZE + 1] = ' ';
    word[HF_MONGO_CLIENT_SIZE + 2] = '\0';
    BSON_APPEND_DOCUMENT_BEGIN(pipeline, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$match", &match);
    BSON_APPEND_ARRAY_BEGIN(&match, "$or", &either);
    for (unsigned i = 0; i < sizeof(events_paths) / sizeof(events_paths[0]);
         i++) {
        BSON_APPEND_DOCUMENT_BEGIN(&either, i == 0 ? "0" : "1", &path);
        BSON_APPEND_REGEX(&path, events_paths[i], word, "");
        bson_append_document_end(&either, &path);
    }
    bson_append_array_end(&match, &either);
    bson_append_document_end(&stage, &match);
    bson_append_document_end(pipeline, &stage);
}

void hf_mongo_change_add_stages(bson_t *stages, const char *client)
{
    if (client)
        add_filter(stages, client);
    add_projection(stages, client ? "1" : "0");
}
