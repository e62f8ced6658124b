#include "strategy/mongo/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"

#define QUERY_MS 5000 /* maxTimeMS */
#define BATCH 1000
#define READS_MAX 8 /* of a READ that finds leases that are due */

enum hf_err hf_mongo_query_init(struct hf_mongo_query *query, struct hf_key key,
                                enum hf_mongo_scope scope)
{
    query->scope = scope;
    query->whole = true;
    query->key = hf_mongo_escape_new(key.data, key.size);
    return query->key ? HF_OK : HF_ENOMEM;
}

void hf_mongo_query_fini(struct hf_mongo_query *query)
{
    for (size_t i = 0; i < query->count; i++)
        hf_info_fini(&query->infos[i]);
    free(query->infos);
    free(query->key);
    query->infos = NULL;
    query->count = 0;
    query->key = NULL;
}

/* ---- One document -------------------------------------------------------*/

/* Parse a cluster time, "SECONDS INCREMENT", as info.json writes it. */
static uint64_t parse_time(const char *text)
{
    char *end = NULL;
    unsigned long seconds = strtoul(text, &end, 10);
    unsigned long increment = strtoul(end, NULL, 10);

    return hf_mongo_reply_time_of((uint32_t)seconds, (uint32_t)increment);
}

/* A document, as info.json returns it. Strings are borrowed from the reply. */
struct document {
    const char *key, *owner, *note;
    uint64_t time; /* cluster time, not later than the read */
    struct hf_bytes value;
    bool held, expired;
    struct hf_info info;
};

