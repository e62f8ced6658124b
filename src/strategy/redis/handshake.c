/* handshake.c - what is sent first on a new connection, and what is learnt. */
#include <stdio.h>
#include <string.h>

#include "strategy/redis/script_call.h"

#define CHECK_MS 5000 /* promises that are older are read again */
#define NAME_SIZE 80  /* of a connection, for CLIENT LIST */

static enum hf_err reject_connection(struct hf_redis_connection *connection,
                                     enum hf_err err, const char *text)
{
    hf_redis_connection_drop(connection, err, text);
    return err;
}

/* ---- INFO ---------------------------------------------------------------*/

static const char *info_reply_text(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? reply->str : "";
}

static enum hf_err check_server(struct hf_redis_connection *connection,
                                const redisReply *reply)
{
    char before[sizeof(connection->server_info.run_id)];
    const char *why;

    if (reply->type != REDIS_REPLY_STRING)
        return reject_connection(connection, HF_EPROTO,
                                 "INFO is not understood");
    memcpy(before, connection->server_info.run_id, sizeof(before));
    why = hf_redis_server_info_read_server(
        &connection->server_info, connection->address, reply->str,
        connection->host->ops->now(connection->host));
    if (why)
        return reject_connection(connection, HF_EUNSUPPORTED, why);
    if (*before == '\0' || strcmp(before, connection->server_info.run_id) != 0)
        connection->previous_id = 0; /* another server: there it is another's */
    return HF_OK;
}

static enum hf_err check_replication(struct hf_redis_connection *connection,
                                     const redisReply *reply)
{
    if (hf_redis_server_info_has(info_reply_text(reply), "role", "slave"))
        return reject_connection(connection, HF_EUNAVAIL,
                                 "READONLY: it is a replica");
    return HF_OK;
}

static enum hf_err check_cluster(struct hf_redis_connection *connection,
                                 const redisReply *reply)
{
    if (hf_redis_server_info_has(info_reply_text(reply), "cluster_enabled",
                                 "1"))
        return reject_connection(
            connection, HF_EUNSUPPORTED,
            "is a Redis Cluster: a lock and its tokens would be on "
            "different nodes; use one that is no cluster");
    return HF_OK;
}

static enum hf_err check_memory(struct hf_redis_connection *connection,
                                const redisReply *reply)
{
    hf_redis_server_info_read_memory(&connection->server_info,
                                     info_reply_text(reply));
    return HF_OK;
}

static enum hf_err check_config(struct hf_redis_connection *connection,
                                const redisReply *reply)
{
    hf_redis_server_info_read_config(&connection->server_info, reply);
    return HF_OK;
}

/* ---- The others ---------------------------------------------------------*/

static enum hf_err accept_reply(struct hf_redis_connection *connection,
                                const redisReply *reply)
{
    (void)connection;
    (void)reply;
    return HF_OK;
}

/* Of what may be refused. */
static enum hf_err accept_any_reply(struct hf_redis_connection *connection,
                                    const redisReply *reply)
{
    (void)connection;
    (void)reply;
    return HF_OK;
}

static enum hf_err check_id(struct hf_redis_connection *connection,
                            const redisReply *reply)
{
    connection->id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    return HF_OK;
}

static enum hf_err on_previous_killed(struct hf_redis_connection *connection,
                                      const redisReply *reply)
{
    (void)reply; /* it may have ended before, by itself */
    connection->previous_id = 0;
    return HF_OK;
}

static enum hf_err check_sha(struct hf_redis_connection *connection,
                             const redisReply *reply, unsigned script)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len != HF_REDIS_SHA_SIZE)
        return reject_connection(connection, HF_EPROTO,
                                 "SCRIPT LOAD is not understood");
    memcpy(connection->shas[script], reply->str, HF_REDIS_SHA_SIZE);
    return HF_OK;
}

/* ---- Saying it ----------------------------------------------------------*/

/* A refusal is no reason to give the connection up. Nor is that of a question
 * which is asked again later, such as BUSY. */
static bool is_optional(const struct hf_redis_handshake_step *step)
{
    return step->connection->state == HF_REDIS_UP ||
           step->check == check_config || step->check == check_id ||
           step->check == accept_any_reply || step->check == on_previous_killed;
}

