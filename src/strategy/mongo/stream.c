#include "strategy/mongo/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define AWAIT_MS 250    /* maxAwaitTimeMS */
#define QUEUE_MAX 16384 /* changes that the client has not taken yet */
#define BACK_OFF_MS 200 /* after the first failure; then doubled each time */
#define BACK_OFF_DOUBLINGS 5 /* limits the back-off to 6.4 s */
#define IDLE_MS 10000        /* how long a released stream stays open */

/* Error codes of MongoDB after which a resume would fail again. */
enum {
    CAPPED_POSITION_LOST = 136,
    INVALID_RESUME_TOKEN = 260, /* the collection was dropped or renamed */
    CHANGE_STREAM_FATAL_ERROR = 280,
    CHANGE_STREAM_HISTORY_LOST = 286,
    OBJECT_TOO_LARGE = 10334,
};

struct hf_mongo_stream {
    struct hf_mongo_workers *workers;
    char client[HF_MONGO_CLIENT_SIZE + 1];
    struct hf_post post;
    void (*on_changes)(void *arg); /* runs in the client's context */
    void *arg;

    pthread_mutex_t mutex;
    pthread_cond_t
        changed;         /* signals a request, room in the queue, or `closed` */
    unsigned references; /* held by the strategy and the thread */
    bool started, closed;
    bool live;       /* the server has answered, and not failed since */
    hf_time idle_at; /* when the thread ends; HF_NEVER: it is needed */
    struct hf_dlist queue;
    unsigned queued;

    uint64_t last; /* time of the newest change that was queued */

    /* The current request, which hf_mongo_stream_request() sets. */
    uint64_t from;
    bool all;
    unsigned request; /* number of the current request */
};

/* The state of the stream's thread. No other thread touches it. */
struct reader {
    unsigned request; /* number of the request that the thread serves */
    bool all;
    uint64_t from;
    bson_t *token;     /* where to resume; NULL: start at `from` */
    uint32_t primary;  /* primary when the stream was opened; 0: unknown */
    unsigned failures; /* consecutive */
};

/* ---- Memory -------------------------------------------------------------*/

static void free_stream(struct hf_mongo_stream *stream)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&stream->queue)))
        free(HF_CONTAINER(link, struct hf_mongo_change, link));
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->mutex);
    free(stream);
}

/* Drop a reference and unlock the mutex, which the caller holds. Dropping the
 * last reference frees the stream. */
static void unref_stream(struct hf_mongo_stream *stream)
{
    bool last = --stream->references == 0;

    pthread_mutex_unlock(&stream->mutex);
    if (last)
        free_stream(stream);
}

/* ---- The queue ----------------------------------------------------------*/

static bool is_wanted(const struct hf_mongo_stream *stream)
{
    return !stream->closed &&
           (stream->idle_at == HF_NEVER || hf_time_now() < stream->idle_at);
}

/* Returns true if the thread is still needed, and serves the latest request. */
static bool is_request_current(const struct hf_mongo_stream *stream,
                               const struct reader *reader)
{
    return is_wanted(stream) && stream->request == reader->request;
}

/* Queue a change, and wait for room if the queue is full. Free the change and
 * return false if there is a newer request, or if the thread is not needed any
 * more. */
static bool queue_change(struct hf_mongo_stream *stream,
                         const struct reader *reader,
                         struct hf_mongo_change *change)
{
    struct hf_waker *waker = NULL;
    bool queued;

    pthread_mutex_lock(&stream->mutex);
    while (is_request_current(stream, reader) && stream->queued >= QUEUE_MAX)
        pthread_cond_wait(&stream->changed, &stream->mutex);
    queued = is_request_current(stream, reader);
    if (queued) {
        hf_dlist_push_back(&stream->queue, &change->link);
        stream->queued++;
        if (change->time > stream->last)
            stream->last = change->time;
        waker = hf_mongo_workers_post(stream->workers, &stream->post);
    }
    pthread_mutex_unlock(&stream->mutex);
    if (waker)
        hf_waker_wake(waker);
    if (!queued)
        free(change);
    return queued;
}

/* ---- The stream ---------------------------------------------------------*/

static mongoc_change_stream_t *open_stream(mongoc_collection_t *collection,
                                           const struct reader *reader,
                                           const char *client)
{
    bson_t pipeline = BSON_INITIALIZER, opts = BSON_INITIALIZER, stages;
    mongoc_change_stream_t *opened;
    const uint32_t epoch = 1700000000;

    BSON_APPEND_ARRAY_BEGIN(&pipeline, "pipeline", &stages);
    hf_mongo_change_add_stages(&stages, reader->all ? NULL : client);
    bson_append_array_end(&pipeline, &stages);
    BSON_APPEND_INT64(&opts, "maxAwaitTimeMS", AWAIT_MS);
    if (reader->token)
        BSON_APPEND_DOCUMENT(&opts, "resumeAfter", reader->token);
    else
        BSON_APPEND_TIMESTAMP(&opts, "startAtOperationTime",
                              epoch + (uint32_t)(reader->from >> 32),
                              (uint32_t)(reader->from >> 8) & 0xffffff);
    opened = mongoc_collection_watch(collection, &pipeline, &opts);
    bson_destroy(&pipeline);
    bson_destroy(&opts);
    return opened;
}

