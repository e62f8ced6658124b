#include "strategy/mongo/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/mongo/op.h"

#define OPEN_MS 10000     /* how long hf_open() waits for the handshake */
#define HANDSHAKE_MS 8000 /* how long failed attempts are repeated */
#define WIRE_MIN 17       /* MongoDB 6.0; pipelines need $tsIncrement */
#define INDEX_MS 10000    /* maxTimeMS of createIndexes */

struct handshake {
    struct hf_mongo_job job;
    struct hf_mongo_reply reply;
    bool standalone;
    bool reached; /* a server was selected, in any attempt so far */
};

static void drop_handshake(struct hf_mongo_job *job)
{
    free(HF_CONTAINER(job, struct handshake, job));
}

bool hf_mongo_handshake_create_index(mongoc_client_t *client,
                                     const struct hf_mongo_context *context,
                                     bson_error_t *fault)
{
    bson_t *command =
        BCON_NEW("createIndexes", BCON_UTF8(context->address.collection),
                 "indexes", "[", "{", "key", "{", "delete_at", BCON_INT32(1),
                 "}", "name", BCON_UTF8("delete_at"), "expireAfterSeconds",
                 BCON_INT32(0), "}", "]", "maxTimeMS", BCON_INT32(INDEX_MS));
    bool done = mongoc_client_write_command_with_opts(
        client, context->address.database, command, context->write_opts, NULL,
        fault);

    bson_destroy(command);
    return done;
}

static enum hf_err check_kind(struct handshake *handshake, const char *kind,
                              int64_t wire, bool unsafe)
{
    struct hf_mongo_reply *reply = &handshake->reply;
    const char *refusal = NULL;

    handshake->standalone = !strcmp(kind, "Standalone");
    if (wire < WIRE_MIN)
        refusal = "the server is older than MongoDB 6.0; upgrade it";
    else if (!strcmp(kind, "Mongos"))
        refusal = "the server is a router of a sharded cluster (mongos), which "
                  "cannot prove a lock; list the members of one replica set";
    else if (handshake->standalone && !unsafe)
        refusal = "the server is standalone: no failover keeps its locks; make "
                  "it a replica set, or add ?unsafe=1";
    if (!refusal)
        return HF_OK;
    (void)snprintf(reply->cause, sizeof(reply->cause), "%s", refusal);
    reply->err = HF_EUNSUPPORTED;
    return reply->err;
}

static void try_handshake(struct handshake *handshake, mongoc_client_t *client,
                          const struct hf_mongo_context *context)
{
    mongoc_server_description_t *server =
        hf_mongo_server_select(client, &handshake->reply);
    bson_iter_t wire;
    bson_error_t fault;
    int64_t version = 0;

    handshake->reached = handshake->reached || handshake->reply.reached;
    if (!server)
        return;
    if (bson_iter_init_find(&wire,
                            mongoc_server_description_hello_response(server),
                            "maxWireVersion"))
        version = bson_iter_as_int64(&wire);
    if (check_kind(handshake, mongoc_server_description_type(server), version,
                   context->address.unsafe) == HF_OK &&
        !hf_mongo_handshake_create_index(client, context, &fault))
        hf_mongo_fault_set(&handshake->reply, &fault);
    mongoc_server_description_destroy(server);
}

/* Returns true if any server has answered. Then a primary may be elected soon,
 * and the handshake is worth repeating. */
static bool has_server_answered(const struct handshake *handshake,
                                mongoc_client_t *client)
{
    size_t count = 0;
    mongoc_server_description_t **servers =
        mongoc_client_get_server_descriptions(client, &count);
    bool answered = handshake->reached;

    for (size_t i = 0; i < count; i++)
        if (strcmp(mongoc_server_description_type(servers[i]), "Unknown") != 0)
            answered = true;
    mongoc_server_descriptions_destroy_all(servers, count);
    return answered;
}

/* Repeat the handshake for up to HANDSHAKE_MS if its outcome is unknown, or if
 * servers answer but there is no primary: an election may be under way, or the
 * primary may have just stepped down. */
static void run_handshake(struct hf_mongo_job *job, mongoc_client_t *client,
                          const struct hf_mongo_context *context)
{
    struct handshake *handshake = HF_CONTAINER(job, struct handshake, job);
    hf_time until = hf_time_add(hf_time_now(), HANDSHAKE_MS);
    enum hf_err err;

    do {
        handshake->reply = (struct hf_mongo_reply){.err = HF_OK};
        try_handshake(handshake, client, context);
        err = handshake->reply.err;
    } while ((err == HF_EINDOUBT ||
              (err == HF_EUNAVAIL && has_server_answered(handshake, client))) &&
             hf_time_now() < until);
}

enum hf_err hf_mongo_handshake_run(struct hf_mongo_workers *workers,
                                   struct hf_error *error)
{
    struct handshake *handshake = calloc(1, sizeof(*handshake));
    enum hf_err err;

    if (!handshake)
        return hf_error_set_code(error, HF_ENOMEM);
    handshake->job.run = run_handshake;
    handshake->job.drop = drop_handshake;
    if (!hf_mongo_workers_await(workers, &handshake->job, OPEN_MS))
        return hf_error_set(error, HF_EUNAVAIL,
                            "mongodb: no reply from any server within %d s",
                            OPEN_MS / 1000);
    err = handshake->reply.err;
    if (err == HF_EINDOUBT)
        err = HF_EUNAVAIL;
    if (err)
        (void)hf_error_set(error, err, "mongodb: %s", handshake->reply.cause);
    else
        hf_mongo_workers_set_standalone(workers, handshake->standalone);
    free(handshake);
    return err;
}
