#include "strategy/mongo/looking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"

#define LOOK_MS 5000 /* how long a server may work on it */
#define BATCH 1000

enum hf_err hf_mongo_look_init(struct hf_mongo_look *look, struct hf_key key,
                               enum hf_mongo_scope scope)
{
    look->scope = scope;
    look->whole = true;
    look->key = malloc(HF_MONGO_TEXT_SIZE(key.size));
    if (!look->key)
        return HF_ENOMEM;
    (void)hf_mongo_escape(look->key, key.data, key.size);
    return HF_OK;
}

void hf_mongo_look_fini(struct hf_mongo_look *look)
{
    for (size_t i = 0; i < look->count; i++)
        hf_info_fini(&look->infos[i]);
    free(look->infos);
    free(look->key);
    look->infos = NULL;
    look->count = 0;
    look->key = NULL;
}

/* ---- One document -------------------------------------------------------*/

/* "SECONDS INCREMENT". */
static uint64_t parse_time(const char *text)
{
    char *end = NULL;
    unsigned long seconds = strtoul(text, &end, 10);
    unsigned long increment = strtoul(end, NULL, 10);

    return hf_mongo_time((uint32_t)seconds, (uint32_t)increment);
}

/* A document as it is told; its texts are borrowed from it. */
struct told {
    const char *key, *owner, *note;
    uint64_t at; /* the instant of the cluster when it was read, or before */
    struct hf_bytes value;
    bool held, over;
    struct hf_info info;
};

