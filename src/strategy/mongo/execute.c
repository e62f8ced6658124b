/* execute.c - execute an op on the primary: the fast path, the pipeline, and
 * the reads and proofs that follow. */
#include "base/assert.h"
#include "strategy/mongo/op.h"
#include "strategy/mongo/query.h"

#define EXECUTE_MS 7000 /* maxTimeMS of a command */
#define ATTEMPTS_MAX 8  /* attempts at a command that meets conflicts */

#define MAX_TIME_EXPIRED 50 /* MongoDB's error code */

/* ---- The command --------------------------------------------------------*/

static void add_op_variables(bson_t *command, const struct hf_mongo_op *op,
                             const struct hf_mongo_context *context,
                             const mongoc_server_description_t *server)
{
    bson_t child;

    BSON_APPEND_DOCUMENT_BEGIN(command, "let", &child);
    bson_concat(&child, &op->variables);
    hf_mongo_server_add_variables(&child, server);
    bson_concat(&child, context->times);
    BSON_APPEND_INT64(&child, "keep", context->address.keep_ms);
    BSON_APPEND_INT64(&child, "offer", HF_MONGO_OFFER_MS);
    bson_append_document_end(command, &child);
}

static void build_find_and_modify(bson_t *command, const struct hf_mongo_op *op,
                                  enum hf_mongo_script script,
                                  const struct hf_mongo_context *context,
                                  const mongoc_server_description_t *server)
{
    bson_t query;

    BSON_APPEND_UTF8(command, "findAndModify", context->address.collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "query", &query);
    BSON_APPEND_UTF8(&query, "_id", op->key);
    bson_append_document_end(command, &query);
    BSON_APPEND_ARRAY(command, "update", context->scripts[script]);
    BSON_APPEND_DOCUMENT(command, "fields",
                         context->scripts[HF_MONGO_REPLY_FIELDS]);
    BSON_APPEND_BOOL(command, "new", true);
    BSON_APPEND_BOOL(command, "upsert", op->upsert);
    BSON_APPEND_INT32(command, "maxTimeMS", EXECUTE_MS);
    add_op_variables(command, op, context, server);
}

/* Build an update. It is cheaper than findAndModify, but its reply has no
 * document, so it serves only commands that need none. */
static void build_update(bson_t *command, const bson_t *update,
                         const struct hf_mongo_op *op,
                         const struct hf_mongo_context *context,
                         const mongoc_server_description_t *server,
                         int32_t max_ms)
{
    bson_t updates;

    BSON_APPEND_UTF8(command, "update", context->address.collection);
    BSON_APPEND_ARRAY_BEGIN(command, "updates", &updates);
    BSON_APPEND_DOCUMENT(&updates, "0", update);
    bson_append_array_end(command, &updates);
    BSON_APPEND_INT32(command, "maxTimeMS", max_ms);
    add_op_variables(command, op, context, server);
}

/* Execute the pipeline `script`. After a conflict, try again, up to `attempts`
 * times in all. Returns false if every attempt met a conflict. */
static bool run_script(const struct hf_mongo_op *op,
                       enum hf_mongo_script script, unsigned attempts,
                       mongoc_client_t *client,
                       const struct hf_mongo_context *context,
                       const mongoc_server_description_t *server,
                       struct hf_mongo_reply *reply)
{
    bson_t command = BSON_INITIALIZER, bson;
    bool done = false, conflict = true;
    bson_error_t fault;

    build_find_and_modify(&command, op, script, context, server);
    for (; attempts > 0 && !done && conflict; attempts--) {
        done = hf_mongo_server_write(&command, client, context, server, &bson,
                                     &fault);
        if (done)
            hf_mongo_reply_read(&bson, op, reply);
        bson_destroy(&bson);
        conflict = !done && hf_mongo_fault_is_conflict(&fault);
    }
    if (!done)
        hf_mongo_fault_set(reply, &fault);
    bson_destroy(&command);
    return !conflict;
}

/* ---- The fast path ------------------------------------------------------*/

/* Try to take a free key. Returns false if nothing was done, because the key is
 * not free, another client is just taking it, the nonce was canceled, or the
 * document is corrupt. Then lock.json decides: it can replace a corrupt holder
 * whose lease has expired. */
static bool lock_fast(const struct hf_mongo_op *op, mongoc_client_t *client,
                      const struct hf_mongo_context *context,
                      const mongoc_server_description_t *server,
                      struct hf_mongo_reply *reply)
{
    return run_script(op, HF_MONGO_LOCK_FAST, 1, client, context, server,
                      reply) &&
           ((reply->err && !reply->exists) || (reply->mine && reply->fresh));
}

