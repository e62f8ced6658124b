/* running.c - a question, put to a server by a thread of the crew. */
#include "base/assert.h"
#include "strategy/mongo/command.h"
#include "strategy/mongo/looking.h"

#define RUN_MS 7000 /* how long a server may work on one command */
#define RACES_MAX 8 /* with others who insert the same document */

#define MAX_TIME_EXPIRED 50 /* MongoDB's code */

/* ---- The command --------------------------------------------------------*/

static void add_variables(bson_t *command,
                          const struct hf_mongo_question *question,
                          const struct hf_mongo_place *place,
                          const mongoc_server_description_t *server)
{
    bson_t child;

    BSON_APPEND_DOCUMENT_BEGIN(command, "let", &child);
    bson_concat(&child, &question->variables);
    hf_mongo_add_common(&child, server);
    bson_concat(&child, place->times);
    BSON_APPEND_INT64(&child, "keep", place->address.keep_ms);
    BSON_APPEND_INT64(&child, "offer", HF_MONGO_OFFER_MS);
    bson_append_document_end(command, &child);
}

static void build(bson_t *command, const struct hf_mongo_question *question,
                  enum hf_mongo_script script,
                  const struct hf_mongo_place *place,
                  const mongoc_server_description_t *server)
{
    bson_t query;

    BSON_APPEND_UTF8(command, "findAndModify", place->address.collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "query", &query);
    BSON_APPEND_UTF8(&query, "_id", question->key);
    bson_append_document_end(command, &query);
    BSON_APPEND_ARRAY(command, "update", place->scripts[script]);
    BSON_APPEND_DOCUMENT(command, "fields", place->scripts[HF_MONGO_ANSWER]);
    BSON_APPEND_BOOL(command, "new", true);
    BSON_APPEND_BOOL(command, "upsert", question->upsert);
    BSON_APPEND_INT32(command, "maxTimeMS", RUN_MS);
    add_variables(command, question, place, server);
}

/* Of an update nothing comes back but whether it was done. */
static void build_update(bson_t *command, const bson_t *update,
                         const struct hf_mongo_question *question,
                         const struct hf_mongo_place *place,
                         const mongoc_server_description_t *server,
                         int32_t max_ms)
{
    bson_t updates;

    BSON_APPEND_UTF8(command, "update", place->address.collection);
    BSON_APPEND_ARRAY_BEGIN(command, "updates", &updates);
    BSON_APPEND_DOCUMENT(&updates, "0", update);
    bson_append_array_end(command, &updates);
    BSON_APPEND_INT32(command, "maxTimeMS", max_ms);
    add_variables(command, question, place, server);
}

/* False: others who insert the same document were always first. */
static bool run(const struct hf_mongo_question *question,
                enum hf_mongo_script script, unsigned tries,
                mongoc_client_t *client, const struct hf_mongo_place *place,
                const mongoc_server_description_t *server,
                struct hf_mongo_reply *reply)
{
    bson_t command = BSON_INITIALIZER, bson;
    bool done = false, lost = true;
    bson_error_t why;

    build(&command, question, script, place, server);
    for (; tries > 0 && !done && lost; tries--) {
        done = hf_mongo_write(&command, client, place, server, &bson, &why);
        if (done)
            hf_mongo_read_reply(&bson, question, reply);
        bson_destroy(&bson);
        lost = !done && hf_mongo_lost_a_race(&why);
    }
    if (!done)
        hf_mongo_fault(reply, &why);
    bson_destroy(&command);
    return !lost;
}

/* ---- The short way ------------------------------------------------------*/

/* False: something is in the way, and nothing was done. What that is, lock.json
 * finds out: it may be over, and then it matters little whether a stranger has
 * scribbled on it. */
static bool take(const struct hf_mongo_question *question,
                 mongoc_client_t *client, const struct hf_mongo_place *place,
                 const mongoc_server_description_t *server,
                 struct hf_mongo_reply *reply)
{
    return run(question, HF_MONGO_TAKE, 1, client, place, server, reply) &&
           ((reply->err && !reply->exists) || (reply->mine && reply->fresh));
}

