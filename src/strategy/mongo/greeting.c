#include "strategy/mongo/greeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/mongo/command.h"

#define OPEN_MS 10000  /* hf_open() waits so long for a server */
#define GREET_MS 8000  /* and so long one is looked for again */
#define WIRE_MIN 17    /* MongoDB 6.0: $tsIncrement, let */
#define INDEX_MS 10000 /* how long making the index may take */

/* Looks what kind of server it is, and sees to the index. */
struct greeting {
    struct hf_mongo_job job;
    struct hf_mongo_reply reply;
    bool alone;
    bool reached; /* a server was found, now or before */
};

static void drop(struct hf_mongo_job *job)
{
    free(HF_CONTAINER(job, struct greeting, job));
}

bool hf_mongo_make_index(mongoc_client_t *client,
                         const struct hf_mongo_place *place, bson_error_t *why)
{
    bson_t *command =
        BCON_NEW("createIndexes", BCON_UTF8(place->address.collection),
                 "indexes", "[", "{", "key", "{", "gone", BCON_INT32(1), "}",
                 "name", BCON_UTF8("gone"), "expireAfterSeconds", BCON_INT32(0),
                 "}", "]", "maxTimeMS", BCON_INT32(INDEX_MS));
    bool done = mongoc_client_write_command_with_opts(
        client, place->address.database, command, place->write_opts, NULL, why);

    bson_destroy(command);
    return done;
}

static enum hf_err check_kind(struct greeting *greeting, const char *kind,
                              int64_t wire, bool unsafe)
{
    struct hf_mongo_reply *reply = &greeting->reply;
    const char *wrong = NULL;

    greeting->alone = !strcmp(kind, "Standalone");
    if (wire < WIRE_MIN)
        wrong = "MongoDB older than 6.0";
    else if (!strcmp(kind, "Mongos"))
        wrong = "a router of a sharded cluster, behind which a lock cannot be "
                "proved: name the members of one replica set";
    else if (greeting->alone && !unsafe)
        wrong = "a standalone server, whose locks no failover keeps: make it a "
                "replica set, or say ?unsafe=1";
    if (!wrong)
        return HF_OK;
    (void)snprintf(reply->cause, sizeof(reply->cause), "%s", wrong);
    reply->err = HF_EUNSUPPORTED;
    return reply->err;
}

static void greet(struct greeting *greeting, mongoc_client_t *client,
                  const struct hf_mongo_place *place)
{
    mongoc_server_description_t *server =
        hf_mongo_choose_server(client, &greeting->reply);
    bson_iter_t wire;
    bson_error_t why;
    int64_t version = 0;

    greeting->reached = greeting->reached || greeting->reply.reached;
    if (!server)
        return;
    if (bson_iter_init_find(&wire,
                            mongoc_server_description_hello_response(server),
                            "maxWireVersion"))
        version = bson_iter_as_int64(&wire);
    if (check_kind(greeting, mongoc_server_description_type(server), version,
                   place->address.unsafe) == HF_OK &&
        !hf_mongo_make_index(client, place, &why))
        hf_mongo_fault(&greeting->reply, &why);
    mongoc_server_description_destroy(server);
}

/* Whether any server has answered: then there may be a primary soon. */
static bool is_there(const struct greeting *greeting, mongoc_client_t *client)
{
    size_t count = 0;
    mongoc_server_description_t **servers =
        mongoc_client_get_server_descriptions(client, &count);
    bool there = greeting->reached;

    for (size_t i = 0; i < count; i++)
        if (strcmp(mongoc_server_description_type(servers[i]), "Unknown") != 0)
            there = true;
    mongoc_server_descriptions_destroy_all(servers, count);
    return there;
}

/* Servers that are there, and do not manage, are asked again: one may have been
 * elected just now, or no longer be the primary. */
static void run(struct hf_mongo_job *job, mongoc_client_t *client,
                const struct hf_mongo_place *place)
{
    struct greeting *greeting = HF_CONTAINER(job, struct greeting, job);
    hf_time until = hf_time_add(hf_time_now(), GREET_MS);
    enum hf_err err;

    do {
        greeting->reply = (struct hf_mongo_reply){.err = HF_OK};
        greet(greeting, client, place);
        err = greeting->reply.err;
    } while ((err == HF_EINDOUBT ||
              (err == HF_EUNAVAIL && is_there(greeting, client))) &&
             hf_time_now() < until);
}

enum hf_err hf_mongo_greet(struct hf_mongo_crew *crew, struct hf_error *error)
{
    struct greeting *greeting = calloc(1, sizeof(*greeting));
    enum hf_err err;

    if (!greeting)
        return hf_error_code(error, HF_ENOMEM);
    greeting->job.run = run;
    greeting->job.drop = drop;
    if (!hf_mongo_crew_await(crew, &greeting->job, OPEN_MS))
        return hf_error_set(error, HF_EUNAVAIL,
                            "mongodb: no answer within %d s", OPEN_MS / 1000);
    err = greeting->reply.err;
    if (err == HF_EINDOUBT)
        err = HF_EUNAVAIL;
    if (err)
        (void)hf_error_set(error, err, "mongodb: %s", greeting->reply.cause);
    else
        hf_mongo_crew_set_alone(crew, greeting->alone);
    free(greeting);
    return err;
}
