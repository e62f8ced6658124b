/* oneshot.c - a libmongoc client without monitor threads, for short-lived
 * programs. */
#include "strategy/mongo/worker.h"

/* Closing a pool takes up to 500 ms, because its threads check only that often
 * whether they have to end. Connecting this client must not take longer than
 * that saves. */
#define CONNECT_MS 500

/* So long that this client, which is used only for a short time, never scans
 * all servers a second time. */
#define HEARTBEAT_MS 60000

static mongoc_client_t *new_client(const mongoc_uri_t *uri)
{
    mongoc_client_t *client = mongoc_client_new_from_uri(uri);

    if (!client)
        return NULL;
    (void)mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
    (void)mongoc_client_set_appname(client, "holdfast");
    return client;
}

static bool has_primary(mongoc_client_t *client)
{
    mongoc_server_description_t *server =
        mongoc_client_select_server(client, true, NULL, NULL);

    if (server)
        mongoc_server_description_destroy(server);
    return server != NULL;
}

mongoc_client_t *hf_mongo_oneshot_open(const mongoc_uri_t *from)
{
    mongoc_uri_t *uri;
    mongoc_client_t *client;

    if (mongoc_uri_get_srv_hostname(from))
        return NULL; /* a mongodb+srv: URL would need another DNS lookup */
    uri = mongoc_uri_copy(from);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS,
                                   CONNECT_MS);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                                   CONNECT_MS);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_HEARTBEATFREQUENCYMS,
                                   HEARTBEAT_MS);
    client = new_client(uri);
    mongoc_uri_destroy(uri);
    if (client && !has_primary(client)) {
        mongoc_client_destroy(client);
        client = NULL;
    }
    return client;
}