static void build_unlock_fast(bson_t *command, const struct hf_mongo_op *op,
                              const struct hf_mongo_context *context,
                              const mongoc_server_description_t *server)
{
    bson_t update = BSON_INITIALIZER, query;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "q", &query);
    BSON_APPEND_UTF8(&query, "_id", op->key);
    bson_append_document_end(&update, &query);
    BSON_APPEND_ARRAY(&update, "u", context->scripts[HF_MONGO_UNLOCK_FAST]);
    build_update(command, &update, op, context, server, EXECUTE_MS);
    bson_destroy(&update);
}

/* Try to release the lock with an update, which is enough because UNLOCK needs
 * no document in its reply. Returns false if the update changed nothing; then
 * unlock.json decides. If an earlier copy of the UNLOCK was executed,
 * unlock.json finds that in the field `ended`. */
static bool unlock_fast(const struct hf_mongo_op *op, mongoc_client_t *client,
                        const struct hf_mongo_context *context,
                        const mongoc_server_description_t *server,
                        struct hf_mongo_reply *reply)
{
    bson_t command = BSON_INITIALIZER, bson;
    bool decided = true;
    bson_error_t fault;

    build_unlock_fast(&command, op, context, server);
    if (hf_mongo_server_write(&command, client, context, server, &bson, &fault))
        decided = hf_mongo_reply_read_unlock_fast(&bson, op, reply);
    else
        hf_mongo_fault_set(reply, &fault);
    bson_destroy(&bson);
    bson_destroy(&command);
    return decided;
}

static bool run_fast_path(const struct hf_mongo_op *op, mongoc_client_t *client,
                          const struct hf_mongo_context *context,
                          const mongoc_server_description_t *server,
                          struct hf_mongo_reply *reply)
{
    bool is_lock = op->script == HF_MONGO_LOCK;

    if ((is_lock ? lock_fast : unlock_fast)(op, client, context, server, reply))
        return true;
    *reply = (struct hf_mongo_reply){.contended = is_lock};
    return false;
}

/* ---- The whole op -------------------------------------------------------*/

static bool needs_position(const struct hf_mongo_op *op,
                           const struct hf_mongo_reply *reply)
{
    return op->may_queue && !reply->err && !reply->mine && !reply->canceled;
}

static bool needs_left(const struct hf_mongo_op *op,
                       const struct hf_mongo_reply *reply)
{
    return op->script == HF_MONGO_EXPIRE && !reply->err && reply->held;
}

/* Returns true if the server must prove that it is the primary. If the command
 * wrote something, a majority has confirmed it, which is proof enough. If it
 * wrote nothing, the reply may come from a server that has been replaced and
 * does not know of later releases. A position in the queue needs no proof,
 * because it only determines when the LOCK is repeated. Neither does EXPIRE,
 * because its reply only schedules the next check, nor a standalone server,
 * which nothing can replace. */
static bool needs_proof(const struct hf_mongo_op *op,
                        const struct hf_mongo_reply *reply,
                        const struct hf_mongo_context *context)
{
    if (context->standalone || op->script == HF_MONGO_EXPIRE)
        return false;
    return !reply->err && !reply->fresh && reply->position < 0;
}

/* Replace the reply with an error if the proof fails. Nothing was done, so the
 * error is not HF_EINDOUBT, unless the reply reports that an earlier copy of
 * the command was executed. */
static void prove_reply(const struct hf_mongo_op *op, mongoc_client_t *client,
                        const struct hf_mongo_context *context,
                        const mongoc_server_description_t *server,
                        struct hf_mongo_reply *reply)
{
    bool done_before = reply->mine || reply->ended_mine;
    bson_iter_t client_id;

    HF_ASSERT(bson_iter_init_find(&client_id, &op->variables, "client"));
    if (!hf_mongo_server_prove_primary(bson_iter_utf8(&client_id, NULL), client,
                                       context, server, reply) &&
        reply->err == HF_EINDOUBT && !done_before)
        reply->err = HF_EUNAVAIL;
}

static void run_all_steps(const struct hf_mongo_op *op, mongoc_client_t *client,
                          const struct hf_mongo_context *context,
                          const mongoc_server_description_t *server,
                          struct hf_mongo_reply *reply)
{
    if (!op->fast_path || !run_fast_path(op, client, context, server, reply))
        (void)run_script(op, op->script, ATTEMPTS_MAX, client, context, server,
                         reply);
    if (needs_position(op, reply))
        hf_mongo_position_read(op, client, context, server, reply);
    if (needs_proof(op, reply, context))
        prove_reply(op, client, context, server, reply);
    if (needs_left(op, reply))
        reply->has_left = hf_mongo_query_left_ms(op->key, client, context,
                                                 server, &reply->left_ms);
}

void hf_mongo_execute(const struct hf_mongo_op *op, mongoc_client_t *client,
                      const struct hf_mongo_context *context,
                      struct hf_mongo_reply *reply)
{
    mongoc_server_description_t *server = hf_mongo_server_select(client, reply);

