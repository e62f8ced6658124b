/* primary.c - learn from libmongoc's monitors which server is the primary, and
 * give up jobs that were sent to a former primary. */
#include <string.h>

#include "strategy/mongo/worker.h"

static bool is_type(const mongoc_server_description_t *server, const char *type)
{
    return !strcmp(mongoc_server_description_type(server), type);
}

/* Returns true if server `id` can no longer confirm a write, because another
 * server is the primary, or because `id` reports itself as a secondary. A
 * server that is only silent ("Unknown") may still answer, so it does not count
 * as deposed. */
static bool is_deposed(uint32_t id, mongoc_server_description_t **servers,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool same = mongoc_server_description_id(servers[i]) == id;

        if (is_type(servers[i], same ? "RSSecondary" : "RSPrimary"))
            return true;
    }
    return false;
}

/* Add to workers->lost the running jobs that were sent to a deposed primary and
 * have a `lost` function, except the job of the one-shot client, whose server
 * ids differ. Returns true if any was added. */
static bool lose_jobs(struct hf_mongo_workers *workers,
                      mongoc_server_description_t **servers, size_t count)
{
    bool any = false;

    for (struct hf_dlist *link = workers->active.next; link != &workers->active;
         link = link->next) {
        const struct hf_mongo_worker *worker =
            HF_CONTAINER(link, struct hf_mongo_worker, link);
        struct hf_mongo_job *job = worker->job;

        if (!job || !job->lost || hf_dlist_is_linked(&job->link) ||
            worker->server == 0 || worker->oneshot ||
            !is_deposed(worker->server, servers, count))
            continue;
        hf_dlist_push_back(&workers->lost, &job->link);
        any = true;
    }
    return any;
}

/* Runs in a monitor thread of libmongoc, or in any thread that calls libmongoc,
 * so no thread may call libmongoc with the mutex locked. */
static void on_topology_changed(const mongoc_apm_topology_changed_t *event)
{
    struct hf_mongo_workers *workers =
        mongoc_apm_topology_changed_get_context(event);
    size_t count = 0;
    mongoc_server_description_t **servers =
        mongoc_topology_description_get_servers(
            mongoc_apm_topology_changed_get_new_description(event), &count);
    struct hf_waker *waker = NULL;

    pthread_mutex_lock(&workers->mutex);
    workers->primary = 0;
    for (size_t i = 0; i < count; i++)
        if (is_type(servers[i], "RSPrimary"))
            workers->primary = mongoc_server_description_id(servers[i]);
    if (workers->host && lose_jobs(workers, servers, count))
        waker = workers->host->ops->post(workers->host, &workers->post);
    pthread_mutex_unlock(&workers->mutex);
    if (waker)
        hf_waker_wake(waker);
    mongoc_server_descriptions_destroy_all(servers, count);
}

void hf_mongo_primary_monitor(struct hf_mongo_workers *workers)
{
    mongoc_apm_callbacks_t *callbacks = mongoc_apm_callbacks_new();

    mongoc_apm_set_topology_changed_cb(callbacks, on_topology_changed);
    (void)mongoc_client_pool_set_apm_callbacks(workers->pool, callbacks,
                                               workers);
    mongoc_apm_callbacks_destroy(callbacks);
}
