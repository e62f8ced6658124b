#include "node/attachments.h"

#include <stdlib.h>

#include "node/state.h"

#define IDS_PER_MESSAGE 4096

struct attachment {
    struct hf_map_link link;
    uint64_t session;
    uint64_t conn;
};

void hf_attachments_init(struct hf_attachments *attachments)
{
    hf_map_init(&attachments->by_session);
}

static struct attachment *attachment_at(struct hf_map_link *link)
{
    return link ? HF_CONTAINER(link, struct attachment, link) : NULL;
}

void hf_attachments_fini(struct hf_attachments *attachments)
{
    struct hf_map_link *link = hf_map_next(&attachments->by_session, NULL);

    while (link) {
        struct attachment *attachment = attachment_at(link);

        link = hf_map_next(&attachments->by_session, link);
        free(attachment);
    }
    hf_map_fini(&attachments->by_session);
}

static struct attachment *find_attachment(const struct hf_node *node,
                                          uint64_t session)
{
    struct hf_map_link *link =
        hf_map_find(&node->attachments.by_session, hf_map_hash_number(session));

    while (link && attachment_at(link)->session != session)
        link = hf_map_find_next(link);
    return attachment_at(link);
}

/* ---- Reporting to the leader --------------------------------------------*/

/* Report that `session` was attached or detached. Does nothing while the leader
 * lacks the list of all attachments: it will receive the list with this
 * change. */
static void send_change(struct hf_node *node, enum hf_packet_kind kind,
                        uint64_t session)
{
    struct hf_peer *leader = hf_peers_leader(node);

    if (!node->attachments.is_announced)
        return;
    if (hf_node_leads(node)) {
        if (kind == HF_PACKET_ATTACH)
            hf_sessions_attach(node, node->opts.id, session);
        else
            hf_sessions_detach(node, node->opts.id, session);
        return;
    }
    hf_buf_u64(hf_peers_message(node), session);
    if (!leader || !hf_peers_send(node, leader, kind))
        node->attachments.is_announced = false;
}

/* Send the next sessions after `link` (NULL: the first ones), at most
 * IDS_PER_MESSAGE. Returns the last one in the message, or NULL if none are
 * left. `*sent` is false if the message was dropped. */
static struct hf_map_link *send_some(struct hf_node *node,
                                     struct hf_peer *leader,
                                     struct hf_map_link *link, bool *sent)
{
    const struct hf_map *map = &node->attachments.by_session;
    struct hf_buf *message = hf_peers_message(node);
    struct hf_map_link *next = hf_map_next(map, link);

    for (unsigned i = 0; next && i < IDS_PER_MESSAGE; i++) {
        hf_buf_u64(message, attachment_at(next)->session);
        link = next;
        next = hf_map_next(map, link);
    }
    *sent = hf_peers_send(node, leader, HF_PACKET_ATTACH);
    return next ? link : NULL;
}

/* The leader forgets the earlier list first: a DETACH may have been dropped. */
static void announce_to(struct hf_node *node, struct hf_peer *leader)
{
    struct hf_map_link *link = NULL;
    bool sent;

    (void)hf_peers_message(node);
    sent = hf_peers_send(node, leader, HF_PACKET_DETACH_ALL);
    if (sent && node->attachments.by_session.count > 0) {
        do
            link = send_some(node, leader, link, &sent);
        while (link && sent);
    }
    node->attachments.is_announced = sent;
}

void hf_attachments_announce(struct hf_node *node)
{
    const struct hf_map *map = &node->attachments.by_session;
    struct hf_peer *leader = hf_peers_leader(node);
    struct hf_map_link *link = NULL;

    if (node->attachments.is_announced)
        return;
    if (leader)
        announce_to(node, leader);
    if (!hf_node_leads(node))
        return;
    while ((link = hf_map_next(map, link)))
        hf_sessions_attach(node, node->opts.id, attachment_at(link)->session);
    node->attachments.is_announced = true;
}

/* ---- Attaching ----------------------------------------------------------*/

enum hf_err hf_attachments_add(struct hf_node *node, uint64_t session,
                               uint64_t conn)
{
    struct attachment *attachment = find_attachment(node, session);

    if (!attachment) {
        attachment = calloc(1, sizeof(*attachment));
        if (!attachment)
            return HF_ENOMEM;
        attachment->session = session;
        hf_map_insert(&node->attachments.by_session, &attachment->link,
                      hf_map_hash_number(session));
    }
    attachment->conn = conn;
    send_change(node, HF_PACKET_ATTACH, session);
    return HF_OK;
}

void hf_attachments_remove(struct hf_node *node, uint64_t session,
                           uint64_t conn)
{
    struct attachment *attachment = find_attachment(node, session);

    if (!attachment || attachment->conn != conn)
        return;
    hf_map_remove(&node->attachments.by_session, &attachment->link);
    free(attachment);
    send_change(node, HF_PACKET_DETACH, session);
}

void hf_attachments_push(struct hf_node *node,
                         const struct hf_node_grant *grant)
{
    const struct attachment *attachment = find_attachment(node, grant->session);

    if (attachment && node->hooks.on_grant)
        node->hooks.on_grant(node->hooks_arg, attachment->conn, grant);
}

void hf_attachments_push_forced(struct hf_node *node, uint64_t session,
                                uint64_t token)
{
    const struct attachment *attachment = find_attachment(node, session);

    if (attachment && node->hooks.on_forced)
        node->hooks.on_forced(node->hooks_arg, attachment->conn, token);
}