static uint32_t read_span_ms(const bson_iter_t *iter)
{
    int64_t ms = bson_iter_as_int64(iter);

    if (ms < 0)
        return 0;
    return ms > (int64_t)UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static void read_text_field(const bson_iter_t *iter, struct document *document)
{
    const char *name = bson_iter_key(iter), *text = bson_iter_utf8(iter, NULL);

    if (!strcmp(name, "_id"))
        document->key = text;
    else if (!strcmp(name, "owner"))
        document->owner = text;
    else if (!strcmp(name, "note"))
        document->note = text;
    else if (!strcmp(name, "at"))
        document->time = parse_time(text);
}

static void read_document_field(const bson_iter_t *iter,
                                struct document *document)
{
    const char *name = bson_iter_key(iter);
    const uint8_t *data = NULL;
    uint32_t size = 0;

    if (BSON_ITER_HOLDS_UTF8(iter)) {
        read_text_field(iter, document);
    } else if (!strcmp(name, "value") && BSON_ITER_HOLDS_BINARY(iter)) {
        bson_iter_binary(iter, NULL, &size, &data);
        document->value = (struct hf_bytes){data, size};
    } else if (!strcmp(name, "token")) {
        document->info.token = hf_mongo_reply_token(iter);
    } else if (!strcmp(name, "forced")) {
        document->info.forced = bson_iter_as_bool(iter);
    } else if (!strcmp(name, "held")) {
        document->held = bson_iter_as_bool(iter);
    } else if (!strcmp(name, "expired")) {
        document->expired = bson_iter_as_bool(iter);
    } else if (!strcmp(name, "waiters")) {
        document->info.waiters = read_span_ms(iter);
    } else if (!strcmp(name, "left")) {
        document->info.left_ms = read_span_ms(iter);
    } else if (!strcmp(name, "age")) {
        document->info.held_ms = read_span_ms(iter);
    }
}

/* Decode a text of at most `max` bytes, and add a NUL. Longer texts, which
 * holdfast never writes, are truncated. */
static char *unescape_text(char *to, const char *text, size_t max, size_t *size)
{
    size_t length = strlen(text);

    if (length > max * 3)
        length = max * 3;
    *size = hf_mongo_unescape((uint8_t *)to, text, length);
    if (*size > max)
        *size = max;
    to[*size] = '\0';
    return to;
}

static enum hf_err copy_document(const struct document *document,
                                 struct hf_info *info)
{
    char key[HF_MONGO_ESCAPED_SIZE(HF_KEY_MAX)];
    char owner[HF_MONGO_ESCAPED_SIZE(HF_NOTE_MAX)];
    char note[HF_MONGO_ESCAPED_SIZE(HF_NOTE_MAX)];
    struct hf_info from = document->info;
    size_t size;

    from.key.data =
        unescape_text(key, document->key, HF_KEY_MAX, &from.key.size);
    from.owner = unescape_text(owner, document->owner, HF_NOTE_MAX, &size);
    from.note = unescape_text(note, document->note, HF_NOTE_MAX, &size);
    from.value = document->value;
    from.held = document->held && !document->expired;
    from.index = HF_MONGO_INDEX(document->time);
    return hf_info_copy(info, &from);
}

/* ---- Documents ----------------------------------------------------------*/

static bool grow_infos(struct hf_mongo_query *query, size_t *room)
{
    size_t more = *room > 0 ? *room * 2 : 1;
    struct hf_info *infos;

    if (query->count < *room)
        return true;
    infos = realloc(query->infos, more * sizeof(*infos));
    if (!infos)
        return false;
    query->infos = infos;
    *room = more;
    return true;
}

/* Name the key in the error text, because LIST reads many documents, and the
 * user has to find the corrupt one. */
static enum hf_err reject_document(struct hf_mongo_query *query,
                                   const char *key)
{
    (void)snprintf(query->reply.cause, sizeof(query->reply.cause),
                   "the document of the key %.200s is corrupt: its token is "
                   "not a positive number; repair or delete it",
                   key);
    return HF_EPROTO;
}

static enum hf_err add_document(struct hf_mongo_query *query,
                                const bson_t *bson, size_t *room)
{
    struct document document = {.key = "", .owner = "", .note = ""};
    bson_iter_t iter;
    enum hf_err err;

    for (bson_iter_init(&iter, bson); bson_iter_next(&iter);)
        read_document_field(&iter, &document);
    if (query->scope == HF_MONGO_ONE && document.time > 0)
        query->reply.time = document.time;
    query->expired = document.held && document.expired;
    if (!document.held || document.expired)
        return HF_OK;
    if (document.info.token == 0)
        return reject_document(query, document.key);
    if (query->count >= HF_LIST_MAX)
        return HF_ELIMIT;
    if (!grow_infos(query, room))
        return HF_ENOMEM;
    err = copy_document(&document, &query->infos[query->count]);
    query->count += !err;
    return err;
}

static void read_cursor(struct hf_mongo_query *query, mongoc_cursor_t *cursor)
{
    const bson_t *bson = NULL;
    enum hf_err err = HF_OK;
    bson_error_t fault;
    size_t room = 0;

    while (!err && mongoc_cursor_next(cursor, &bson))
        err = add_document(query, bson, &room);
    query->reply.err = err;
    if (!err && mongoc_cursor_error(cursor, &fault))
        hf_mongo_fault_set(&query->reply, &fault);
}

/* ---- The query ----------------------------------------------------------*/

/* Match the texts from `prefix` up to, but not including, `prefix` with its
 * last character incremented. An empty prefix matches all texts. Texts are
 * ASCII, so the result is valid UTF-8. */
static void add_range(bson_t *match, const char *prefix)
{
    size_t size = strlen(prefix);
    char *upper = strdup(prefix);
    bson_t range;

    BSON_APPEND_DOCUMENT_BEGIN(match, "_id", &range);
    BSON_APPEND_UTF8(&range, "$gte", prefix);
    if (size > 0 && upper) {
        upper[size - 1]++;
        BSON_APPEND_UTF8(&range, "$lt", upper);
    }
    bson_append_document_end(match, &range);
    free(upper);
}

static void add_match(bson_t *pipeline, const struct hf_mongo_query *query)
{
    bson_t stage, match, exists;

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$match", &match);
    if (query->scope == HF_MONGO_ONE) {
        BSON_APPEND_UTF8(&match, "_id", query->key);
    } else {
        add_range(&match, query->key);
        BSON_APPEND_DOCUMENT_BEGIN(&match, "nonce", &exists);
        BSON_APPEND_BOOL(&exists, "$exists", true);
        bson_append_document_end(&match, &exists);
    }
    bson_append_document_end(&stage, &match);
    bson_append_document_end(pipeline, &stage);
}

static void add_info(bson_t *pipeline, const bson_t *info)
{
    bson_iter_t iter;
    uint32_t index = 1;

    for (bson_iter_init(&iter, info); bson_iter_next(&iter); index++) {
        const char *name;
        char number[16];

        bson_uint32_to_string(index, &name, number, sizeof(number));
        bson_append_iter(pipeline, name, -1, &iter);
    }
}

static const char *read_concern(const struct hf_mongo_query *query,
                                const struct hf_mongo_context *context)
{
    if (query->local || context->standalone)
        return "local";
    return "majority";
}

static void build_query(bson_t *command, const struct hf_mongo_query *query,
                        const struct hf_mongo_context *context,
                        const mongoc_server_description_t *server)
{
    bson_t child;

    BSON_APPEND_UTF8(command, "aggregate", context->address.collection);
    BSON_APPEND_ARRAY_BEGIN(command, "pipeline", &child);
    add_match(&child, query);
    add_info(&child, context->scripts[HF_MONGO_INFO]);
    bson_append_array_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "let", &child);
    hf_mongo_server_add_variables(&child, server);
    bson_concat(&child, context->times);
    BSON_APPEND_BOOL(&child, "whole", query->whole);
    bson_append_document_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "cursor", &child);
    BSON_APPEND_INT32(&child, "batchSize", BATCH);
    bson_append_document_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "readConcern", &child);
    BSON_APPEND_UTF8(&child, "level", read_concern(query, context));
    bson_append_document_end(command, &child);
    BSON_APPEND_INT32(command, "maxTimeMS", QUERY_MS);
}

