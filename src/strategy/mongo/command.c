#include "strategy/mongo/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define CROWDED 16 /* LOCKs of a client, after one that met somebody */

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
        add_bytes(to, "value", command->value);
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

/* Where nobody else wants the key, a few words do, which the server reads in
 * half the time. Who meets somebody pays for that with a second round trip, and
 * so does not try again at once. */
static bool is_brief(struct hf_mongo_asker *asker,
                     const struct hf_command *command, bool doubtful)
{
    if (doubtful) /* an earlier copy may have been there */
        return false;
    if (command->kind == HF_COMMAND_UNLOCK)
        return true;
    if (command->kind != HF_COMMAND_LOCK)
        return false;
    if (asker->crowded == 0)
        return true;
    asker->crowded--;
    return false;
}

void hf_mongo_asker_learn(struct hf_mongo_asker *asker,
                          const struct hf_mongo_reply *reply)
{
    if (reply->crowded)
        asker->crowded = CROWDED;
}

enum hf_err hf_mongo_ask(struct hf_mongo_question *question,
                         struct hf_mongo_asker *asker,
                         const struct hf_command *command, bool doubtful,
                         bool waits)
{
    bool locks = command->kind == HF_COMMAND_LOCK;
    char nonce[HF_MONGO_NONCE_SIZE + 1];
    enum hf_err err;

    hf_mongo_hex(nonce, command->nonce.bytes, sizeof(command->nonce.bytes));
    question->script = scripts[command->kind].script;
    question->upsert = scripts[command->kind].upsert ||
                       (doubtful && (command->kind == HF_COMMAND_CANCEL ||
                                     command->kind == HF_COMMAND_UNLOCK));
    question->queues = locks && command->queue;
    question->waits = locks && waits;
    question->brief = !question->waits && is_brief(asker, command, doubtful);
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

enum hf_err hf_mongo_ask_sweep(struct hf_mongo_question *question,
                               struct hf_mongo_asker *asker)
{
    return hf_mongo_ask_look(question, asker, hf_key(""));
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
