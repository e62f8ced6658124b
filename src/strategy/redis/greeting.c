/* greeting.c - what is said first on a new connection, and what is learnt. */
#include <stdio.h>
#include <string.h>

#include "strategy/redis/words.h"

#define CHECK_MS 5000 /* promises that are older are read again */
#define NAME_SIZE 80  /* of a connection, for CLIENT LIST */

static enum hf_err refuse(struct hf_redis_link *link, enum hf_err err,
                          const char *text)
{
    hf_redis_link_drop(link, err, text);
    return err;
}

/* ---- INFO ---------------------------------------------------------------*/

static const char *info_text(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? reply->str : "";
}

static enum hf_err check_server(struct hf_redis_link *link,
                                const redisReply *reply)
{
    char before[sizeof(link->promises.run_id)];
    const char *why;

    if (reply->type != REDIS_REPLY_STRING)
        return refuse(link, HF_EPROTO, "INFO is not understood");
    memcpy(before, link->promises.run_id, sizeof(before));
    why = hf_redis_read_server(&link->promises, link->address, reply->str,
                               link->host->ops->now(link->host));
    if (why)
        return refuse(link, HF_EUNSUPPORTED, why);
    if (*before == '\0' || strcmp(before, link->promises.run_id) != 0)
        link->id_before = 0; /* another server: there it is another's */
    return HF_OK;
}

static enum hf_err check_replication(struct hf_redis_link *link,
                                     const redisReply *reply)
{
    if (hf_redis_info_says(info_text(reply), "role", "slave"))
        return refuse(link, HF_EUNAVAIL, "READONLY: it is a replica");
    return HF_OK;
}

static enum hf_err check_cluster(struct hf_redis_link *link,
                                 const redisReply *reply)
{
    if (hf_redis_info_says(info_text(reply), "cluster_enabled", "1"))
        return refuse(link, HF_EUNSUPPORTED,
                      "is a Redis Cluster: a lock and its tokens would be on "
                      "different nodes; use one that is no cluster");
    return HF_OK;
}

static enum hf_err check_memory(struct hf_redis_link *link,
                                const redisReply *reply)
{
    hf_redis_read_memory(&link->promises, info_text(reply));
    return HF_OK;
}

static enum hf_err check_config(struct hf_redis_link *link,
                                const redisReply *reply)
{
    hf_redis_read_config(&link->promises, reply);
    return HF_OK;
}

/* ---- The others ---------------------------------------------------------*/

static enum hf_err check_ok(struct hf_redis_link *link, const redisReply *reply)
{
    (void)link;
    (void)reply;
    return HF_OK;
}

/* Of what may be refused. */
static enum hf_err check_nothing(struct hf_redis_link *link,
                                 const redisReply *reply)
{
    (void)link;
    (void)reply;
    return HF_OK;
}

static enum hf_err check_id(struct hf_redis_link *link, const redisReply *reply)
{
    link->id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    return HF_OK;
}

static enum hf_err check_ended(struct hf_redis_link *link,
                               const redisReply *reply)
{
    (void)reply; /* it may have ended before, by itself */
    link->id_before = 0;
    return HF_OK;
}

static enum hf_err check_sha(struct hf_redis_link *link,
                             const redisReply *reply, unsigned script)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len != HF_REDIS_SHA_SIZE)
        return refuse(link, HF_EPROTO, "SCRIPT LOAD is not understood");
    memcpy(link->shas[script], reply->str, HF_REDIS_SHA_SIZE);
    return HF_OK;
}

/* ---- Saying it ----------------------------------------------------------*/

/* A refusal is no reason to give the connection up. Nor is that of a question
 * which is asked again later, such as BUSY. */
static bool is_optional(const struct hf_redis_greeting *greeting)
{
    return greeting->link->state == HF_REDIS_UP ||
           greeting->check == check_config || greeting->check == check_id ||
           greeting->check == check_nothing || greeting->check == check_ended;
}

