#include "strategy/mongo/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/mongo/looking.h"

#define RUN_MS 3000 /* how long a server may work on one command */
#define RACES_MAX 8 /* with others who insert the same document */

/* ---- Who asks -----------------------------------------------------------*/

static char *escaped(const void *bytes, size_t size)
{
    char *text = malloc(HF_MONGO_TEXT_SIZE(size));

    if (text)
        (void)hf_mongo_escape(text, bytes, size);
    return text;
}

enum hf_err hf_mongo_asker_init(struct hf_mongo_asker *asker,
                                struct hf_host *host)
{
    const char *owner = host->ops->owner(host);
    uint8_t name[HF_MONGO_CLIENT_SIZE / 2];
    enum hf_err err =
        hf_random_bytes(host->ops->random(host), name, sizeof(name));

    if (err)
        return err;
    hf_mongo_hex(asker->client, name, sizeof(name));
    asker->owner = escaped(owner, strlen(owner));
    return asker->owner ? HF_OK : HF_ENOMEM;
}

void hf_mongo_asker_fini(struct hf_mongo_asker *asker)
{
    free(asker->owner);
    asker->owner = NULL;
}

/* ---- Asking -------------------------------------------------------------*/

static const struct {
    enum hf_mongo_script script;
    bool upsert;
} scripts[HF_COMMAND_KINDS] = {
    [HF_COMMAND_LOCK] = {HF_MONGO_LOCK, true},
    [HF_COMMAND_UNLOCK] = {HF_MONGO_UNLOCK, false},
    [HF_COMMAND_RENEW] = {HF_MONGO_RENEW, false},
    [HF_COMMAND_UPDATE] = {HF_MONGO_UPDATE, false},
    [HF_COMMAND_CANCEL] = {HF_MONGO_CANCEL, false},
    [HF_COMMAND_FORCE] = {HF_MONGO_FORCE, false},
};

static void add_bytes(bson_t *to, const char *name, struct hf_bytes bytes)
{
    BSON_APPEND_BINARY(to, name, BSON_SUBTYPE_BINARY,
                       bytes.size > 0 ? bytes.data : (const uint8_t *)"",
                       (uint32_t)bytes.size);
}

static void add_escaped(bson_t *to, const char *name, struct hf_bytes bytes)
{
    char text[HF_MONGO_TEXT_SIZE(HF_NOTE_MAX)];

    HF_ASSERT(bytes.size <= HF_NOTE_MAX);
    (void)hf_mongo_escape(text, bytes.data, bytes.size);
    BSON_APPEND_UTF8(to, name, text);
}

static void add_lock(bson_t *to, const struct hf_mongo_asker *asker,
                     const struct hf_command *command)
{
    BSON_APPEND_UTF8(to, "owner", asker->owner);
    BSON_APPEND_BOOL(to, "queue", command->queue);
    BSON_APPEND_INT64(to, "lease", command->lease_ms);
    add_escaped(to, "note", command->note);
    add_bytes(to, "value", command->value);
}

static void add_update(bson_t *to, const struct hf_command *command)
{
    BSON_APPEND_INT64(to, "update", (int64_t)command->sequence);
    BSON_APPEND_BOOL(to, "compare", command->has_expected);
    add_bytes(to, "expected", command->expected);
    add_bytes(to, "value", command->value);
}

static void add_variables(bson_t *to, const struct hf_mongo_asker *asker,
                          const struct hf_command *command, bool doubtful)
{
    BSON_APPEND_INT64(to, "token", (int64_t)command->token);
    switch (command->kind) {
    case HF_COMMAND_LOCK:
        add_lock(to, asker, command);
        break;
    case HF_COMMAND_RENEW:
        BSON_APPEND_INT64(to, "lease", command->lease_ms);
        break;
    case HF_COMMAND_UPDATE:
        add_update(to, command);
        break;
    case HF_COMMAND_FORCE:
        BSON_APPEND_BOOL(to, "at_once", command->now);
        break;
    default:
        BSON_APPEND_BOOL(to, "doubtful", doubtful);
        break;
    }
}

static enum hf_err ask(struct hf_mongo_question *question,
                       struct hf_mongo_asker *asker, struct hf_key key,
                       const char *nonce, uint64_t sequence)
{
    char call[HF_MONGO_COMMAND_SIZE + 1];

    question->key = escaped(key.data, key.size);
    if (!question->key)
        return HF_ENOMEM;
    (void)snprintf(question->command, sizeof(question->command), "%s-%llx",
                   asker->client, (unsigned long long)++asker->commands);
    bson_init(&question->variables);
    BSON_APPEND_UTF8(&question->variables, "command", question->command);
    (void)snprintf(call, sizeof(call), "%s-%llx", asker->client,
                   (unsigned long long)sequence);
    BSON_APPEND_UTF8(&question->variables, "call", call);
    BSON_APPEND_UTF8(&question->variables, "client", asker->client);
    BSON_APPEND_UTF8(&question->variables, "nonce", nonce);
    return HF_OK;
}