static void save_resume_token(struct reader *reader,
                              const mongoc_change_stream_t *opened)
{
    const bson_t *token = mongoc_change_stream_get_resume_token(
        (mongoc_change_stream_t *)(uintptr_t)opened);

    if (!token)
        return;
    bson_destroy(reader->token);
    reader->token = bson_copy(token);
}

/* Restart at the present cluster time after history was lost, and queue a mark
 * for the gap. */
static void restart_after_gap(struct hf_mongo_stream *stream,
                              struct reader *reader, mongoc_client_t *client)
{
    bson_t ping = BSON_INITIALIZER, reply;
    struct hf_mongo_change *mark;

    BSON_APPEND_INT32(&ping, "ping", 1);
    if (mongoc_client_command_simple(client, "admin", &ping, NULL, &reply,
                                     NULL) &&
        hf_mongo_reply_time(&reply) > 0) {
        bson_destroy(reader->token);
        reader->token = NULL;
        reader->from = hf_mongo_reply_time(&reply);
        mark = hf_mongo_change_new(reader->from, "", "");
        if (mark) {
            mark->lost = true;
            (void)queue_change(stream, reader, mark);
        }
    }
    bson_destroy(&ping);
    bson_destroy(&reply);
}

/* Call is_request_current() with the mutex locked, and record whether the
 * stream is live. */
static bool check_current(struct hf_mongo_stream *stream,
                          const struct reader *reader, bool live)
{
    bool current;

    pthread_mutex_lock(&stream->mutex);
    current = is_request_current(stream, reader);
    stream->live = current && live;
    pthread_mutex_unlock(&stream->mutex);
    return current;
}

static bool is_history_lost(uint32_t code)
{
    return code == CAPPED_POSITION_LOST || code == INVALID_RESUME_TOKEN ||
           code == CHANGE_STREAM_FATAL_ERROR ||
           code == CHANGE_STREAM_HISTORY_LOST || code == OBJECT_TOO_LARGE;
}

/* Return libmongoc's id of the primary, or 0 if no primary is known. */
static uint32_t find_primary(const mongoc_client_t *client)
{
    uint32_t primary = 0;
    size_t count = 0;
    mongoc_server_description_t **servers =
        mongoc_client_get_server_descriptions(client, &count);

    for (size_t i = 0; i < count; i++)
        if (!strcmp(mongoc_server_description_type(servers[i]), "RSPrimary"))
            primary = mongoc_server_description_id(servers[i]);
    mongoc_server_descriptions_destroy_all(servers, count);
    return primary;
}

/* Returns true if another server is the primary now. Then the stream has to
 * move: it stays open when its server steps down, and if that server is cut off
 * from the others, the stream delivers nothing and never fails. */
static bool has_primary_changed(const struct reader *reader,
                                const mongoc_client_t *client)
{
    uint32_t primary = find_primary(client);

    return primary != 0 && primary != reader->primary;
}

/* Read changes until the stream fails, the primary changes, there is a new
 * request, or the thread is not needed any more. Returns false if the history
 * was lost, so that the stream cannot resume. */
static bool read_changes(struct hf_mongo_stream *stream, struct reader *reader,
                         mongoc_change_stream_t *opened,
                         const mongoc_client_t *client)
{
    const bson_t *document = NULL;
    bson_error_t fault;

    for (bool live = false; check_current(stream, reader, live); live = true) {
        struct hf_mongo_change *change = NULL;

        if (mongoc_change_stream_next(opened, &document)) {
            change = hf_mongo_change_read(document);
            if (change && !queue_change(stream, reader, change))
                break;
        } else if (mongoc_change_stream_error_document(opened, &fault,
                                                       &document)) {
            return !is_history_lost(fault.code);
        } else if (has_primary_changed(reader, client)) {
            break;
        }
        reader->failures = 0;
        save_resume_token(reader, opened);
    }
    return true;
}

/* Sleep, longer after each failure. If the user may not open change streams,
 * every attempt fails, and frequent attempts would load the server. */
static void back_off_stream(struct hf_mongo_stream *stream,
                            struct reader *reader)
{
    unsigned doubled = reader->failures < BACK_OFF_DOUBLINGS
                           ? reader->failures++
                           : BACK_OFF_DOUBLINGS;
    uint64_t ms = (uint64_t)BACK_OFF_MS << doubled;
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&stream->mutex);
    while (is_request_current(stream, reader) &&
           pthread_cond_clockwait(&stream->changed, &stream->mutex,
                                  CLOCK_MONOTONIC, &until) == 0)
        continue;
    pthread_mutex_unlock(&stream->mutex);
}