/* Which code the server's refusal of a greeting is. */
static enum hf_err refusal(const char *text)
{
    if (!strncmp(text, "NOAUTH", 6) || !strncmp(text, "WRONGPASS", 9) ||
        !strncmp(text, "NOPERM", 6) || strstr(text, "AUTH"))
        return HF_EDENIED;
    if (!strncmp(text, "ERR max", 7))
        return HF_EUNAVAIL;
    if (!strncmp(text, "ERR", 3))
        return HF_EUNSUPPORTED;
    return HF_EUNAVAIL;
}

static void answered(struct hf_redis_call *call, const redisReply *reply);

static bool say(struct hf_redis_link *link, struct hf_redis_args *args,
                enum hf_err (*check)(struct hf_redis_link *link,
                                     const redisReply *reply))
{
    struct hf_redis_greeting *greeting =
        &link->greetings[link->greetings_sent++];

    *greeting = (struct hf_redis_greeting){
        .call.reply = answered,
        .link = link,
        .check = check,
    };
    return hf_redis_link_send(link, &greeting->call, args);
}

/* What an earlier connection of ours has sent, and the server has not read
 * yet, must not come true after what this one sends. */
static bool end_the_one_before(struct hf_redis_link *link)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "CLIENT");
    hf_redis_add_text(&args, "KILL");
    hf_redis_add_text(&args, "ID");
    hf_redis_add_number(&args, (uint64_t)link->id_before);
    return say(link, &args, check_ended);
}

static void all_answered(struct hf_redis_link *link)
{
    if (link->id_before > 0 && !link->channel) {
        if (!end_the_one_before(link))
            (void)refuse(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    link->id_before = link->id;
    hf_redis_link_greeted(link);
}

static void answered(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_greeting *greeting =
        HF_CONTAINER(call, struct hf_redis_greeting, call);
    struct hf_redis_link *link = greeting->link;
    enum hf_err err;

    if (!reply)
        return; /* the link tells */
    link->greetings_heard++;
    if (reply->type == REDIS_REPLY_ERROR && !is_optional(greeting)) {
        (void)refuse(link, refusal(reply->str), reply->str);
        return;
    }
    err = greeting->check ? greeting->check(link, reply)
                          : check_sha(link, reply, greeting->script);
    if (!err && link->greetings_heard == link->greetings_sent &&
        link->state == HF_REDIS_GREETING)
        all_answered(link);
}

static bool say_words(struct hf_redis_link *link, const char *one,
                      const char *two, const char *three,
                      enum hf_err (*check)(struct hf_redis_link *link,
                                           const redisReply *reply))
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, one);
    if (two)
        hf_redis_add_text(&args, two);
    if (three)
        hf_redis_add_text(&args, three);
    return say(link, &args, check);
}

/* The owner's label, as far as CLIENT SETNAME takes it. */
static bool say_name(struct hf_redis_link *link)
{
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof(name), "holdfast:%s",
                   link->host->ops->owner(link->host));
    for (char *at = name; *at; at++) {
        if (*at <= ' ' || *at > '~')
            *at = '_';
    }
    return say_words(link, "CLIENT", "SETNAME", name, check_nothing);
}

static bool introduce(struct hf_redis_link *link)
{
    const struct hf_redis_address *address = link->address;
    char db[16];
    bool said = true;

    if (address->password && address->user)
        said =
            say_words(link, "AUTH", address->user, address->password, check_ok);
    else if (address->password)
        said = say_words(link, "AUTH", address->password, NULL, check_ok);
    (void)snprintf(db, sizeof(db), "%u", address->db);
    if (said && address->db > 0)
        said = say_words(link, "SELECT", db, NULL, check_ok);
    return said && say_name(link);
}

/* A section each: INFO takes no more before Redis 7, and all of them are ten
 * times as much. */
static bool ask_promises(struct hf_redis_link *link)
{
    link->checked = link->host->ops->now(link->host);
    return say_words(link, "INFO", "memory", NULL, check_memory) &&
           say_words(link, "CONFIG", "GET", "*append*", check_config);
}

