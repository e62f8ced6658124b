/* cancels.c - CANCELs that a server has not answered yet.
 *
 * A lock that remains on one server blocks the key there until its lease
 * expires. So a CANCEL is kept until the server has answered it, and on each
 * new connection it is sent again, before any other command. */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "strategy/redlock/redlock.h"

struct cancel {
    struct hf_redis_call call;
    struct hf_dlist link;
    struct hf_redlock_server *server;
    bool sent; /* sent on the current connection */
    struct hf_nonce nonce;
    size_t key_size;
    uint8_t key[];
};

static void free_cancel(struct cancel *cancel)
{
    cancel->server->cancel_count--;
    hf_dlist_remove(&cancel->link);
    free(cancel);
}

static void on_server_cancel_reply(struct hf_redis_call *call,
                                   const redisReply *reply)
{
    struct cancel *cancel = HF_CONTAINER(call, struct cancel, call);
    struct hf_redlock_server *server = cancel->server;

    cancel->sent = false;
    /* Keep the CANCEL if the connection was lost or the server is unavailable;
     * the next connection sends it again. */
    if (!reply || (reply->type == REDIS_REPLY_ERROR &&
                   hf_redis_reply_handle_error(&server->connection, reply) ==
                       HF_EUNAVAIL))
        return;
    free_cancel(cancel);
}

static void send_cancel(struct cancel *cancel)
{
    struct hf_redlock_server *server = cancel->server;
    struct hf_command command = {
        .kind = HF_COMMAND_CANCEL,
        .nonce = cancel->nonce,
        .key = {cancel->key, cancel->key_size},
    };
    struct hf_redis_script_call script_call;

    if (cancel->sent || server->connection.state != HF_REDIS_UP)
        return;
    cancel->call.reply = on_server_cancel_reply;
    hf_redis_script_call_command(&script_call, &server->connection,
                                 &server->redlock->identity, &command, NULL);
    cancel->sent = hf_redis_connection_send(&server->connection, &cancel->call,
                                            &script_call.args);
}

void hf_redlock_cancels_add(struct hf_redlock_server *server, struct hf_key key,
                            const struct hf_nonce *nonce)
{
    struct cancel *cancel;

    /* Dropping a CANCEL is safe: nobody renews the lock, so its lease
     * expires. */
    if (server->cancel_count == HF_REDLOCK_CANCELS_MAX)
        return;
    cancel = calloc(1, sizeof(*cancel) + key.size);
    if (!cancel)
        return; /* without the CANCEL, the lease ends the lock */
    cancel->server = server;
    cancel->nonce = *nonce;
    cancel->key_size = key.size;
    hf_copy(cancel->key, key.data, key.size);
    hf_dlist_push_back(&server->cancels, &cancel->link);
    server->cancel_count++;
    send_cancel(cancel);
}

void hf_redlock_cancels_send(struct hf_redlock_server *server)
{
    for (struct hf_dlist *link = server->cancels.next; link != &server->cancels;
         link = link->next)
        send_cancel(HF_CONTAINER(link, struct cancel, link));
}

void hf_redlock_cancels_supersede(struct hf_redlock_server *server,
                                  const struct hf_nonce *nonce)
{
    struct hf_dlist *link = server->cancels.next;

    while (link != &server->cancels) {
        struct cancel *cancel = HF_CONTAINER(link, struct cancel, link);

        link = link->next;
        if (!cancel->sent && hf_nonce_equal(&cancel->nonce, nonce))
            free_cancel(cancel);
    }
}

void hf_redlock_cancels_fini(struct hf_redlock_server *server)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&server->cancels)))
        free_cancel(HF_CONTAINER(link, struct cancel, link));
}
