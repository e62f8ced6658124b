/* receive.c - handle the messages of other nodes. */
#include "node/state.h"

static void on_echo_or_round(struct hf_node *node, struct hf_message *message)
{
    if (message->kind == HF_MESSAGE_ECHO) {
        hf_rounds_echo(&node->reads.rounds, message->peer, message->term,
                       message->round);
    } else if (message->term == hf_engine_term(&node->engine)) {
        message->kind = HF_MESSAGE_ECHO;
        hf_consensus_send(node, message);
    }
}

static void on_lost_report(struct hf_node *node,
                           const struct hf_message *message)
{
    uint64_t term = hf_engine_term(&node->engine);

    hf_lost_report(&node->lost, message->peer, message->term,
                   &(struct hf_lost_log){node->now, message->vote.last_term,
                                         message->vote.last_index});
    if (message->term == term && node->leader != 0 &&
        hf_lost_elects(&node->lost, term, node->now))
        (void)hf_consensus_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_LEADER_LOST,
                                           .peer = node->leader});
}

/* Entries are dropped while too many bytes wait for a flush; the leader sends
 * them again. */
static bool is_too_much(const struct hf_node *node,
                        const struct hf_message *message)
{
    return message->kind == HF_MESSAGE_APPEND && message->append.count > 0 &&
           node->journal.pending_bytes > HF_NODE_PENDING_MAX;
}

static void on_raft(struct hf_node *node, struct hf_peer *peer,
                    struct hf_reader *reader)
{
    struct hf_message message;

    if (hf_message_decode(reader, &message))
        return;
    message.peer = peer->id;
    if (message.kind == HF_MESSAGE_ROUND || message.kind == HF_MESSAGE_ECHO) {
        on_echo_or_round(node, &message);
    } else if (message.kind == HF_MESSAGE_LEADER_LOST) {
        on_lost_report(node, &message);
    } else if (!is_too_much(node, &message)) {
        if (message.kind == HF_MESSAGE_APPEND &&
            message.term == hf_engine_term(&node->engine))
            hf_lost_clear(&node->lost);
        (void)hf_consensus_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_RECEIVE,
                                           .message = &message});
    }
    hf_message_fini(&message);
}

static void on_forward(struct hf_node *node, struct hf_peer *peer,
                       struct hf_reader *reader)
{
    struct hf_packet_forward packet;
    struct hf_node_request request;

    if (hf_packet_decode_forward(reader, &packet))
        return;
    if (!hf_node_leads(node)) {
        hf_proposals_refuse(node, peer->id, packet.number);
        return;
    }
    request = (struct hf_node_request){
        .number = packet.number,
        .deadline = hf_time_add(node->now, packet.remaining_ms),
        .command = packet.command,
    };
    hf_proposals_add(node, peer->id, &request, NULL);
}

static void on_reply(struct hf_node *node, struct hf_reader *reader)
{
    struct hf_packet_reply reply;

    if (hf_packet_decode_reply(reader, &reply))
        return;
    if (reply.is_leader)
        hf_requests_on_reply(node, reply.number, &reply.outcome);
    else
        hf_requests_on_refused(node, reply.number);
}

static void on_read_packet(struct hf_node *node, struct hf_reader *reader)
{
    struct hf_packet_read_reply reply;

    if (!hf_packet_decode_read_reply(reader, &reply) && reply.is_leader)
        hf_reads_answer(node, reply.number, reply.index);
}

static void on_sessions(struct hf_node *node, struct hf_peer *peer,
                        enum hf_packet_kind kind, struct hf_reader *reader)
{
    while (reader->size > 0 && !reader->failed) {
        uint64_t id = hf_reader_u64(reader);

        if (kind == HF_PACKET_ATTACH)
            hf_sessions_attach(node, peer->id, id);
        else
            hf_sessions_detach(node, peer->id, id);
    }
}

static void on_push_packet(struct hf_node *node, struct hf_reader *reader)
{
    struct hf_node_grant grant;

    if (hf_packet_decode_push(reader, &grant))
        return;
    if (grant.token > node->attachments.pushed)
        node->attachments.pushed = grant.token;
    hf_attachments_push(node, &grant);
}

static void on_snapshot(struct hf_node *node, struct hf_peer *peer,
                        struct hf_reader *reader)
{
    struct hf_packet_snapshot part;

    if (!hf_packet_decode_snapshot(reader, &part))
        hf_transfers_on_part(node, peer, &part);
}

static void on_snapshot_ack(struct hf_node *node, struct hf_peer *peer,
                            struct hf_reader *reader)
{
    struct hf_packet_snapshot_ack ack;

    if (!hf_packet_decode_ack(reader, &ack))
        hf_transfers_on_ack(node, peer, &ack);
}

/* Messages of an unknown kind come from a later version, and are ignored. */
void hf_receive_message(struct hf_node *node, struct hf_peer *peer,
                        enum hf_packet_kind kind, struct hf_reader *reader)
{
    switch (kind) {
    case HF_PACKET_RAFT:
        on_raft(node, peer, reader);
        break;
    case HF_PACKET_FORWARD:
        on_forward(node, peer, reader);
        break;
    case HF_PACKET_REPLY:
        on_reply(node, reader);
        break;
    case HF_PACKET_READ:
        hf_reads_ask(node, peer->id, hf_reader_u64(reader));
        break;
    case HF_PACKET_READ_REPLY:
        on_read_packet(node, reader);
        break;
    case HF_PACKET_ATTACH:
    case HF_PACKET_DETACH:
        on_sessions(node, peer, kind, reader);
        break;
    case HF_PACKET_DETACH_ALL:
        hf_sessions_drop_origin(node, peer->id);
        break;
    case HF_PACKET_PUSH:
        on_push_packet(node, reader);
        break;
    case HF_PACKET_SNAPSHOT:
        on_snapshot(node, peer, reader);
        break;
    case HF_PACKET_SNAPSHOT_ACK:
        on_snapshot_ack(node, peer, reader);
        break;
    default:
        break;
    }
}