static bool ask_server(struct hf_redis_link *link)
{
    return say_words(link, "INFO", "server", NULL, check_server) &&
           say_words(link, "INFO", "cluster", NULL, check_cluster) &&
           say_words(link, "INFO", "replication", NULL, check_replication) &&
           say_words(link, "CLIENT", "ID", NULL, check_id) &&
           ask_promises(link);
}

/* ---- Scripts ------------------------------------------------------------*/

static bool load(struct hf_redis_link *link, unsigned script)
{
    bool said =
        say_words(link, "SCRIPT", "LOAD", hf_redis_scripts[script], NULL);

    if (said)
        link->greetings[link->greetings_sent - 1].script = script;
    return said;
}

static bool load_all(struct hf_redis_link *link)
{
    bool said = true;

    for (unsigned i = 0; said && i < HF_REDIS_SCRIPTS; i++)
        said = load(link, i);
    return said;
}

/* Load those that the server does not have. */
static enum hf_err check_scripts(struct hf_redis_link *link,
                                 const redisReply *reply)
{
    bool said = true;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != HF_REDIS_SCRIPTS)
        return refuse(link, HF_EPROTO, "SCRIPT EXISTS is not understood");
    for (unsigned i = 0; said && i < HF_REDIS_SCRIPTS; i++) {
        if (reply->element[i]->integer != 1)
            said = load(link, i);
    }
    return said ? HF_OK : refuse(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

/* Their digests are known, so that a server which has them is not sent their
 * text. */
static bool ask_scripts(struct hf_redis_link *link)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "SCRIPT");
    hf_redis_add_text(&args, "EXISTS");
    for (unsigned i = 0; i < HF_REDIS_SCRIPTS; i++) {
        memcpy(link->shas[i], hf_redis_digests[i], HF_REDIS_SHA_SIZE);
        hf_redis_add(&args, link->shas[i], HF_REDIS_SHA_SIZE);
    }
    return say(link, &args, check_scripts);
}

static bool raise_tokens(struct hf_redis_link *link)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "EVAL");
    hf_redis_add_text(&args, hf_redis_scripts[HF_REDIS_RAISE]);
    hf_redis_add_number(&args, HF_REDIS_KEYS_SHARED);
    for (unsigned i = 0; i < HF_REDIS_KEYS_SHARED; i++)
        hf_redis_add_text(&args, link->address->space.shared[i]);
    return say(link, &args, check_ok);
}

/* ---- The handshake ------------------------------------------------------*/

bool hf_redis_greet(struct hf_redis_link *link)
{
    link->greetings_sent = 0;
    link->greetings_heard = 0;
    if (!introduce(link))
        return false;
    if (link->channel)
        return say_words(link, "SUBSCRIBE", link->channel, NULL, check_ok);
    return ask_server(link) && ask_scripts(link) && raise_tokens(link);
}

/* What is asked of a connection that is up, one thing at a time. */
static bool begin_again(struct hf_redis_link *link)
{
    if (link->greetings_heard < link->greetings_sent)
        return false;
    link->greetings_sent = 0;
    link->greetings_heard = 0;
    return true;
}

void hf_redis_load(struct hf_redis_link *link)
{
    if (begin_again(link))
        (void)load_all(link);
}

enum hf_err hf_redis_link_check(struct hf_redis_link *link,
                                const struct hf_command *command,
                                struct hf_error *error)
{
    hf_time now = link->host->ops->now(link->host);
    enum hf_err err =
        hf_redis_may_grant(&link->promises, link->address, command, now, error);
    bool due =
        err == HF_EUNSUPPORTED || now >= hf_time_add(link->checked, CHECK_MS);

    if (command->kind == HF_COMMAND_LOCK && link->state == HF_REDIS_UP && due &&
        begin_again(link))
        (void)ask_promises(link);
    return err;
}
