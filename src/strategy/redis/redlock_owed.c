/* redlock_owed.c - cancels that a server has not answered yet.
 *
 * A hold that is left on one server keeps that server busy for its whole
 * lease. So a cancel is remembered until the server has answered it, and sent
 * again, before anything else, on each new connection. */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "strategy/redis/redlock.h"

struct owed {
    struct hf_redis_call call;
    struct hf_list link;
    struct hf_redlock_server *server;
    bool sent; /* on this connection */
    struct hf_nonce nonce;
    size_t key_size;
    uint8_t key[];
};

static void drop_owed(struct owed *owed)
{
    owed->server->owed_count--;
    hf_list_remove(&owed->link);
    free(owed);
}

static void on_cancel_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct owed *owed = HF_CONTAINER(call, struct owed, call);
    struct hf_redlock_server *server = owed->server;

    owed->sent = false;
    /* The connection was lost, or the server could not do it: still owed. */
    if (!reply || (reply->type == REDIS_REPLY_ERROR &&
                   hf_redis_failure(&server->link, reply) == HF_EUNAVAIL))
        return;
    drop_owed(owed);
}

static void send_owed(struct owed *owed)
{
    struct hf_redlock_server *server = owed->server;
    struct hf_command cancel = {
        .kind = HF_COMMAND_CANCEL,
        .nonce = owed->nonce,
        .key = {owed->key, owed->key_size},
    };
    struct hf_redis_words words;

    if (owed->sent || server->link.state != HF_REDIS_UP)
        return;
    owed->call.reply = on_cancel_reply;
    hf_redis_command(&words, &server->link, &server->redlock->asker, &cancel,
                     NULL);
    owed->sent = hf_redis_link_send(&server->link, &owed->call, &words.args);
}

void hf_redlock_owe_cancel(struct hf_redlock_server *server, struct hf_key key,
                           const struct hf_nonce *nonce)
{
    struct owed *owed;

    /* The first that are owed matter most: without renewals, a hold on a
     * server that is down ends with its lease. */
    if (server->owed_count == HF_REDLOCK_OWED_MAX)
        return;
    owed = calloc(1, sizeof(*owed) + key.size);
    if (!owed)
        return; /* the hold ends with its lease */
    owed->server = server;
    owed->nonce = *nonce;
    owed->key_size = key.size;
    hf_copy(owed->key, key.data, key.size);
    hf_list_push_back(&server->owed, &owed->link);
    server->owed_count++;
    send_owed(owed);
}

void hf_redlock_send_owed(struct hf_redlock_server *server)
{
    for (struct hf_list *link = server->owed.next; link != &server->owed;
         link = link->next)
        send_owed(HF_CONTAINER(link, struct owed, link));
}

void hf_redlock_supersede_owed(struct hf_redlock_server *server,
                               const struct hf_nonce *nonce)
{
    struct hf_list *link = server->owed.next;

    while (link != &server->owed) {
        struct owed *owed = HF_CONTAINER(link, struct owed, link);

        link = link->next;
        if (!owed->sent && hf_nonce_equal(&owed->nonce, nonce))
            drop_owed(owed);
    }
}

void hf_redlock_forget_owed(struct hf_redlock_server *server)
{
    while (!hf_list_empty(&server->owed))
        drop_owed(
            HF_CONTAINER(hf_list_first(&server->owed), struct owed, link));
}
