/* node_receive.c - what arrives at a simulated node: frames, and the calls of
 * clients. */
#include "lib/runner.h"
#include "sim/node.h"

/* ---- Clients ------------------------------------------------------------*/

enum hf_err sim_node_submit(struct sim_node *node, const uint64_t *commands,
                            size_t count)
{
    struct hf_bytes bytes[16];

    assert_true(count <= 16);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (struct hf_bytes){&commands[i], sizeof(commands[i])};
    return sim_node_step(node,
                         (struct hf_engine_event){.kind = HF_ENGINE_SUBMIT,
                                                  .submit = {bytes, count}});
}

enum hf_err sim_node_read(struct sim_node *node)
{
    enum hf_err err;

    if (!hf_engine_can_read(&node->engine))
        return HF_ESTATE;
    err = hf_rounds_add(&node->rounds, node->engine.commit,
                        node->checks->acknowledged);
    sim_node_start_round(node, false);
    return err;
}

/* ---- Receiving ----------------------------------------------------------*/

/* Stand for election if a majority has lost the leader and our log is the most
 * complete. */
static void consider_lost_leader(struct sim_node *node)
{
    uint64_t leader = hf_engine_leader(&node->engine);

    if (leader != 0 && leader != node->id &&
        hf_lost_elects(&node->lost, hf_engine_term(&node->engine),
                       node->schedule->now))
        (void)sim_node_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_LEADER_LOST,
                                           .peer = leader});
}

void sim_node_lose_leader(struct sim_node *node)
{
    uint64_t leader = hf_engine_leader(&node->engine);
    uint64_t term = hf_engine_term(&node->engine);
    uint64_t last = node->engine.log.last;
    uint64_t last_term = hf_entries_term(&node->engine.log, last);

    if (leader == 0 || leader == node->id)
        return;
    hf_lost_report(&node->lost, node->id, term,
                   &(struct hf_lost_log){node->schedule->now, last_term, last});
    sim_node_send_to_voters(
        node, (struct hf_message){
                  .kind = HF_MESSAGE_LEADER_LOST,
                  .term = term,
                  .vote = {.last_index = last, .last_term = last_term}});
    consider_lost_leader(node);
}

static void receive_snapshot(struct sim_node *node, uint64_t from,
                             struct hf_reader *reader)
{
    struct hf_buf members = {0};
    struct hf_engine_event event = {.kind = HF_ENGINE_SNAPSHOT_RECEIVED};
    struct sim_snapshot snapshot;

    (void)hf_reader_u8(reader);
    event.received.from = from;
    event.received.term = hf_reader_u64(reader);
    snapshot.index = hf_reader_u64(reader);
    snapshot.term = hf_reader_u64(reader);
    snapshot.hash = hf_reader_u64(reader);
    assert_false(reader->failed);
    if (!node->engine.installing)
        node->installing = snapshot;
    hf_membership_encode(&members, &node->members);
    event.received.snapshot = (struct hf_engine_snapshot){
        snapshot.index, snapshot.term, 1, {members.data, members.size}};
    (void)sim_node_step(node, event);
    hf_buf_fini(&members);
}

static void receive_message(struct sim_node *node,
                            const struct hf_message *message)
{
    switch (message->kind) {
    case HF_MESSAGE_HELLO:
        break;
    case HF_MESSAGE_ROUND:
        if (message->term == hf_engine_term(&node->engine)) {
            struct hf_message echo = *message;

            echo.kind = HF_MESSAGE_ECHO;
            sim_node_send(node, &echo, hf_engine_after(&node->engine));
            sim_node_send_outbox(node);
        }
        break;
    case HF_MESSAGE_ECHO:
        hf_rounds_echo(&node->rounds, message->peer, message->term,
                       message->round);
        sim_node_answer_reads(node);
        break;
    case HF_MESSAGE_LEADER_LOST:
        hf_lost_report(&node->lost, message->peer, message->term,
                       &(struct hf_lost_log){node->schedule->now,
                                             message->vote.last_term,
                                             message->vote.last_index});
        consider_lost_leader(node);
        break;
    default:
        if (message->kind == HF_MESSAGE_APPEND)
            hf_lost_clear(&node->lost);
        (void)sim_node_step(node,
                            (struct hf_engine_event){.kind = HF_ENGINE_RECEIVE,
                                                     .message = message});
    }
}

static void send_hello(struct sim_node *node, uint64_t peer)
{
    sim_node_send(node,
                  &(struct hf_message){.kind = HF_MESSAGE_HELLO, .peer = peer},
                  hf_engine_after(&node->engine));
    sim_node_send_outbox(node);
}

hf_time sim_node_deliver(struct sim_node *node, unsigned from,
                         const uint8_t *data, size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_message message;
    enum hf_frames_verdict verdict;

    if (!node->is_up)
        return 0;
    if (node->stopped_until > node->schedule->now)
        return node->stopped_until;
    assert_int_equal(hf_frames_sender(&reader), from + 1);
    verdict = hf_frames_check(&node->frames[from], node->storage.incarnation,
                              &reader);
    if (verdict == HF_FRAMES_ANNOUNCE)
        send_hello(node, from + 1);
    if (verdict != HF_FRAMES_ACCEPT)
        return 0;
    if (reader.size > 0 && reader.data[0] == SIM_NODE_SNAPSHOT) {
        receive_snapshot(node, from + 1, &reader);
        return 0;
    }
    assert_int_equal(hf_message_decode(&reader, &message), HF_OK);
    message.peer = from + 1;
    receive_message(node, &message);
    hf_message_fini(&message);
    return 0;
}
