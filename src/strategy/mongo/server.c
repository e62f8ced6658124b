/* server.c - select the primary, identify its process, and prove that it is the
 * primary. */
#include <stdio.h>

#include "base/assert.h"
#include "strategy/mongo/op.h"

#define PROOF_MS 7000       /* maxTimeMS of a proof */
#define PROOF_KEEP_MS 60000 /* how long the document of a proof is kept */

/* Read the id of the server process. Returns false if the server does not send
 * it; MongoDB 4.4 and later do. */
static bool read_process_id(const mongoc_server_description_t *server,
                            char name[HF_MONGO_CLOCK_SIZE])
{
    const bson_t *hello = mongoc_server_description_hello_response(server);
    bson_iter_t iter, process;

    if (!bson_iter_init(&iter, hello) ||
        !bson_iter_find_descendant(&iter, "topologyVersion.processId",
                                   &process) ||
        !BSON_ITER_HOLDS_OID(&process))
        return false;
    bson_oid_to_string(bson_iter_oid(&process), name);
    return true;
}

static mongoc_server_description_t *refuse_server(
    mongoc_server_description_t *server, struct hf_mongo_reply *reply,
    enum hf_err err, const char *cause)
{
    mongoc_server_description_destroy(server);
    reply->err = err;
    (void)snprintf(reply->cause, sizeof(reply->cause), "%s", cause);
    return NULL;
}

/* Record the fault. No command was sent, so the failure is not in doubt, and
 * HF_EINDOUBT becomes HF_EUNAVAIL. */
static mongoc_server_description_t *refuse_fault(struct hf_mongo_reply *reply,
                                                 const bson_error_t *fault)
{
    hf_mongo_fault_set(reply, fault);
    if (reply->err == HF_EINDOUBT)
        reply->err = HF_EUNAVAIL;
    return NULL;
}

/* Read the server description from the handshake of the connection that the
 * next command uses. The monitor's description may be of an earlier or later
 * server process. The handshake's is always of the process that executes the
 * command, because the connection does not outlive that process. */
static mongoc_server_description_t *read_handshake(
    mongoc_client_t *client, mongoc_server_description_t *selected,
    struct hf_mongo_reply *reply)
{
    bson_error_t fault;
    char name[HF_MONGO_CLOCK_SIZE];
    mongoc_server_description_t *server =
        mongoc_client_get_handshake_description(
            client, mongoc_server_description_id(selected), NULL, &fault);

    mongoc_server_description_destroy(selected);
    if (!server)
        return refuse_fault(reply, &fault);
    if (read_process_id(server, name))
        return server;
    return refuse_server(server, reply, HF_EUNSUPPORTED,
                         "the server does not identify its process: its hello "
                         "reply has no topologyVersion.processId");
}

/* The worker records the server before the handshake, so that its job can be
 * given up if the thread hangs in the handshake, just as if it hangs in a
 * command. */
mongoc_server_description_t *hf_mongo_server_select(
    mongoc_client_t *client, struct hf_mongo_reply *reply)
{
    bson_error_t fault;
    mongoc_server_description_t *selected =
        mongoc_client_select_server(client, true, NULL, &fault);

    reply->reached = selected != NULL;
    if (!selected)
        return refuse_fault(reply, &fault);
    if (!hf_mongo_worker_may_send(mongoc_server_description_id(selected)))
        return refuse_server(selected, reply, HF_EUNAVAIL,
                             "the primary has changed; nothing was sent");
    return read_handshake(client, selected, reply);
}

/* $$server names the clock that times the leases. It is the id of the server
 * process, because a server that restarts at the same address may have another
 * time of day. */
static void add_clock(bson_t *variables,
                      const mongoc_server_description_t *server)
{
    char name[HF_MONGO_CLOCK_SIZE];

    HF_ASSERT(read_process_id(server, name));
    BSON_APPEND_UTF8(variables, "server", name);
}

void hf_mongo_server_add_variables(bson_t *variables,
                                   const mongoc_server_description_t *server)
{
    add_clock(variables, server);
    BSON_APPEND_UTF8(variables, "now", "$$NOW");
}

bool hf_mongo_server_write(const bson_t *command, mongoc_client_t *client,
                           const struct hf_mongo_context *context,
                           const mongoc_server_description_t *server,
                           bson_t *reply, bson_error_t *fault)
{
    bson_t *opts = bson_copy(context->write_opts);
    bool done;

    BSON_APPEND_INT32(opts, "serverId",
                      (int32_t)mongoc_server_description_id(server));
    done = mongoc_client_write_command_with_opts(
        client, context->address.database, command, opts, reply, fault);
    bson_destroy(opts);
    return done;
}

/* The proof is a write to a document of this client. If another server had been
 * elected before the write began, no majority would confirm it. */
bool hf_mongo_server_prove_primary(const char *client_id,
                                   mongoc_client_t *client,
                                   const struct hf_mongo_context *context,
                                   const mongoc_server_description_t *server,
                                   struct hf_mongo_reply *reply)
{
    char name[sizeof("%-") +
              HF_MONGO_CLIENT_SIZE]; /* no escaped key begins with "%-" */
    bson_t *command, answer;
    bson_error_t fault;
    bool done;

    (void)snprintf(name, sizeof(name), "%%-%s", client_id);
    command = BCON_NEW(
        "update", BCON_UTF8(context->address.collection), "updates", "[", "{",
        "q", "{", "_id", BCON_UTF8(name), "}", "u", "[", "{", "$set", "{",
        "reads", "{", "$add", "[", "{", "$ifNull", "[", "$reads", BCON_INT64(0),
        "]", "}", BCON_INT64(1), "]", "}", "delete_at", "{", "$add", "[",
        "$$NOW", BCON_INT64(PROOF_KEEP_MS), "]", "}", "}", "}", "]", "upsert",
        BCON_BOOL(true), "}", "]", "maxTimeMS", BCON_INT32(PROOF_MS));
    done = hf_mongo_server_write(command, client, context, server, &answer,
                                 &fault);
    if (!done) {
        hf_mongo_fault_set(reply, &fault);
    } else if (!hf_mongo_reply_matched_one(&answer)) {
        reply->err = HF_EINDOUBT;
        done = false;
    }
    bson_destroy(&answer);
    bson_destroy(command);
    return done;
}
