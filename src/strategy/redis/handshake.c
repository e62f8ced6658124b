/* handshake.c - the first commands on a new connection: authenticate, check
 * that the server is usable, load the scripts, raise the token counter.
 *
 * Each command is a step, and most steps are sent without waiting for replies.
 * The connection is up when all steps have been answered. Some steps are
 * repeated while the connection is up. */
#include <stdio.h>
#include <string.h>

#include "strategy/redis/script_call.h"

#define INFO_MAX_AGE_MS 5000 /* older server info is requested again */
#define NAME_SIZE 80 /* size of the CLIENT SETNAME argument, with the NUL */

static enum hf_err reject_connection(struct hf_redis_connection *connection,
                                     enum hf_err err, const char *text)
{
    hf_redis_connection_drop(connection, err, text);
    return err;
}

/* Convert the text of an error reply into an error code. */
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

/* ---- INFO ---------------------------------------------------------------*/

static const char *info_reply_text(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? reply->str : "";
}

static enum hf_err check_server(struct hf_redis_connection *connection,
                                const redisReply *reply)
{
    char before[sizeof(connection->server_info.run_id)];
    const char *reason;

    if (reply->type != REDIS_REPLY_STRING)
        return reject_connection(connection, HF_EPROTO,
                                 "unexpected reply to INFO: expected a string");
    memcpy(before, connection->server_info.run_id, sizeof(before));
    reason = hf_redis_server_info_read_server(
        &connection->server_info, connection->address, reply->str,
        connection->host->ops->now(connection->host));
    if (reason)
        return reject_connection(connection, HF_EUNSUPPORTED, reason);
    if (*before == '\0' || strcmp(before, connection->server_info.run_id) != 0)
        connection->previous_id = 0; /* the id is another server's */
    return HF_OK;
}

static enum hf_err check_replication(struct hf_redis_connection *connection,
                                     const redisReply *reply)
{
    if (hf_redis_server_info_has(info_reply_text(reply), "role", "slave"))
        return reject_connection(
            connection, HF_EUNAVAIL,
            "READONLY: the server is a replica; connect to its master");
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
            "different nodes. Use a server with cluster-enabled no");
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

/* ---- Other replies ------------------------------------------------------*/

static enum hf_err expect_success(struct hf_redis_connection *connection,
                                  const redisReply *reply)
{
    (void)connection;
    (void)reply;
    return HF_OK;
}

/* The check of a step whose failure does not matter; see is_optional(). */
static enum hf_err ignore_failure(struct hf_redis_connection *connection,
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
    (void)reply; /* ignore an error: the connection may be closed already */
    connection->previous_id = 0;
    return HF_OK;
}

static enum hf_err check_sha(struct hf_redis_connection *connection,
                             const redisReply *reply, unsigned script)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return reject_connection(connection, refusal_code(reply->str),
                                 reply->str);
    if (reply->type != REDIS_REPLY_STRING || reply->len != HF_REDIS_SHA_SIZE)
        return reject_connection(
            connection, HF_EPROTO,
            "unexpected reply to SCRIPT LOAD: expected a SHA1");
    memcpy(connection->shas[script], reply->str, HF_REDIS_SHA_SIZE);
    return HF_OK;
}

/* ---- Steps --------------------------------------------------------------*/

/* Returns true if on_step_reply() must not reject the connection for an error
 * reply to this step. On a connection that is up this holds for every step,
 * because the steps are repeated later; check_sha() still rejects an error,
 * because without its scripts the connection is of no use. */