/* Copy the current request to `reader`. Returns false if the thread has to end;
 * the next request then starts a new thread. */
static bool adopt_request(struct hf_mongo_stream *stream, struct reader *reader)
{
    bool open;

    pthread_mutex_lock(&stream->mutex);
    open = is_wanted(stream);
    stream->started = open;
    stream->all = stream->all && open;
    if (stream->request != reader->request) {
        bson_destroy(reader->token);
        *reader = (struct reader){.request = stream->request,
                                  .all = stream->all,
                                  .from = stream->from};
    }
    pthread_mutex_unlock(&stream->mutex);
    return open;
}

static void stream_main(void *arg, mongoc_client_t *client,
                        const struct hf_mongo_context *context)
{
    struct hf_mongo_stream *stream = arg;
    struct reader reader = {0};
    mongoc_collection_t *collection = mongoc_client_get_collection(
        client, context->address.database, context->address.collection);

    while (adopt_request(stream, &reader)) {
        mongoc_change_stream_t *opened;

        reader.primary = find_primary(client);
        opened = open_stream(collection, &reader, stream->client);
        if (!read_changes(stream, &reader, opened, client))
            restart_after_gap(stream, &reader, client);
        mongoc_change_stream_destroy(opened);
        if (check_current(stream, &reader, false))
            back_off_stream(stream, &reader);
    }
    bson_destroy(reader.token);
    mongoc_collection_destroy(collection);
    pthread_mutex_lock(&stream->mutex);
    unref_stream(stream);
}

/* ---- In the client's context --------------------------------------------*/

static void on_stream_post(struct hf_post *post)
{
    struct hf_mongo_stream *stream =
        HF_CONTAINER(post, struct hf_mongo_stream, post);

    stream->on_changes(stream->arg);
}

struct hf_mongo_stream *hf_mongo_stream_open(
    struct hf_mongo_workers *workers, const struct hf_mongo_identity *identity,
    void (*on_changes)(void *arg), void *arg)
{
    struct hf_mongo_stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->workers = workers;
    memcpy(stream->client, identity->client, sizeof(stream->client));
    stream->post.run = on_stream_post;
    stream->on_changes = on_changes;
    stream->arg = arg;
    stream->references = 1;
    stream->idle_at = HF_NEVER;
    hf_dlist_init(&stream->queue);
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->changed, NULL);
    return stream;
}

void hf_mongo_stream_close(struct hf_mongo_stream *stream, struct hf_host *host)
{
    if (!stream)
        return;
    pthread_mutex_lock(&stream->mutex);
    stream->closed = true; /* the thread posts nothing after this */
    host->ops->unpost(host, &stream->post);
    pthread_cond_broadcast(&stream->changed);
    unref_stream(stream);
}

static bool start_stream_thread(struct hf_mongo_stream *stream)
{
    if (stream->started)
        return true;
    stream->references++;
    stream->started =
        hf_mongo_workers_start_task(stream->workers, stream_main, stream);
    stream->references -= !stream->started;
    return stream->started;
}

/* Start no later than the last change that was queued, so that widening the
 * request to all changes skips no grant that a waiter needs. */
bool hf_mongo_stream_request(struct hf_mongo_stream *stream, uint64_t time,
                             bool all)
{
    bool is_wider, started;

    pthread_mutex_lock(&stream->mutex);
    stream->idle_at = HF_NEVER;
    if (!stream->started)
        stream->last = time;
    is_wider = all && (!stream->all || time < stream->last);
    if (!stream->started || is_wider) {
        stream->from = time < stream->last ? time : stream->last;
        stream->all = stream->all || all;
        stream->request++;
        pthread_cond_broadcast(&stream->changed);
    }
    started = start_stream_thread(stream);
    pthread_mutex_unlock(&stream->mutex);
    return started;
}

bool hf_mongo_stream_is_live(struct hf_mongo_stream *stream)
{
    bool live;

    pthread_mutex_lock(&stream->mutex);
    live = stream->live;
    pthread_mutex_unlock(&stream->mutex);
    return live;
}

void hf_mongo_stream_release(struct hf_mongo_stream *stream)
{
    pthread_mutex_lock(&stream->mutex);
    stream->idle_at = hf_time_add(hf_time_now(), IDLE_MS);
    pthread_mutex_unlock(&stream->mutex);
}

struct hf_mongo_change *hf_mongo_stream_take(struct hf_mongo_stream *stream)
{
    struct hf_dlist *link;

    pthread_mutex_lock(&stream->mutex);
    link = hf_dlist_take(&stream->queue);
    if (link && stream->queued-- == QUEUE_MAX)
        pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
    return link ? HF_CONTAINER(link, struct hf_mongo_change, link) : NULL;
}
