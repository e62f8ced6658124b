#include "strategy/redis/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"

#define SCAN_COUNT                                                             \
    1024 /* keys in one step: the server does nothing else then */

struct hf_redis_list {
    struct hf_redis_link *server;
    hf_redis_list_fn *done; /* NULL: nobody wants the answer */
    void *arg;
    hf_time *progress; /* may be NULL */
    struct hf_redis_call scan;
    unsigned pending; /* replies */
    bool scanned;     /* to the end */
    char cursor[24];
    enum hf_err err;
    char *cause;
    struct hf_info *infos;
    size_t count, capacity;
    size_t prefix_size;
    /* The prefix, with that of the key space, escaped; and a star. */
    char pattern[2 * (HF_REDIS_SPACE_MAX + HF_KEY_MAX) + 1];
    size_t pattern_size;
    uint8_t prefix[HF_KEY_MAX];
};

struct look {
    struct hf_redis_call call;
    struct hf_redis_list *list;
    size_t key_size;
    uint8_t key[];
};

static void go_on(struct hf_redis_list *list);

static void clear(struct hf_redis_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        hf_info_fini(&list->infos[i]);
    free(list->infos);
    free(list->cause);
    list->infos = NULL;
    list->cause = NULL;
    list->count = 0;
}

static void fail(struct hf_redis_list *list, enum hf_err err, const char *text)
{
    if (list->err)
        return;
    list->err = err;
    list->cause = strdup(text);
}

/* ---- The end ------------------------------------------------------------*/

static int by_key(const void *a, const void *b)
{
    return hf_key_compare(((const struct hf_info *)a)->key,
                          ((const struct hf_info *)b)->key);
}

/* SCAN may show a key more than once. */
static void remove_doubles(struct hf_redis_list *list)
{
    size_t kept = 0;

    if (list->count > 1)
        qsort(list->infos, list->count, sizeof(*list->infos), by_key);
    for (size_t i = 0; i < list->count; i++) {
        if (kept > 0 &&
            hf_key_equal(list->infos[kept - 1].key, list->infos[i].key))
            hf_info_fini(&list->infos[i]);
        else
            list->infos[kept++] = list->infos[i];
    }
    list->count = kept;
}

static void finish(struct hf_redis_list *list)
{
    struct hf_redis_listed listed = {.err = list->err, .cause = list->cause};

    if (list->done) {
        remove_doubles(list);
        if (!list->err) {
            listed.infos = list->infos;
            listed.count = list->count;
            list->infos = NULL;
            list->count = 0;
        }
        list->cause = NULL;
        list->done(list->arg, &listed);
    }
    clear(list);
    free(list);
}

/* ---- A look at each key -------------------------------------------------*/

static enum hf_err keep(struct hf_redis_list *list, struct hf_info *info)
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

static void take_look(struct look *look, const redisReply *reply)
{
    struct hf_redis_list *list = look->list;
    struct hf_info info = {.storage = NULL};
    bool ours = false;
    enum hf_err err = hf_redis_take_read(
        list->server, reply, (struct hf_key){look->key, look->key_size}, &info,
        &ours);

    /* Strings that are no locks of ours are anything. */
    if (!err && ours && list->done)
        err = keep(list, &info);
    else if (!err)
        hf_info_fini(&info);
    if (err && info.storage)
        hf_info_fini(&info);
    if (err)
        fail(list, err,
             reply->type == REDIS_REPLY_ERROR ? reply->str : hf_err_text(err));
}

static void looked(struct hf_redis_call *call, const redisReply *reply)
{
    struct look *look = HF_CONTAINER(call, struct look, call);
    struct hf_redis_list *list = look->list;

    if (reply)
        take_look(look, reply);
    else
        fail(list, HF_EUNAVAIL, list->server->failure.text);
    free(look);
    list->pending--;
    go_on(list);
}