static void build_give(bson_t *command,
                       const struct hf_mongo_question *question,
                       const struct hf_mongo_place *place,
                       const mongoc_server_description_t *server)
{
    bson_t update = BSON_INITIALIZER, query;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "q", &query);
    BSON_APPEND_UTF8(&query, "_id", question->key);
    bson_append_document_end(&update, &query);
    BSON_APPEND_ARRAY(&update, "u", place->scripts[HF_MONGO_GIVE]);
    build_update(command, &update, question, place, server, RUN_MS);
    bson_destroy(&update);
}

/* That it was done is all there is to tell, so an update will do, which is
 * cheaper. False: something is in the way, and unlock.json is to tell; were it
 * done in spite of that, it would find it done. */
static bool give(const struct hf_mongo_question *question,
                 mongoc_client_t *client, const struct hf_mongo_place *place,
                 const mongoc_server_description_t *server,
                 struct hf_mongo_reply *reply)
{
    bson_t command = BSON_INITIALIZER, bson;
    bool decided = true;
    bson_error_t why;

    build_give(&command, question, place, server);
    if (hf_mongo_write(&command, client, place, server, &bson, &why))
        decided = hf_mongo_read_given(&bson, question, reply);
    else
        hf_mongo_fault(reply, &why);
    bson_destroy(&bson);
    bson_destroy(&command);
    return decided;
}

static bool run_brief(const struct hf_mongo_question *question,
                      mongoc_client_t *client,
                      const struct hf_mongo_place *place,
                      const mongoc_server_description_t *server,
                      struct hf_mongo_reply *reply)
{
    bool takes = question->script == HF_MONGO_LOCK;

    if ((takes ? take : give)(question, client, place, server, reply))
        return true;
    *reply = (struct hf_mongo_reply){.crowded = takes};
    return false;
}

/* ---- Running ------------------------------------------------------------*/

static bool wants_position(const struct hf_mongo_question *question,
                           const struct hf_mongo_reply *reply)
{
    return question->queues && !reply->err && !reply->mine && !reply->canceled;
}

static bool wants_left(const struct hf_mongo_question *question,
                       const struct hf_mongo_reply *reply)
{
    return question->script == HF_MONGO_LOOK && !reply->err && reply->held;
}

/* What was written, a majority has confirmed. What was only found may be old:
 * then the key may have been given back meanwhile, at another server. That
 * somebody stands in line is no answer that anyone acts on. */
static bool wants_proof(const struct hf_mongo_question *question,
                        const struct hf_mongo_reply *reply,
                        const struct hf_mongo_place *place)
{
    if (place->alone || question->script == HF_MONGO_LOOK)
        return false;
    return !reply->err && !reply->fresh && reply->place < 0;
}

/* Without it, what was found counts for nothing; and if it was not that the
 * command had been done before, it was surely not done. */
static void prove(const struct hf_mongo_question *question,
                  mongoc_client_t *client, const struct hf_mongo_place *place,
                  const mongoc_server_description_t *server,
                  struct hf_mongo_reply *reply)
{
    bool done_before = reply->mine || reply->ended_mine;
    bson_iter_t asker;

    HF_ASSERT(bson_iter_init_find(&asker, &question->variables, "client"));
    if (!hf_mongo_is_primary(bson_iter_utf8(&asker, NULL), client, place,
                             server, reply) &&
        reply->err == HF_EINDOUBT && !done_before)
        reply->err = HF_EUNAVAIL;
}

static void run_full(const struct hf_mongo_question *question,
                     mongoc_client_t *client,
                     const struct hf_mongo_place *place,
                     const mongoc_server_description_t *server,
                     struct hf_mongo_reply *reply)
{
    if (!question->brief || !run_brief(question, client, place, server, reply))
        (void)run(question, question->script, RACES_MAX, client, place, server,
                  reply);
    if (wants_position(question, reply))
        hf_mongo_find_position(question, client, place, server, reply);
    if (wants_proof(question, reply, place))
        prove(question, client, place, server, reply);
    if (wants_left(question, reply))
        reply->has_left = hf_mongo_look_left(question->key, client, place,
                                             server, &reply->left_ms);
}

void hf_mongo_run(const struct hf_mongo_question *question,
                  mongoc_client_t *client, const struct hf_mongo_place *place,
                  struct hf_mongo_reply *reply)
{
    mongoc_server_description_t *server = hf_mongo_choose_server(client, reply);

    if (!server)
        return;
    if (!question->waits ||
        !hf_mongo_still_waits(question, client, place, server, reply))
        run_full(question, client, place, server, reply);
    mongoc_server_description_destroy(server);
}