static uint32_t span(const bson_iter_t *at)
{
    int64_t ms = bson_iter_as_int64(at);

    if (ms < 0)
        return 0;
    return ms > (int64_t)UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static void read_text(const bson_iter_t *at, struct told *told)
{
    const char *name = bson_iter_key(at), *text = bson_iter_utf8(at, NULL);

    if (!strcmp(name, "_id"))
        told->key = text;
    else if (!strcmp(name, "owner"))
        told->owner = text;
    else if (!strcmp(name, "note"))
        told->note = text;
    else if (!strcmp(name, "at"))
        told->at = parse_time(text);
}

static void read_field(const bson_iter_t *at, struct told *told)
{
    const char *name = bson_iter_key(at);
    const uint8_t *data = NULL;
    uint32_t size = 0;

    if (BSON_ITER_HOLDS_UTF8(at)) {
        read_text(at, told);
    } else if (!strcmp(name, "value") && BSON_ITER_HOLDS_BINARY(at)) {
        bson_iter_binary(at, NULL, &size, &data);
        told->value = (struct hf_bytes){data, size};
    } else if (!strcmp(name, "token")) {
        told->info.token = hf_mongo_token(at);
    } else if (!strcmp(name, "forced")) {
        told->info.forced = bson_iter_as_bool(at);
    } else if (!strcmp(name, "held")) {
        told->held = bson_iter_as_bool(at);
    } else if (!strcmp(name, "over")) {
        told->over = bson_iter_as_bool(at);
    } else if (!strcmp(name, "waiters")) {
        told->info.waiters = span(at);
    } else if (!strcmp(name, "left")) {
        told->info.left_ms = span(at);
    } else if (!strcmp(name, "age")) {
        told->info.held_ms = span(at);
    }
}

/* A text of at most `max` bytes, with a NUL. What is longer was not written by
 * us, and is cut. */
static char *plain(char *to, const char *text, size_t max, size_t *size)
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

static enum hf_err copy(const struct told *told, struct hf_info *info)
{
    char key[HF_MONGO_TEXT_SIZE(HF_KEY_MAX)];
    char owner[HF_MONGO_TEXT_SIZE(HF_NOTE_MAX)];
    char note[HF_MONGO_TEXT_SIZE(HF_NOTE_MAX)];
    struct hf_info from = told->info;
    size_t size;

    from.key.data = plain(key, told->key, HF_KEY_MAX, &from.key.size);
    from.owner = plain(owner, told->owner, HF_NOTE_MAX, &size);
    from.note = plain(note, told->note, HF_NOTE_MAX, &size);
    from.value = told->value;
    from.held = told->held && !told->over;
    from.index = HF_MONGO_INDEX(told->at);
    return hf_info_copy(info, &from);
}

/* ---- Documents ----------------------------------------------------------*/

static bool grow(struct hf_mongo_look *look, size_t *room)
{
    size_t more = *room > 0 ? *room * 2 : 1;
    struct hf_info *infos;

    if (look->count < *room)
        return true;
    infos = realloc(look->infos, more * sizeof(*infos));
    if (!infos)
        return false;
    look->infos = infos;
    *room = more;
    return true;
}

/* Of many it is the one to mend or to delete. */
static enum hf_err not_understood(struct hf_mongo_look *look, const char *key)
{
    (void)snprintf(look->reply.cause, sizeof(look->reply.cause),
                   "what is stored under the key %.200s is not understood: "
                   "its token is no number",
                   key);
    return HF_EPROTO;
}

static enum hf_err take(struct hf_mongo_look *look, const bson_t *document,
                        size_t *room)
{
    struct told told = {.key = "", .owner = "", .note = ""};
    bson_iter_t at;
    enum hf_err err;

    for (bson_iter_init(&at, document); bson_iter_next(&at);)
        read_field(&at, &told);
    if (look->scope == HF_MONGO_ONE && told.at > 0)
        look->reply.time = told.at;
    look->over = told.held && told.over;
    if (!told.held || told.over)
        return HF_OK;
    if (told.info.token == 0)
        return not_understood(look, told.key);
    if (look->count >= HF_LIST_MAX)
        return HF_ELIMIT;
    if (!grow(look, room))
        return HF_ENOMEM;
    err = copy(&told, &look->infos[look->count]);
    look->count += !err;
    return err;
}

static void take_all(struct hf_mongo_look *look, mongoc_cursor_t *cursor)
{
    const bson_t *document = NULL;
    enum hf_err err = HF_OK;
    bson_error_t why;
    size_t room = 0;

    while (!err && mongoc_cursor_next(cursor, &document))
        err = take(look, document, &room);
    look->reply.err = err;
    if (!err && mongoc_cursor_error(cursor, &why))
        hf_mongo_fault(&look->reply, &why);
}

/* ---- Asking -------------------------------------------------------------*/

/* The least text that does not begin with `prefix` and is above those that do:
 * texts are ASCII, so that adding one stays within. */
static void add_range(bson_t *match, const char *prefix)
{
    size_t size = strlen(prefix);
    char *above = strdup(prefix);
    bson_t range;

    BSON_APPEND_DOCUMENT_BEGIN(match, "_id", &range);
    BSON_APPEND_UTF8(&range, "$gte", prefix);
    if (size > 0 && above) {
        above[size - 1]++;
        BSON_APPEND_UTF8(&range, "$lt", above);
    }
    bson_append_document_end(match, &range);
    free(above);
}

static void add_match(bson_t *pipeline, const struct hf_mongo_look *look)
{
    bson_t stage, match, exists;

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$match", &match);
    if (look->scope == HF_MONGO_ONE) {
        BSON_APPEND_UTF8(&match, "_id", look->key);
    } else {
        add_range(&match, look->key);
        BSON_APPEND_DOCUMENT_BEGIN(&match, "nonce", &exists);
        BSON_APPEND_BOOL(&exists, "$exists", true);
        bson_append_document_end(&match, &exists);
    }
    bson_append_document_end(&stage, &match);
    bson_append_document_end(pipeline, &stage);
}

static void add_info(bson_t *pipeline, const bson_t *info)
{
    bson_iter_t at;
    uint32_t place = 1;

    for (bson_iter_init(&at, info); bson_iter_next(&at); place++) {
        const char *name;
        char number[16];

        bson_uint32_to_string(place, &name, number, sizeof(number));
        bson_append_iter(pipeline, name, -1, &at);
    }
}

static const char *read_concern(const struct hf_mongo_look *look,
                                const struct hf_mongo_place *place)
{
    if (look->local || place->alone)
        return "local";
    return "majority";
}

static void build(bson_t *command, const struct hf_mongo_look *look,
                  const struct hf_mongo_place *place,
                  const mongoc_server_description_t *server)
{
    bson_t child;

    BSON_APPEND_UTF8(command, "aggregate", place->address.collection);
    BSON_APPEND_ARRAY_BEGIN(command, "pipeline", &child);
    add_match(&child, look);
    add_info(&child, place->scripts[HF_MONGO_INFO]);
    bson_append_array_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "let", &child);
    hf_mongo_add_common(&child, server);
    bson_concat(&child, place->times);
    BSON_APPEND_BOOL(&child, "whole", look->whole);
    bson_append_document_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "cursor", &child);
    BSON_APPEND_INT32(&child, "batchSize", BATCH);
    bson_append_document_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "readConcern", &child);
    BSON_APPEND_UTF8(&child, "level", read_concern(look, place));
    bson_append_document_end(command, &child);
    BSON_APPEND_INT32(command, "maxTimeMS", LOOK_MS);
}

