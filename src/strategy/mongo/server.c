/* server.c - which server is asked, by which name, and whether it may answer. */
#include <stdio.h>
#include <time.h>

#include "strategy/mongo/command.h"

#define PROOF_MS 7000 /* how long a server may work on it */

mongoc_server_description_t *hf_mongo_choose_server(
    mongoc_client_t *client, struct hf_mongo_reply *reply)
{
    bson_error_t why;
    mongoc_server_description_t *server =
        mongoc_client_select_server(client, true, NULL, &why);

    if (!server) {
        hf_mongo_fault(reply, &why);
        return NULL;
    }
    if (hf_mongo_crew_may_send(mongoc_server_description_id(server)))
        return server;
    mongoc_server_description_destroy(server);
    reply->err = HF_EUNAVAIL;
    (void)snprintf(reply->cause, sizeof(reply->cause),
                   "the primary has changed; nothing was sent");
    return NULL;
}

/* The documents name clocks by it. A server that goes by two names has two
 * clocks then, which is safe. */
const char *hf_mongo_server_name(const mongoc_server_description_t *server)
{
    return mongoc_server_description_host(server)->host_and_port;
}

/* What this machine calls the time is nobody's business. */
static void add_client_clock(bson_t *variables)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    BSON_APPEND_DATE_TIME(variables, "now",
                          (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

void hf_mongo_add_common(bson_t *variables, const char *server)
{
    BSON_APPEND_UTF8(variables, "server", server);
    if (HF_MUTANT(28))
        add_client_clock(variables);
    else
        BSON_APPEND_UTF8(variables, "now", "$$NOW");
#ifdef HF_MUTANTS
    BSON_APPEND_INT32(variables, "mutant", hf_mutant);
#endif
}

bool hf_mongo_write(const bson_t *command, mongoc_client_t *client,
                    const struct hf_mongo_place *place,
                    const mongoc_server_description_t *server, bson_t *reply,
                    bson_error_t *why)
{
    bson_t *opts = bson_copy(place->write_opts);
    bool done;

    BSON_APPEND_INT32(opts, "serverId",
                      (int32_t)mongoc_server_description_id(server));
    done = mongoc_client_write_command_with_opts(
        client, place->address.database, command, opts, reply, why);
    if (HF_MUTANT(107) && !done)
        done = why->domain == MONGOC_ERROR_WRITE_CONCERN;
    bson_destroy(opts);
    return done;
}

/* By a write to a document of the client's own, which a majority confirms: had
 * another server been elected before that began, none would. */
bool hf_mongo_is_primary(const char *asker, mongoc_client_t *client,
                         const struct hf_mongo_place *place,
                         const mongoc_server_description_t *server,
                         struct hf_mongo_reply *reply)
{
    char name[sizeof("%-") + HF_MONGO_CLIENT_SIZE]; /* no key is so */
    bson_t *command, answer;
    bson_error_t why;
    bool done;

    (void)snprintf(name, sizeof(name), "%%-%s", asker);
    command = BCON_NEW(
        "update", BCON_UTF8(place->address.collection), "updates", "[", "{",
        "q", "{", "_id", BCON_UTF8(name), "}", "u", "[", "{", "$set", "{",
        "reads", "{", "$add", "[", "{", "$ifNull", "[", "$reads", BCON_INT64(0),
        "]", "}", BCON_INT64(1), "]", "}", "gone", "{", "$add", "[", "$$NOW",
        BCON_INT64(place->address.keep_ms), "]", "}", "}", "}", "]", "upsert",
        BCON_BOOL(true), "}", "]", "maxTimeMS", BCON_INT32(PROOF_MS));
    done = hf_mongo_write(command, client, place, server, &answer, &why);
    if (!done) {
        hf_mongo_fault(reply, &why);
    } else if (!hf_mongo_found(&answer)) {
        reply->err = HF_EINDOUBT;
        done = false;
    }
    bson_destroy(&answer);
    bson_destroy(command);
    return done;
}
