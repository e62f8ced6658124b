/* oneshot.c - a libmongoc client for programs that end soon. */
#include "strategy/mongo/worker.h"

/* The pool's threads look for the end only every half second: so long this may
 * try what would save that. */
#define FIND_MS 500

#define SCAN_MS                                                                \
    60000 /* no second look at all servers: it does not live so long */

static mongoc_client_t *connect_with(const mongoc_uri_t *uri)
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
        return NULL; /* DNS would be asked once more */
    uri = mongoc_uri_copy(from);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS, FIND_MS);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                                   FIND_MS);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_HEARTBEATFREQUENCYMS,
                                   SCAN_MS);
    client = connect_with(uri);
    mongoc_uri_destroy(uri);
    if (client && !has_primary(client)) {
        mongoc_client_destroy(client);
        client = NULL;
    }
    return client;
}