    if (!server)
        return;
    if (!op->waits ||
        !hf_mongo_position_still_waits(op, client, context, server, reply))
        run_all_steps(op, client, context, server, reply);
    mongoc_server_description_destroy(server);
}

/* ---- Sweeps -------------------------------------------------------------*/

static void match_type(bson_t *query, const char *field, const char *name)
{
    bson_t type;

    BSON_APPEND_DOCUMENT_BEGIN(query, field, &type);
    BSON_APPEND_UTF8(&type, "$type", name);
    bson_append_document_end(query, &type);
}

static void match_format(bson_t *query)
{
    bson_t *known =
        BCON_NEW("$not", "{", "$gt", BCON_INT32(HF_MONGO_FORMAT), "}");

    BSON_APPEND_DOCUMENT(query, "format", known);
    bson_destroy(known);
}

/* Match documents in whose queue every claim has the types that lock.json
 * writes. */
static void match_queue(bson_t *query)
{
    bson_t *none = BCON_NEW(
        "0", "{", "queue", "{", "$elemMatch", "{", "$not", "{", "$type",
        BCON_UTF8("object"), "}", "}", "}", "}", "1", "{", "queue", "{",
        "$elemMatch", "{", "$or", "[", "{", "nonce", "{", "$not", "{", "$type",
        BCON_UTF8("string"), "}", "}", "}", "{", "owner", "{", "$not", "{",
        "$type", BCON_UTF8("string"), "}", "}", "}", "{", "client", "{", "$not",
        "{", "$type", BCON_UTF8("string"), "}", "}", "}", "{", "lease", "{",
        "$not", "{", "$type", BCON_UTF8("long"), "}", "}", "}", "]", "}", "}",
        "}");

    BSON_APPEND_ARRAY(query, "$nor", none);
    bson_destroy(none);
}

/* Match documents whose `delete_at` has passed by the server's clock, and whose
 * fields have the types that the pipelines write. The types matter because
 * expire.json fails on other types, and one failure would stop the update of
 * all documents. expire.json itself checks whether the lease is due. */
static void match_abandoned(bson_t *update)
{
    bson_t *due =
        BCON_NEW("$lte", "[", "$delete_at", "{", "$toLong", "$$now", "}", "]");
    bson_t query;

    BSON_APPEND_DOCUMENT_BEGIN(update, "q", &query);
    match_type(&query, "delete_at", "long");
    BSON_APPEND_DOCUMENT(&query, "$expr", due);
    match_format(&query);
    match_type(&query, "nonce", "string");
    match_type(&query, "owner", "string");
    match_type(&query, "token", "long");
    match_type(&query, "lease", "long");
    match_type(&query, "queue", "array");
    match_queue(&query);
    match_type(&query, "deadlines", "array");
    match_type(&query, "deadlines.until", "date");
    bson_append_document_end(update, &query);
    bson_destroy(due);
}

static void build_sweep(bson_t *command, const struct hf_mongo_op *op,
                        const struct hf_mongo_context *context,
                        const mongoc_server_description_t *server,
                        int32_t max_ms)
{
    bson_t update = BSON_INITIALIZER;

    match_abandoned(&update);
    BSON_APPEND_ARRAY(&update, "u", context->scripts[HF_MONGO_EXPIRE]);
    BSON_APPEND_BOOL(&update, "multi", true);
    build_update(command, &update, op, context, server, max_ms);
    bson_destroy(&update);
}

/* Convert the result of a sweep. The error code is either the code of the
 * command or in `writeErrors`. */
static enum hf_mongo_swept sweep_result(bool done, const bson_t *reply,
                                        const bson_error_t *fault)
{
    uint32_t code = done ? 0 : fault->code;
    bson_iter_t iter, found;

    if (bson_iter_init(&iter, reply) &&
        bson_iter_find_descendant(&iter, "writeErrors.0.code", &found)) {
        code = (uint32_t)bson_iter_as_int64(&found);
        done = false;
    }
    if (done)
        return HF_MONGO_SWEPT_ALL;
    return code == MAX_TIME_EXPIRED ? HF_MONGO_SWEPT_PART
                                    : HF_MONGO_SWEPT_NOTHING;
}

enum hf_mongo_swept hf_mongo_execute_sweep(
    const struct hf_mongo_op *op, mongoc_client_t *client,
    const struct hf_mongo_context *context,
    const mongoc_server_description_t *server, int32_t max_ms)
{
    bson_t command = BSON_INITIALIZER, bson;
    bson_error_t fault;
    enum hf_mongo_swept swept;
    bool done;

    build_sweep(&command, op, context, server, max_ms);
    done =
        hf_mongo_server_write(&command, client, context, server, &bson, &fault);
    swept = sweep_result(done, &bson, &fault);
    bson_destroy(&bson);
    bson_destroy(&command);
    return swept;
}