static void look_at(struct hf_redis_list *list, struct hf_key name)
{
    struct hf_redis_words words;
    struct hf_key key;
    struct look *look;

    if (!hf_redis_keyspace_strip(&list->server->address->space, name, &key) ||
        hf_redis_key_is_ours(key) || key.size > HF_KEY_MAX ||
        !hf_key_has_prefix(key,
                           (struct hf_key){list->prefix, list->prefix_size}))
        return;
    look = malloc(sizeof(*look) + key.size);
    if (!look) {
        fail(list, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    *look =
        (struct look){.call.reply = looked, .list = list, .key_size = key.size};
    hf_copy(look->key, key.data, key.size);
    hf_redis_read(&words, list->server, key);
    if (hf_redis_link_send(list->server, &look->call, &words.args)) {
        list->pending++;
    } else {
        free(look);
        fail(list, HF_EUNAVAIL, list->server->failure.text);
    }
}

/* ---- SCAN ---------------------------------------------------------------*/

/* {cursor, keys...} */
static bool is_scan(const struct hf_redis_list *list, const redisReply *reply)
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

static void take_scan(struct hf_redis_list *list, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        fail(list, hf_redis_failure(list->server, reply), reply->str);
        return;
    }
    if (!is_scan(list, reply)) {
        fail(list, HF_EPROTO, "unexpected reply of the server to a scan");
        return;
    }
    memcpy(list->cursor, reply->element[0]->str, reply->element[0]->len + 1);
    list->scanned = !strcmp(list->cursor, "0");
    if (list->done && list->progress)
        *list->progress = list->server->host->ops->now(list->server->host);
    for (size_t i = 1; i < reply->elements && !list->err; i++)
        look_at(list, (struct hf_key){reply->element[i]->str,
                                      reply->element[i]->len});
}

static void scanned(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_list *list = HF_CONTAINER(call, struct hf_redis_list, scan);

    if (reply)
        take_scan(list, reply);
    else
        fail(list, HF_EUNAVAIL, list->server->failure.text);
    list->pending--;
    go_on(list);
}

static void scan(struct hf_redis_list *list)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "EVALSHA");
    hf_redis_add(&args, list->server->shas[HF_REDIS_SCAN], HF_REDIS_SHA_SIZE);
    hf_redis_add_number(&args, 0);
    hf_redis_add_text(&args, list->cursor);
    hf_redis_add(&args, list->pattern, list->pattern_size);
    hf_redis_add_number(&args, SCAN_COUNT);
    list->scan.reply = scanned;
    if (hf_redis_link_send(list->server, &list->scan, &args))
        list->pending++;
    else
        fail(list, HF_EUNAVAIL, list->server->failure.text);
}

/* One batch after another, so that no more is held here than is wanted. */
static void go_on(struct hf_redis_list *list)
{
    if (list->pending == 0 && !list->scanned && !list->err)
        scan(list);
    if (list->pending == 0)
        finish(list);
}

static void escape(struct hf_redis_list *list, struct hf_key prefix)
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

enum hf_err hf_redis_list_start(struct hf_redis_link *server,
                                struct hf_key prefix, hf_redis_list_fn *done,
                                void *arg, hf_time *progress,
                                struct hf_redis_list **list)
{
    struct hf_redis_list *made = calloc(1, sizeof(*made));

    if (!made)
        return HF_ENOMEM;
    made->server = server;
    made->done = done;
    made->arg = arg;
    made->progress = progress;
    made->cursor[0] = '0';
    made->prefix_size = prefix.size;
    hf_copy(made->prefix, prefix.data, prefix.size);
    escape(made, prefix);
    scan(made);
    if (made->err) {
        clear(made);
        free(made);
        return HF_EUNAVAIL;
    }
    if (list)
        *list = made;
    return HF_OK;
}

void hf_redis_list_abandon(struct hf_redis_list *list)
{
    list->done = NULL;
    fail(list, HF_ECANCELED, hf_err_text(HF_ECANCELED));
}
