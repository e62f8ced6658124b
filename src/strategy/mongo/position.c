/* position.c - read the position of a claim in the queue, without a write. */
#include "strategy/mongo/op.h"

#define READ_MS 3000 /* maxTimeMS */

struct position {
    bool mine;     /* the claim holds the key or is offered it */
    bool full;     /* the queue has no room */
    int32_t index; /* from 0; -1: not in the queue */
    bool has_left;
    int64_t left_ms; /* what is left of the holder's lease */
};

static void build_position_find(bson_t *command, const struct hf_mongo_op *op,
                                const struct hf_mongo_context *context,
                                const mongoc_server_description_t *server)
{
    bson_iter_t nonce;
    bson_t child;

    BSON_APPEND_UTF8(command, "find", context->address.collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "filter", &child);
    BSON_APPEND_UTF8(&child, "_id", op->key);
    bson_append_document_end(command, &child);
    BSON_APPEND_DOCUMENT(command, "projection",
                         context->scripts[HF_MONGO_POSITION]);
    BSON_APPEND_INT32(command, "limit", 1);
    BSON_APPEND_BOOL(command, "singleBatch", true);
    BSON_APPEND_INT32(command, "maxTimeMS", READ_MS);
    BSON_APPEND_DOCUMENT_BEGIN(command, "readConcern", &child);
    BSON_APPEND_UTF8(&child, "level", "local"); /* a stale position is fine */
    bson_append_document_end(command, &child);
    BSON_APPEND_DOCUMENT_BEGIN(command, "let", &child);
    if (bson_iter_init_find(&nonce, &op->variables, "nonce"))
        bson_append_iter(&child, "nonce", -1, &nonce);
    hf_mongo_server_add_variables(&child, server);
    bson_append_document_end(command, &child);
}

static void read_position_document(bson_iter_t *iter, struct position *position)
{
    while (bson_iter_next(iter)) {
        const char *name = bson_iter_key(iter);

        if (!strcmp(name, "mine")) {
            position->mine = bson_iter_as_bool(iter);
        } else if (!strcmp(name, "full")) {
            position->full = bson_iter_as_bool(iter);
        } else if (!strcmp(name, "position") && BSON_ITER_HOLDS_NUMBER(iter)) {
            position->index = (int32_t)bson_iter_as_int64(iter);
        } else if (!strcmp(name, "left") && BSON_ITER_HOLDS_NUMBER(iter)) {
            position->has_left = true;
            position->left_ms = bson_iter_as_int64(iter);
        }
    }
}

static void read_position_reply(const bson_t *reply, struct position *position)
{
    bson_iter_t iter, found, document;

    if (bson_iter_init(&iter, reply) &&
        bson_iter_find_descendant(&iter, "cursor.firstBatch.0", &found) &&
        BSON_ITER_HOLDS_DOCUMENT(&found) &&
        bson_iter_recurse(&found, &document))
        read_position_document(&document, position);
}

static bool query_position(const struct hf_mongo_op *op,
                           mongoc_client_t *client,
                           const struct hf_mongo_context *context,
                           const mongoc_server_description_t *server,
                           struct position *position,
                           struct hf_mongo_reply *reply)
{
    bson_t command = BSON_INITIALIZER, opts = BSON_INITIALIZER, bson;
    bson_error_t fault;
    bool done;

    *position = (struct position){.index = -1};
    build_position_find(&command, op, context, server);
    BSON_APPEND_INT32(&opts, "serverId",
                      (int32_t)mongoc_server_description_id(server));
    done =
        mongoc_client_command_with_opts(client, context->address.database,
                                        &command, NULL, &opts, &bson, &fault);
    if (done)
        read_position_reply(&bson, position);
    else
        hf_mongo_fault_set(reply, &fault);
    if (done && reply->time == 0)
        reply->time = hf_mongo_reply_time(&bson);
    bson_destroy(&bson);
    bson_destroy(&opts);
    bson_destroy(&command);
    return done;
}

static void set_left(struct hf_mongo_reply *reply,
                     const struct position *position)
{
    reply->has_left = position->has_left;
    reply->left_ms = position->left_ms > 0 ? (uint32_t)position->left_ms : 0;
}

/* A claim that is not in the queue was refused if the queue is full, this LOCK
 * did not add the claim, and the claim neither holds the key nor is offered it.
 * In all other cases the claim was granted the key, or was dropped after the
 * LOCK: report position 0 with 0 ms left, so that the LOCK is repeated at
 * once. */
void hf_mongo_position_read(const struct hf_mongo_op *op,
                            mongoc_client_t *client,
                            const struct hf_mongo_context *context,
                            const mongoc_server_description_t *server,
                            struct hf_mongo_reply *reply)
{
    bool joined = reply->fresh;
    struct position position;

    if (!query_position(op, client, context, server, &position, reply)) {
        if (joined && reply->err == HF_EUNAVAIL)
            reply->err = HF_EINDOUBT;
        return;
    }
    reply->position = position.index;
    set_left(reply, &position);
    if (position.index >= 0 || (!joined && position.full && !position.mine))
        return;
    reply->position = 0;
    reply->has_left = true;
    reply->left_ms = 0;
}

/* If this returns false, lock.json has to decide: the claim holds or is offered
 * the key, or is not queued, the lease is due, this server process has no
 * deadline for the lease yet, or the position could not be read. */
bool hf_mongo_position_still_waits(const struct hf_mongo_op *op,
                                   mongoc_client_t *client,
                                   const struct hf_mongo_context *context,
                                   const mongoc_server_description_t *server,
                                   struct hf_mongo_reply *reply)
{
    struct hf_mongo_reply found = {.err = HF_OK};
    struct position position;

    if (!query_position(op, client, context, server, &position, &found) ||
        position.mine || position.index < 0 || !position.has_left ||
        position.left_ms <= 0)
        return false;
    found.held = true;
    found.exists = true;
    found.position = position.index;
    set_left(&found, &position);
    *reply = found;
    return true;
}