static void execute_query(struct hf_mongo_query *query, mongoc_client_t *client,
                          const struct hf_mongo_context *context,
                          const mongoc_server_description_t *server)
{
    bson_t command = BSON_INITIALIZER, opts = BSON_INITIALIZER, bson;
    mongoc_cursor_t *cursor;
    bson_error_t fault;

    query->expired = false;
    build_query(&command, query, context, server);
    BSON_APPEND_INT32(&opts, "serverId",
                      (int32_t)mongoc_server_description_id(server));
    if (mongoc_client_command_with_opts(client, context->address.database,
                                        &command, NULL, &opts, &bson, &fault)) {
        query->reply.time = hf_mongo_reply_time(&bson);
        cursor = mongoc_cursor_new_from_command_reply_with_opts(client, &bson,
                                                                &opts);
        read_cursor(query, cursor);
        mongoc_cursor_destroy(cursor);
    } else {
        hf_mongo_fault_set(&query->reply, &fault);
        bson_destroy(&bson);
    }
    bson_destroy(&command);
    bson_destroy(&opts);
}

/* Open a change stream and close it again, to check that the server permits it.
 * Only a refusal is an error, because after any other failure the stream thread
 * tries again. */
static void check_stream(struct hf_mongo_query *query, mongoc_client_t *client,
                         const struct hf_mongo_context *context,
                         const mongoc_server_description_t *server)
{
    bson_t *command = BCON_NEW(
        "aggregate", BCON_UTF8(context->address.collection), "pipeline", "[",
        "{", "$changeStream", "{", "}", "}", "]", "cursor", "{", "batchSize",
        BCON_INT32(0), "}", "maxTimeMS", BCON_INT32(QUERY_MS));
    bson_t *opts = BCON_NEW(
        "serverId", BCON_INT32((int32_t)mongoc_server_description_id(server)));
    struct hf_mongo_reply reply = {.err = HF_OK};
    bson_error_t fault;
    bson_t bson;

    if (mongoc_client_command_with_opts(client, context->address.database,
                                        command, NULL, opts, &bson, &fault)) {
        mongoc_cursor_destroy(mongoc_cursor_new_from_command_reply_with_opts(
            client, &bson, opts));
    } else {
        hf_mongo_fault_set(&reply, &fault);
        bson_destroy(&bson);
    }
    if (reply.err == HF_EDENIED || reply.err == HF_EINVAL)
        query->reply = reply;
    bson_destroy(opts);
    bson_destroy(command);
}

/* A read with the read concern "linearizable" waits for the next regular flush
 * of the journal, about 30 ms. It is faster to let the server prove that it is
 * the primary, and read with "majority" afterwards: the server then knows every
 * write that was confirmed before the proof. Lists, local reads and standalone
 * servers need no proof.
 *
 * A query changes nothing, so its failure is never in doubt. */
void hf_mongo_query_run(struct hf_mongo_query *query, mongoc_client_t *client,
                        const struct hf_mongo_context *context)
{
    mongoc_server_description_t *server =
        hf_mongo_server_select(client, &query->reply);

    if (server) {
        if (query->scope == HF_MONGO_PREFIX || query->local ||
            context->standalone ||
            hf_mongo_server_prove_primary(query->client, client, context,
                                          server, &query->reply))
            execute_query(query, client, context, server);
        if (query->watch && !query->reply.err)
            check_stream(query, client, context, server);
        mongoc_server_description_destroy(server);
    }
    if (query->reply.err == HF_EINDOUBT)
        query->reply.err = HF_EUNAVAIL;
}

/* A lease that is due ends when a command ends it. Until then, a renewal or a
 * release that the server began to execute before the lease was due, by its
 * clock, may still succeed. A READ that reported the key as free would be
 * contradicted by that reply, so it ends the lease first. */
void hf_mongo_query_run_linearizable(struct hf_mongo_query *query,
                                     const struct hf_mongo_op *expire,
                                     mongoc_client_t *client,
                                     const struct hf_mongo_context *context)
{
    struct hf_mongo_reply reply = {.err = HF_OK};

    for (unsigned reads = 0; reads < READS_MAX && !reply.err; reads++) {
        hf_mongo_query_run(query, client, context);
        if (query->reply.err || !query->expired)
            return;
        hf_mongo_execute(expire, client, context, &reply);
    }
    if (!reply.err || reply.err == HF_EINDOUBT)
        reply.err = HF_EUNAVAIL;
    query->reply = reply;
}

bool hf_mongo_query_left_ms(const char *key, mongoc_client_t *client,
                            const struct hf_mongo_context *context,
                            const mongoc_server_description_t *server,
                            uint32_t *left_ms)
{
    struct hf_mongo_query query = {
        .scope = HF_MONGO_ONE,
        .local = true,
        .key = strdup(key),
    };
    bool known;

    if (query.key)
        execute_query(&query, client, context, server);
    known =
        query.key && !query.reply.err && (query.count == 1 || query.expired);
    if (known)
        *left_ms = query.expired ? 0 : query.infos[0].left_ms;
    hf_mongo_query_fini(&query);
    return known;
}