static void look_at(struct hf_mongo_look *look, mongoc_client_t *client,
                    const struct hf_mongo_place *place,
                    const mongoc_server_description_t *server)
{
    bson_t command = BSON_INITIALIZER, opts = BSON_INITIALIZER, bson;
    mongoc_cursor_t *cursor;
    bson_error_t why;

    build(&command, look, place, server);
    BSON_APPEND_INT32(&opts, "serverId",
                      (int32_t)mongoc_server_description_id(server));
    if (mongoc_client_command_with_opts(client, place->address.database,
                                        &command, NULL, &opts, &bson, &why)) {
        look->reply.time = hf_mongo_reply_time(&bson);
        cursor = mongoc_cursor_new_from_command_reply_with_opts(client, &bson,
                                                                &opts);
        take_all(look, cursor);
        mongoc_cursor_destroy(cursor);
    } else {
        hf_mongo_fault(&look->reply, &why);
        bson_destroy(&bson);
    }
    bson_destroy(&command);
    bson_destroy(&opts);
}

/* Open a change stream and close it again. Only a refusal is an error: a stream is
 * opened again after any other failure. */
static void check_stream(struct hf_mongo_look *look, mongoc_client_t *client,
                         const struct hf_mongo_place *place,
                         const mongoc_server_description_t *server)
{
    bson_t *command = BCON_NEW(
        "aggregate", BCON_UTF8(place->address.collection), "pipeline", "[", "{",
        "$changeStream", "{", "}", "}", "]", "cursor", "{", "batchSize",
        BCON_INT32(0), "}", "maxTimeMS", BCON_INT32(LOOK_MS));
    bson_t *opts = BCON_NEW(
        "serverId", BCON_INT32((int32_t)mongoc_server_description_id(server)));
    struct hf_mongo_reply reply = {.err = HF_OK};
    bson_error_t why;
    bson_t bson;

    if (mongoc_client_command_with_opts(client, place->address.database,
                                        command, NULL, opts, &bson, &why)) {
        mongoc_cursor_destroy(mongoc_cursor_new_from_command_reply_with_opts(
            client, &bson, opts));
    } else {
        hf_mongo_fault(&reply, &why);
        bson_destroy(&bson);
    }
    if (reply.err == HF_EDENIED || reply.err == HF_EINVAL)
        look->reply = reply;
    bson_destroy(opts);
    bson_destroy(command);
}

/* A read with the concern "linearizable" waits until the server next writes its
 * journal by itself, some 30 ms. The same comes sooner thus: a server that has
 * just shown that it is the primary knows by then all that was confirmed before;
 * what a majority has of that is read next.
 *
 * Nothing is done by looking: what failed was not done. */
void hf_mongo_look(struct hf_mongo_look *look, mongoc_client_t *client,
                   const struct hf_mongo_place *place)
{
    mongoc_server_description_t *server =
        hf_mongo_choose_server(client, &look->reply);

    if (server) {
        if (look->scope == HF_MONGO_PREFIX || look->local || place->alone ||
            hf_mongo_is_primary(look->client, client, place, server,
                                &look->reply))
            look_at(look, client, place, server);
        if (look->watch && !look->reply.err)
            check_stream(look, client, place, server);
        mongoc_server_description_destroy(server);
    }
    if (look->reply.err == HF_EINDOUBT)
        look->reply.err = HF_EUNAVAIL;
}

bool hf_mongo_look_left(const char *key, mongoc_client_t *client,
                        const struct hf_mongo_place *place,
                        const mongoc_server_description_t *server,
                        uint32_t *left_ms)
{
    struct hf_mongo_look look = {
        .scope = HF_MONGO_ONE,
        .local = true,
        .key = strdup(key),
    };
    bool known;

    if (look.key)
        look_at(&look, client, place, server);
    known = look.key && !look.reply.err && (look.count == 1 || look.over);
    if (known)
        *left_ms = look.over ? 0 : look.infos[0].left_ms;
    hf_mongo_look_fini(&look);
    return known;
}