/* ---- Sweeping -----------------------------------------------------------*/

static void add_type(bson_t *query, const char *field, const char *name)
{
    bson_t type;

    BSON_APPEND_DOCUMENT_BEGIN(query, field, &type);
    BSON_APPEND_UTF8(&type, "$type", name);
    bson_append_document_end(query, &type);
}

static void add_format(bson_t *query)
{
    bson_t *known =
        BCON_NEW("$not", "{", "$gt", BCON_INT32(HF_MONGO_FORMAT), "}");

    BSON_APPEND_DOCUMENT(query, "format", known);
    bson_destroy(known);
}

/* No claim in the queue differs from what lock.json writes. */
static void add_queue(bson_t *query)
{
    bson_t *none =
        BCON_NEW("0", "{", "line", "{", "$elemMatch", "{", "$not", "{", "$type",
                 BCON_UTF8("object"), "}", "}", "}", "}", "1", "{", "line", "{",
                 "$elemMatch", "{", "$or", "[", "{", "nonce", "{", "$not", "{",
                 "$type", BCON_UTF8("string"), "}", "}", "}", "{", "owner", "{",
                 "$not", "{", "$type", BCON_UTF8("string"), "}", "}", "}", "{",
                 "client", "{", "$not", "{", "$type", BCON_UTF8("string"), "}",
                 "}", "}", "{", "lease", "{", "$not", "{", "$type",
                 BCON_UTF8("long"), "}", "}", "}", "]", "}", "}", "}");

    BSON_APPEND_ARRAY(query, "$nor", none);
    bson_destroy(none);
}

/* Those whose number has come, by the clock of this server, if they are as we
 * write them: the server stops at the first that look.json fails for. Whether the
 * lease has ended look.json sees for itself. */
static void add_abandoned(bson_t *update)
{
    bson_t *due =
        BCON_NEW("$lte", "[", "$gone", "{", "$toLong", "$$now", "}", "]");
    bson_t query;

    BSON_APPEND_DOCUMENT_BEGIN(update, "q", &query);
    add_type(&query, "gone", "long");
    BSON_APPEND_DOCUMENT(&query, "$expr", due);
    add_format(&query);
    add_type(&query, "nonce", "string");
    add_type(&query, "owner", "string");
    add_type(&query, "token", "long");
    add_type(&query, "lease", "long");
    add_type(&query, "line", "array");
    add_queue(&query);
    add_type(&query, "ends", "array");
    add_type(&query, "ends.until", "date");
    bson_append_document_end(update, &query);
    bson_destroy(due);
}

static void build_sweep(bson_t *command,
                        const struct hf_mongo_question *question,
                        const struct hf_mongo_place *place,
                        const mongoc_server_description_t *server,
                        int32_t max_ms)
{
    bson_t update = BSON_INITIALIZER;

    add_abandoned(&update);
    BSON_APPEND_ARRAY(&update, "u", place->scripts[HF_MONGO_LOOK]);
    BSON_APPEND_BOOL(&update, "multi", true);
    build_update(command, &update, question, place, server, max_ms);
    bson_destroy(&update);
}

/* A failure may be in the reply or in an array of it, with the same code. */
static enum hf_err judge_sweep(bool done, const bson_t *reply,
                               const bson_error_t *why)
{
    uint32_t code = done ? 0 : why->code;
    bson_iter_t at, found;

    if (bson_iter_init(&at, reply) &&
        bson_iter_find_descendant(&at, "writeErrors.0.code", &found)) {
        code = (uint32_t)bson_iter_as_int64(&found);
        done = false;
    }
    if (done)
        return HF_OK;
    return code == MAX_TIME_EXPIRED ? HF_ETIMEDOUT : HF_EUNAVAIL;
}

enum hf_err hf_mongo_sweep(const struct hf_mongo_question *question,
                           mongoc_client_t *client,
                           const struct hf_mongo_place *place,
                           const mongoc_server_description_t *server,
                           int32_t max_ms)
{
    bson_t command = BSON_INITIALIZER, bson;
    bson_error_t why;
    enum hf_err err;
    bool done;

    build_sweep(&command, question, place, server, max_ms);
    done = hf_mongo_write(&command, client, place, server, &bson, &why);
    err = judge_sweep(done, &bson, &why);
    bson_destroy(&bson);
    bson_destroy(&command);
    return err;
}
