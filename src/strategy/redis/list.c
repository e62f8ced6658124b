#include "strategy/redis/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"

/* Keys in one step of the scan. A step blocks the server, so it must be
 * short. */
#define SCAN_COUNT 1024

struct hf_redis_list {
    struct hf_redis_connection *server;
    hf_redis_list_fn *done; /* NULL: the results are not wanted */
    void *arg;
    hf_time *progress; /* may be NULL */
    struct hf_redis_call scan;
    unsigned pending; /* replies */
    bool scanned;     /* the scan is complete */
    char cursor[24];
    enum hf_err err;
    char *cause;
    struct hf_info *infos;
    size_t count, capacity;
    size_t prefix_size;
    /* The MATCH argument: the keyspace's prefix and the user's, both escaped,
     * and a star. */
    char pattern[2 * (HF_REDIS_SPACE_MAX + HF_KEY_MAX) + 1];
    size_t pattern_size;
    uint8_t prefix[HF_KEY_MAX];
};

/* The READ of one key that the scan found. */
struct listed_read {
    struct hf_redis_call call;
    struct hf_redis_list *list;
    size_t key_size;
    uint8_t key[];
};

static void continue_list(struct hf_redis_list *list);

static void clear_list(struct hf_redis_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        hf_info_fini(&list->infos[i]);
    free(list->infos);
    free(list->cause);
    list->infos = NULL;
    list->cause = NULL;
    list->count = 0;
}

static void fail_list(struct hf_redis_list *list, enum hf_err err,
                      const char *text)
{
    if (list->err)
        return;
    list->err = err;
    list->cause = strdup(text);
}

/* ---- Result -------------------------------------------------------------*/

static void finish_list(struct hf_redis_list *list)
{
    struct hf_redis_list_result listed = {.err = list->err,
                                          .cause = list->cause};

    if (list->done) {
        /* SCAN may report a key more than once, so remove duplicates. */
        list->count = hf_info_sort_unique(list->infos, list->count);
        if (!list->err) {
            listed.infos = list->infos;
            listed.count = list->count;
            list->infos = NULL;
            list->count = 0;
        }
        list->cause = NULL;
        list->done(list->arg, &listed);
    }
    clear_list(list);
    free(list);
}

/* ---- READ ---------------------------------------------------------------*/

static enum hf_err keep_info(struct hf_redis_list *list, struct hf_info *info)
{
    if (list->count == HF_LIST_MAX)
        return HF_ELIMIT;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct hf_info *infos = realloc(list->infos, capacity * sizeof(*infos));

        if (!infos)
            return HF_ENOMEM;
        list->infos = infos;
        list->capacity = capacity;
    }
    list->infos[list->count++] = *info;
    return HF_OK;
}

static void decode_listed_read(struct listed_read *listed_read,
                               const redisReply *reply)
{
    struct hf_redis_list *list = listed_read->list;
    struct hf_info info = {.storage = NULL};
    bool ours = false;
    enum hf_err err = hf_redis_reply_decode_read(
        list->server, reply,
        (struct hf_key){listed_read->key, listed_read->key_size}, &info, &ours);

    /* Keys of other programs are not locks, so they are not listed. */
    if (!err && ours && list->done)
        err = keep_info(list, &info);
    else if (!err)
        hf_info_fini(&info);
    if (err && info.storage)
        hf_info_fini(&info);
    if (err)
        fail_list(list, err,
                  reply->type == REDIS_REPLY_ERROR ? reply->str
                                                   : hf_err_text(err));
}

static void on_listed_read_reply(struct hf_redis_call *call,
                                 const redisReply *reply)
{
    struct listed_read *listed_read =
        HF_CONTAINER(call, struct listed_read, call);
    struct hf_redis_list *list = listed_read->list;

    if (reply)
        decode_listed_read(listed_read, reply);
    else
        fail_list(list, HF_EUNAVAIL, list->server->failure.text);
    free(listed_read);
    list->pending--;
    continue_list(list);
}

