/* greeting.c - what is said first on a new connection, and what is learnt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/redis/words.h"

#define VERSION_MIN 6 /* KEEPTTL */

/* ---- INFO ---------------------------------------------------------------*/

/* Whether INFO has the line "name:value"; the value goes to `value`. */
static bool find_line(const char *info, const char *name, char *value,
                      size_t size)
{
    size_t name_size = strlen(name);

    for (const char *line = info; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (!strncmp(line, name, name_size) && line[name_size] == ':') {
            size_t length = strcspn(line + name_size + 1, "\r\n");

            if (length >= size)
                length = size - 1;
            memcpy(value, line + name_size + 1, length);
            value[length] = '\0';
            return true;
        }
    }
    return false;
}

static bool line_is(const char *info, const char *name, const char *wanted)
{
    char value[64];

    return find_line(info, name, value, sizeof(value)) &&
           !strcmp(value, wanted);
}

static enum hf_err refuse(struct hf_redis_link *link, enum hf_err err,
                          const char *text)
{
    hf_redis_link_drop(link, err, text);
    return err;
}

/* A limit of memory makes Redis drop keys by its policy. A lock has a ttl, so
 * that not even the volatile-* policies spare it. */
static enum hf_err check_eviction(struct hf_redis_link *link, const char *info)
{
    char policy[32] = "", text[200];

    if (HF_MUTANT(77) || line_is(info, "maxmemory", "0") ||
        !find_line(info, "maxmemory_policy", policy, sizeof(policy)) ||
        !strcmp(policy, "noeviction"))
        return HF_OK;
    (void)snprintf(text, sizeof(text),
                   "maxmemory-policy is %s: with a limit of memory it drops "
                   "locks that are held; it must be noeviction",
                   policy);
    return refuse(link, HF_EUNSUPPORTED, text);
}

static enum hf_err check_info(struct hf_redis_link *link,
                              const redisReply *reply)
{
    const char *info = reply->str;
    char run_id[sizeof(link->run_id)] = "", version[32] = "";

    if (reply->type != REDIS_REPLY_STRING)
        return refuse(link, HF_EPROTO, "INFO is not understood");
    if (line_is(info, "cluster_enabled", "1"))
        return refuse(link, HF_EUNSUPPORTED,
                      "is a Redis Cluster: a lock and its tokens would be on "
                      "different nodes; use one that is no cluster");
    if (!find_line(info, "redis_version", version, sizeof(version)) ||
        strtol(version, NULL, 10) < VERSION_MIN)
        return refuse(link, HF_EUNSUPPORTED, "is older than Redis 6");
    if (line_is(info, "loading", "1"))
        return refuse(link, HF_EUNAVAIL, "LOADING: it reads its data in");
    if (!link->channel && line_is(info, "role", "slave"))
        return refuse(link, HF_EUNAVAIL, "READONLY: it is a replica");
    (void)find_line(info, "run_id", run_id, sizeof(run_id));
    if (*run_id == '\0' || strcmp(run_id, link->run_id) != 0)
        link->id_before = 0; /* another server: there it is another's */
    memcpy(link->run_id, run_id, sizeof(run_id));
    return check_eviction(link, info);
}

/* ---- The others ---------------------------------------------------------*/

static enum hf_err check_ok(struct hf_redis_link *link, const redisReply *reply)
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

/* name, value, name, value. Who may not ask is not told: then nothing is
 * promised. */
static enum hf_err check_config(struct hf_redis_link *link,
                                const redisReply *reply)
{
    bool appends = false, always = false;

    for (size_t i = 0;
         reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const char *name = reply->element[i]->str;
        const char *value = reply->element[i + 1]->str;

        if (!name || !value)
            continue;
        appends =
            appends || (!strcmp(name, "appendonly") && !strcmp(value, "yes"));
        always = always ||
                 (!strcmp(name, "appendfsync") && !strcmp(value, "always"));
    }
    link->durable = appends && always;
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

static bool is_optional(const struct hf_redis_greeting *greeting)
{
    return greeting->check == check_config || greeting->check == check_id ||
           greeting->check == check_ended;
}

/* Which code the server's refusal of a greeting is. */
static enum hf_err refusal(const char *text)
{
    if (!strncmp(text, "NOAUTH", 6) || !strncmp(text, "WRONGPASS", 9) ||
        strstr(text, "AUTH"))
        return HF_EINVAL;
    if (!strncmp(text, "ERR max", 7))
        return HF_EUNAVAIL;
    if (!strncmp(text, "NOPERM", 6) || !strncmp(text, "ERR", 3))
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
    if (link->id_before > 0 && !link->channel && !HF_MUTANT(85)) {
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
    return said && say_words(link, "INFO", NULL, NULL, check_info) &&
           say_words(link, "CLIENT", "ID", NULL, check_id);
}

/* In a build with planted bugs, which of them is switched on. */
static char *script_text(unsigned script)
{
    char *text = NULL;

#ifdef HF_MUTANTS
    if (asprintf(&text, "local mutant = %d\n%s", hf_mutant,
                 hf_redis_scripts[script]) < 0)
        return NULL;
#else
    text = strdup(hf_redis_scripts[script]);
#endif
    return text;
}

static bool load(struct hf_redis_link *link, unsigned script)
{
    char *text = script_text(script);
    bool said = text && say_words(link, "SCRIPT", "LOAD", text, NULL);

    if (text)
        link->greetings[link->greetings_sent - 1].script = script;
    free(text);
    return said;
}

static bool raise_tokens(struct hf_redis_link *link)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "EVAL");
    hf_redis_add_text(&args, hf_redis_scripts[HF_REDIS_RAISE]);
    hf_redis_add_text(&args, "4");
    hf_redis_add_text(&args, HF_REDIS_TOKEN_KEY);
    hf_redis_add_text(&args, "hf:events");
    hf_redis_add_text(&args, "hf:held");
    hf_redis_add_text(&args, "hf:ends");
    return say(link, &args, check_ok);
}

bool hf_redis_greet(struct hf_redis_link *link)
{
    bool said;

    link->greetings_sent = 0;
    link->greetings_heard = 0;
    said = introduce(link);
    if (link->channel)
        return said &&
               say_words(link, "SUBSCRIBE", link->channel, NULL, check_ok);
    said = said && say_words(link, "CONFIG", "GET", "append*", check_config);
    for (unsigned i = 0; said && i < HF_REDIS_SCRIPTS; i++)
        said = load(link, i);
    return said && (HF_MUTANT(74) || raise_tokens(link));
}

void hf_redis_load(struct hf_redis_link *link)
{
    if (link->greetings_heard < link->greetings_sent)
        return; /* under way */
    link->greetings_sent = 0;
    link->greetings_heard = 0;
    for (unsigned i = 0; i < HF_REDIS_SCRIPTS; i++)
        (void)load(link, i);
}