/* Which code the server's refusal of a greeting is. */
static enum hf_err refusal_code(const char *text)
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

static void on_step_reply(struct hf_redis_call *call, const redisReply *reply);

static bool send_step(
    struct hf_redis_connection *connection, struct hf_redis_resp_args *args,
    enum hf_err (*check)(struct hf_redis_connection *connection,
                         const redisReply *reply))
{
    struct hf_redis_handshake_step *step =
        &connection->steps[connection->steps_sent++];

    *step = (struct hf_redis_handshake_step){
        .call.reply = on_step_reply,
        .connection = connection,
        .check = check,
    };
    return hf_redis_connection_send(connection, &step->call, args);
}

/* What an earlier connection of ours has sent, and the server has not read
 * yet, must not come true after what this one sends. */
static bool kill_previous_connection(struct hf_redis_connection *connection)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, "CLIENT");
    hf_redis_resp_add_text(&args, "KILL");
    hf_redis_resp_add_text(&args, "ID");
    hf_redis_resp_add_number(&args, (uint64_t)connection->previous_id);
    return send_step(connection, &args, on_previous_killed);
}

static void on_all_steps_done(struct hf_redis_connection *connection)
{
    if (connection->previous_id > 0 && !connection->channel) {
        if (!kill_previous_connection(connection))
            (void)reject_connection(connection, HF_ENOMEM,
                                    hf_err_text(HF_ENOMEM));
        return;
    }
    connection->previous_id = connection->id;
    hf_redis_connection_on_handshake_done(connection);
}

static void on_step_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_handshake_step *step =
        HF_CONTAINER(call, struct hf_redis_handshake_step, call);
    struct hf_redis_connection *connection = step->connection;
    enum hf_err err;

    if (!reply)
        return; /* the connection tells */
    connection->steps_done++;
    if (reply->type == REDIS_REPLY_ERROR && !is_optional(step)) {
        (void)reject_connection(connection, refusal_code(reply->str),
                                reply->str);
        return;
    }
    err = step->check ? step->check(connection, reply)
                      : check_sha(connection, reply, step->script);
    if (!err && connection->steps_done == connection->steps_sent &&
        connection->state == HF_REDIS_HANDSHAKE)
        on_all_steps_done(connection);
}

static bool send_step_words(
    struct hf_redis_connection *connection, const char *one, const char *two,
    const char *three,
    enum hf_err (*check)(struct hf_redis_connection *connection,
                         const redisReply *reply))
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, one);
    if (two)
        hf_redis_resp_add_text(&args, two);
    if (three)
        hf_redis_resp_add_text(&args, three);
    return send_step(connection, &args, check);
}

/* The owner's label, as far as CLIENT SETNAME takes it. */
static bool send_client_name(struct hf_redis_connection *connection)
{
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof(name), "holdfast:%s",
                   connection->host->ops->owner(connection->host));
    for (char *at = name; *at; at++) {
        if (*at <= ' ' || *at > '~')
            *at = '_';
    }
    return send_step_words(connection, "CLIENT", "SETNAME", name,
                           accept_any_reply);
}

static bool send_credentials(struct hf_redis_connection *connection)
{
    const struct hf_redis_address *address = connection->address;
    char db[16];
    bool sent = true;

    if (address->password && address->user)
        sent = send_step_words(connection, "AUTH", address->user,
                               address->password, accept_reply);
    else if (address->password)
        sent = send_step_words(connection, "AUTH", address->password, NULL,
                               accept_reply);
    (void)snprintf(db, sizeof(db), "%u", address->db);
    if (sent && address->db > 0)
        sent = send_step_words(connection, "SELECT", db, NULL, accept_reply);
    return sent && send_client_name(connection);
}

/* A section each: INFO takes no more before Redis 7, and all of them are ten
 * times as much. */
static bool request_server_config(struct hf_redis_connection *connection)
{
    connection->info_read_at = connection->host->ops->now(connection->host);
    return send_step_words(connection, "INFO", "memory", NULL, check_memory) &&
           send_step_words(connection, "CONFIG", "GET", "*append*",
                           check_config);
}

