/* session.c - the session, in which the cluster applies each command once. */
#include <string.h>

#include "strategy/raft/raft.h"

/* The secret makes OPEN idempotent: if its reply is lost, the next OPEN with
 * the same secret returns the same session. */
static enum hf_err draw_secret(struct hf_raft *raft)
{
    enum hf_err err = HF_OK;

    if (!raft->session.has_secret)
        err = hf_random_bytes(raft->net.host->ops->random(raft->net.host),
                              raft->session.secret.bytes,
                              sizeof(raft->session.secret.bytes));
    raft->session.has_secret = !err;
    return err;
}

void hf_raft_session_attach(struct hf_raft_connection *connection)
{
    struct hf_raft *raft = connection->raft;
    const char *owner = raft->net.host->ops->owner(raft->net.host);
    struct hf_mux_request request = {
        .verb = raft->session.id > 0 ? HF_VERB_ATTACH : HF_VERB_OPEN,
        .session = raft->session.id,
        .label = {owner, strlen(owner)},
    };

    if (draw_secret(raft)) {
        hf_raft_connection_lose(connection, HF_ESYSTEM,
                                "cannot get random bytes from the kernel");
        return;
    }
    request.secret = raft->session.secret;
    request.id = raft->net.next_id++;
    connection->handshake = request.id;
    connection->session = raft->session.id;
    hf_raft_connection_send(connection, &request);
    hf_net_wake_at(&raft->net, hf_raft_connection_deadline(connection));
}

void hf_raft_session_on_gone(struct hf_raft *raft)
{
    hf_raft_requests_on_gone(raft);
    raft->session.id = 0;
    raft->session.has_secret = false;
}

static void lose_by_reply(struct hf_raft_connection *connection,
                          const struct hf_mux_reply *reply)
{
    struct hf_error error;

    (void)hf_error_set(&error, reply->err, "the session was refused: %.*s",
                       (int)reply->text.size, (const char *)reply->text.data);
    hf_raft_connection_lose(connection, reply->err, error.text);
}

/* The session is attached to the connection, or was opened there. */
static void on_session_reply(struct hf_raft_connection *connection,
                             const struct hf_mux_reply *reply)
{
    struct hf_raft *raft = connection->raft;

    if (connection->session == 0)
        raft->session.id = reply->session;
    if (connection->session > 0 && connection->session != raft->session.id)
        hf_raft_session_attach(connection); /* that session is gone by now */
    else
        hf_raft_route_on_attached(connection);
}

void hf_raft_session_on_reply(struct hf_raft_connection *connection,
                              const struct hf_resp_message *message)
{
    bool opens = connection->session == 0;
    struct hf_mux_reply reply;

    connection->handshake = 0;
    if (hf_mux_reply_decode(&reply, opens ? HF_VERB_OPEN : HF_VERB_ATTACH,
                            message) ||
        (opens && !reply.err && reply.session == 0)) {
        hf_raft_connection_lose(connection, HF_EPROTO,
                                "the node sent a malformed message");
    } else if (reply.session_gone && !opens) {
        if (connection->session == connection->raft->session.id)
            hf_raft_session_on_gone(connection->raft);
        hf_raft_route_take_over(connection);
        hf_raft_session_attach(connection);
    } else if (reply.err) {
        lose_by_reply(connection, &reply);
    } else {
        on_session_reply(connection, &reply);
    }
}