enum hf_err hf_mongo_ask(struct hf_mongo_question *question,
                         struct hf_mongo_asker *asker,
                         const struct hf_command *command, bool doubtful)
{
    char nonce[HF_MONGO_NONCE_SIZE + 1];
    enum hf_err err;

    hf_mongo_hex(nonce, command->nonce.bytes, sizeof(command->nonce.bytes));
    question->script = scripts[command->kind].script;
    question->upsert = scripts[command->kind].upsert ||
                       (doubtful && (command->kind == HF_COMMAND_CANCEL ||
                                     command->kind == HF_COMMAND_UNLOCK));
    err = ask(question, asker, command->key, nonce, command->sequence);
    if (!err)
        add_variables(&question->variables, asker, command, doubtful);
    return err;
}

enum hf_err hf_mongo_ask_look(struct hf_mongo_question *question,
                              struct hf_mongo_asker *asker, struct hf_key key)
{
    question->script = HF_MONGO_LOOK;
    question->upsert = false;
    return ask(question, asker, key, "", 0);
}

bool hf_mongo_question_nonce(const struct hf_mongo_question *question,
                             struct hf_nonce *nonce)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, &question->variables, "nonce") &&
           hf_mongo_unhex(nonce->bytes, sizeof(nonce->bytes),
                          bson_iter_utf8(&at, NULL));
}

void hf_mongo_question_fini(struct hf_mongo_question *question)
{
    if (!question->key)
        return;
    free(question->key);
    bson_destroy(&question->variables);
    question->key = NULL;
}

/* ---- Running ------------------------------------------------------------*/

static void build(bson_t *command, const struct hf_mongo_question *question,
                  const struct hf_mongo_place *place, const char *server)
{
    bson_t child;

    BSON_APPEND_UTF8(command, "findAndModify", place->address.collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "query", &child);
    BSON_APPEND_UTF8(&child, "_id", question->key);
    bson_append_document_end(command, &child);
    BSON_APPEND_ARRAY(command, "update", place->scripts[question->script]);
    BSON_APPEND_DOCUMENT(command, "fields", place->scripts[HF_MONGO_ANSWER]);
    BSON_APPEND_BOOL(command, "new", true);
    BSON_APPEND_BOOL(command, "upsert", question->upsert);
    BSON_APPEND_INT32(command, "maxTimeMS", RUN_MS);
    BSON_APPEND_DOCUMENT_BEGIN(command, "let", &child);
    bson_concat(&child, &question->variables);
    hf_mongo_add_common(&child, server);
    BSON_APPEND_INT64(&child, "keep", place->address.keep_ms);
    BSON_APPEND_INT64(&child, "slack", place->address.keep_ms / 8);
    BSON_APPEND_INT64(&child, "offer", HF_MONGO_OFFER_MS);
    bson_append_document_end(command, &child);
}

static void run_at(const struct hf_mongo_question *question,
                   mongoc_client_t *client, const struct hf_mongo_place *place,
                   const mongoc_server_description_t *server,
                   struct hf_mongo_reply *reply)
{
    bson_t command = BSON_INITIALIZER, *opts = bson_copy(place->write_opts);
    bson_t bson;
    bson_error_t why;
    bool done = false;

    build(&command, question, place, hf_mongo_server_name(server));
    BSON_APPEND_INT32(opts, "serverId",
                      (int32_t)mongoc_server_description_id(server));
    for (int i = 0; !done && i < RACES_MAX; i++) {
        done = mongoc_client_write_command_with_opts(
            client, place->address.database, &command, opts, &bson, &why);
        if (done)
            hf_mongo_read_reply(&bson, question, reply);
        bson_destroy(&bson);
        if (!done && !hf_mongo_lost_a_race(&why))
            break;
    }
    if (!done)
        hf_mongo_fault(reply, &why);
    bson_destroy(&command);
    bson_destroy(opts);
}

/* Who waits wants to look again when the lease ends. */
static bool wants_left(const struct hf_mongo_question *question,
                       const struct hf_mongo_reply *reply)
{
    if (reply->err || !reply->held || reply->mine)
        return false;
    return reply->place >= 0 || question->script == HF_MONGO_LOOK;
}

void hf_mongo_run(const struct hf_mongo_question *question,
                  mongoc_client_t *client, const struct hf_mongo_place *place,
                  struct hf_mongo_reply *reply)
{
    mongoc_server_description_t *server = hf_mongo_choose_server(client, reply);

    if (!server)
        return;
    run_at(question, client, place, server, reply);
    if (wants_left(question, reply))
        reply->has_left = hf_mongo_look_left(question->key, client, place,
                                             server, &reply->left_ms);
    mongoc_server_description_destroy(server);
}