static bool request_server_info(struct hf_redis_connection *connection)
{
    return send_step_words(connection, "INFO", "server", NULL, check_server) &&
           send_step_words(connection, "INFO", "cluster", NULL,
                           check_cluster) &&
           send_step_words(connection, "INFO", "replication", NULL,
                           check_replication) &&
           send_step_words(connection, "CLIENT", "ID", NULL, check_id) &&
           request_server_config(connection);
}

/* ---- Scripts ------------------------------------------------------------*/

static bool load_script(struct hf_redis_connection *connection, unsigned script)
{
    bool sent = send_step_words(connection, "SCRIPT", "LOAD",
                                hf_redis_scripts[script], NULL);

    if (sent)
        connection->steps[connection->steps_sent - 1].script = script;
    return sent;
}

static bool load_all_scripts(struct hf_redis_connection *connection)
{
    bool sent = true;

    for (unsigned i = 0; sent && i < HF_REDIS_SCRIPTS; i++)
        sent = load_script(connection, i);
    return sent;
}

/* Load those that the server does not have. */
static enum hf_err check_scripts(struct hf_redis_connection *connection,
                                 const redisReply *reply)
{
    bool sent = true;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != HF_REDIS_SCRIPTS)
        return reject_connection(connection, HF_EPROTO,
                                 "SCRIPT EXISTS is not understood");
    for (unsigned i = 0; sent && i < HF_REDIS_SCRIPTS; i++) {
        if (reply->element[i]->integer != 1)
            sent = load_script(connection, i);
    }
    return sent ? HF_OK
                : reject_connection(connection, HF_ENOMEM,
                                    hf_err_text(HF_ENOMEM));
}

/* Their digests are known, so that a server which has them is not sent their
 * text. */
static bool request_script_digests(struct hf_redis_connection *connection)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, "SCRIPT");
    hf_redis_resp_add_text(&args, "EXISTS");
    for (unsigned i = 0; i < HF_REDIS_SCRIPTS; i++) {
        memcpy(connection->shas[i], hf_redis_digests[i], HF_REDIS_SHA_SIZE);
        hf_redis_resp_add(&args, connection->shas[i], HF_REDIS_SHA_SIZE);
    }
    return send_step(connection, &args, check_scripts);
}

static bool raise_token_counter(struct hf_redis_connection *connection)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, "EVAL");
    hf_redis_resp_add_text(&args, hf_redis_scripts[HF_REDIS_RAISE_TOKENS]);
    hf_redis_resp_add_number(&args, HF_REDIS_KEYS_SHARED);
    for (unsigned i = 0; i < HF_REDIS_KEYS_SHARED; i++)
        hf_redis_resp_add_text(&args, connection->address->space.shared[i]);
    return send_step(connection, &args, accept_reply);
}

/* ---- The handshake ------------------------------------------------------*/

bool hf_redis_handshake_start(struct hf_redis_connection *connection)
{
    connection->steps_sent = 0;
    connection->steps_done = 0;
    if (!send_credentials(connection))
        return false;
    if (connection->channel)
        return send_step_words(connection, "SUBSCRIBE", connection->channel,
                               NULL, accept_reply);
    return request_server_info(connection) &&
           request_script_digests(connection) &&
           raise_token_counter(connection);
}

/* What is asked of a connection that is up, one thing at a time. */
static bool reset_steps(struct hf_redis_connection *connection)
{
    if (connection->steps_done < connection->steps_sent)
        return false;
    connection->steps_sent = 0;
    connection->steps_done = 0;
    return true;
}

void hf_redis_handshake_load_scripts(struct hf_redis_connection *connection)
{
    if (reset_steps(connection))
        (void)load_all_scripts(connection);
}

enum hf_err hf_redis_handshake_check_command(
    struct hf_redis_connection *connection, const struct hf_command *command,
    struct hf_error *error)
{
    hf_time now = connection->host->ops->now(connection->host);
    enum hf_err err = hf_redis_server_info_check_grant(
        &connection->server_info, connection->address, command, now, error);
    bool due = err == HF_EUNSUPPORTED ||
               now >= hf_time_add(connection->info_read_at, CHECK_MS);

    if (command->kind == HF_COMMAND_LOCK && connection->state == HF_REDIS_UP &&
        due && reset_steps(connection))
        (void)request_server_config(connection);
    return err;
}