static bool is_optional(const struct hf_redis_handshake_step *step)
{
    return step->connection->state == HF_REDIS_UP ||
           step->check == check_config || step->check == check_id ||
           step->check == ignore_failure || step->check == on_previous_killed;
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

/* Kill this client's previous connection on the server. The server may not yet
 * have read every command that was sent there, and must not execute such a
 * command after the commands of this connection. */
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
        return; /* connection.c handles the lost connection */
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

static bool send_step_text(
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

/* Send the owner label as the client's name, with '_' for the characters that
 * CLIENT SETNAME rejects. */
static bool send_client_name(struct hf_redis_connection *connection)
{
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof(name), "holdfast:%s",
                   connection->host->ops->owner(connection->host));
    for (char *at = name; *at; at++) {
        if (*at <= ' ' || *at > '~')
            *at = '_';
    }
    return send_step_text(connection, "CLIENT", "SETNAME", name,
                          ignore_failure);
}

static bool send_credentials(struct hf_redis_connection *connection)
{
    const struct hf_redis_address *address = connection->address;
    char db[16];
    bool sent = true;

    if (address->password && address->user)
        sent = send_step_text(connection, "AUTH", address->user,
                              address->password, expect_success);
    else if (address->password)
        sent = send_step_text(connection, "AUTH", address->password, NULL,
                              expect_success);
    (void)snprintf(db, sizeof(db), "%u", address->db);
    if (sent && address->db > 0)
        sent = send_step_text(connection, "SELECT", db, NULL, expect_success);
    return sent && send_client_name(connection);
}

/* Request one INFO section at a time. Before Redis 7, INFO takes only one
 * section name, and without a name it returns ten times as much. */
static bool request_server_config(struct hf_redis_connection *connection)
{
    connection->info_read_at = connection->host->ops->now(connection->host);
    return send_step_text(connection, "INFO", "memory", NULL, check_memory) &&
           send_step_text(connection, "CONFIG", "GET", "*append*",
                          check_config);
}

static bool request_server_info(struct hf_redis_connection *connection)
{
    return send_step_text(connection, "INFO", "server", NULL, check_server) &&
           send_step_text(connection, "INFO", "cluster", NULL, check_cluster) &&
           send_step_text(connection, "INFO", "replication", NULL,
                          check_replication) &&
           send_step_text(connection, "CLIENT", "ID", NULL, check_id) &&
           request_server_config(connection);
}

/* ---- Scripts ------------------------------------------------------------*/

static bool load_script(struct hf_redis_connection *connection, unsigned script)
{
    bool sent = send_step_text(connection, "SCRIPT", "LOAD",
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

/* Load the scripts that the server lacks according to SCRIPT EXISTS. */
static enum hf_err check_scripts(struct hf_redis_connection *connection,
                                 const redisReply *reply)
{
    bool sent = true;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != HF_REDIS_SCRIPTS)
        return reject_connection(
            connection, HF_EPROTO,
            "unexpected reply to SCRIPT EXISTS: expected an array "
            "with an element for each script");
    for (unsigned i = 0; sent && i < HF_REDIS_SCRIPTS; i++) {
        if (reply->element[i]->integer != 1)
            sent = load_script(connection, i);
    }
    return sent ? HF_OK
                : reject_connection(connection, HF_ENOMEM,
                                    hf_err_text(HF_ENOMEM));
}

/* Ask which scripts the server has, so that only the others are sent. */
static bool request_missing_scripts(struct hf_redis_connection *connection)
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
    return send_step(connection, &args, expect_success);
}

/* ---- The handshake ------------------------------------------------------*/

bool hf_redis_handshake_start(struct hf_redis_connection *connection)
{
    connection->steps_sent = 0;
    connection->steps_done = 0;
    if (!send_credentials(connection))
        return false;
    if (connection->channel)
        return send_step_text(connection, "SUBSCRIBE", connection->channel,
                              NULL, expect_success);
    return request_server_info(connection) &&
           request_missing_scripts(connection) &&
           raise_token_counter(connection);
}

/* Reuse the step slots of a connection that is up. Returns false, and changes
 * nothing, if a reply to an earlier step is still pending. */
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
               now >= hf_time_add(connection->info_read_at, INFO_MAX_AGE_MS);

    if (command->kind == HF_COMMAND_LOCK && connection->state == HF_REDIS_UP &&
        due && reset_steps(connection))
        (void)request_server_config(connection);
    return err;
}