static void send_listed_read(struct hf_redis_list *list, struct hf_key name)
{
    struct hf_redis_script_call script_call;
    struct hf_key key;
    struct listed_read *listed_read;

    if (!hf_redis_keyspace_strip(&list->server->address->space, name, &key) ||
        hf_redis_keyspace_is_reserved(key) || key.size > HF_KEY_MAX ||
        !hf_key_has_prefix(key,
                           (struct hf_key){list->prefix, list->prefix_size}))
        return;
    listed_read = malloc(sizeof(*listed_read) + key.size);
    if (!listed_read) {
        fail_list(list, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    *listed_read = (struct listed_read){
        .call.reply = on_listed_read_reply, .list = list, .key_size = key.size};
    hf_copy(listed_read->key, key.data, key.size);
    hf_redis_script_call_read(&script_call, list->server, key);
    if (hf_redis_connection_send(list->server, &listed_read->call,
                                 &script_call.args)) {
        list->pending++;
    } else {
        free(listed_read);
        fail_list(list, HF_EUNAVAIL, list->server->failure.text);
    }
}

/* ---- SCAN ---------------------------------------------------------------*/

/* Returns true if the reply has the form {cursor, keys...}. */
static bool is_scan_reply(const struct hf_redis_list *list,
                          const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
        reply->element[0]->len >= sizeof(list->cursor))
        return false;
    for (size_t i = 0; i < reply->elements; i++) {
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return false;
    }
    return true;
}

static void decode_scan_reply(struct hf_redis_list *list,
                              const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_list(list, hf_redis_reply_handle_error(list->server, reply),
                  reply->str);
        return;
    }
    if (!is_scan_reply(list, reply)) {
        fail_list(list, HF_EPROTO,
                  "unexpected reply to scan.lua: expected an "
                  "array of strings");
        return;
    }
    memcpy(list->cursor, reply->element[0]->str, reply->element[0]->len + 1);
    list->scanned = !strcmp(list->cursor, "0");
    if (list->done && list->progress)
        *list->progress = list->server->host->ops->now(list->server->host);
    for (size_t i = 1; i < reply->elements && !list->err; i++)
        send_listed_read(list, (struct hf_key){reply->element[i]->str,
                                               reply->element[i]->len});
}

static void on_scan_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_list *list = HF_CONTAINER(call, struct hf_redis_list, scan);

    if (reply)
        decode_scan_reply(list, reply);
    else
        fail_list(list, HF_EUNAVAIL, list->server->failure.text);
    list->pending--;
    continue_list(list);
}

static void send_scan(struct hf_redis_list *list)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, "EVALSHA");
    hf_redis_resp_add(&args, list->server->shas[HF_REDIS_SCAN],
                      HF_REDIS_SHA_SIZE);
    hf_redis_resp_add_number(&args, 0);
    hf_redis_resp_add_text(&args, list->cursor);
    hf_redis_resp_add(&args, list->pattern, list->pattern_size);
    hf_redis_resp_add_number(&args, SCAN_COUNT);
    list->scan.reply = on_scan_reply;
    if (hf_redis_connection_send(list->server, &list->scan, &args))
        list->pending++;
    else
        fail_list(list, HF_EUNAVAIL, list->server->failure.text);
}

/* Send the next step of the scan only when all READs of the last step are
 * answered. That limits the number of pending READs. */
static void continue_list(struct hf_redis_list *list)
{
    if (list->pending == 0 && !list->scanned && !list->err)
        send_scan(list);
    if (list->pending == 0)
        finish_list(list);
}

static void escape_pattern(struct hf_redis_list *list, struct hf_key prefix)
{
    char bytes[HF_REDIS_KEY_SIZE];
    size_t size = hf_redis_keyspace_name(&list->server->address->space, "",
                                         prefix, bytes);
    char *to = list->pattern;

    for (size_t i = 0; i < size; i++) {
        if (bytes[i] && strchr("*?[]\\", bytes[i]))
            *to++ = '\\';
        *to++ = bytes[i];
    }
    *to++ = '*';
    list->pattern_size = (size_t)(to - list->pattern);
}

enum hf_err hf_redis_list_start(struct hf_redis_connection *server,
                                struct hf_key prefix, hf_redis_list_fn *done,
                                void *arg, hf_time *progress,
                                struct hf_redis_list **list)
{
    struct hf_redis_list *listing = calloc(1, sizeof(*listing));

    if (!listing)
        return HF_ENOMEM;
    listing->server = server;
    listing->done = done;
    listing->arg = arg;
    listing->progress = progress;
    listing->cursor[0] = '0';
    listing->prefix_size = prefix.size;
    hf_copy(listing->prefix, prefix.data, prefix.size);
    escape_pattern(listing, prefix);
    send_scan(listing);
    if (listing->err) {
        clear_list(listing);
        free(listing);
        return HF_EUNAVAIL;
    }
    if (list)
        *list = listing;
    return HF_OK;
}

void hf_redis_list_abandon(struct hf_redis_list *list)
{
    list->done = NULL;
    fail_list(list, HF_ECANCELED, hf_err_text(HF_ECANCELED));
}
