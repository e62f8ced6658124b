#include "sim/node_messages.h"

#include "lib/runner.h"
#include "node/state.h"

typedef unsigned long long ull;

static void check_term(const struct sim_node *node, uint64_t term,
                       const struct hf_log_state *durable)
{
    if (term > durable->term)
        fail_msg("node %u sends term %llu, and term %llu is durable",
                 node->number + 1, (ull)term, (ull)durable->term);
}

/* The node has voted for `candidate` in `term`. In a later term, nobody asks
 * for that vote. */
static void check_vote(const struct sim_node *node, uint64_t term,
                       uint64_t candidate, const struct hf_log_state *durable)
{
    check_term(node, term, durable);
    if (term == durable->term && candidate != durable->vote)
        fail_msg("node %u votes for %llu in term %llu, and a vote for %llu is "
                 "durable",
                 node->number + 1, (ull)candidate, (ull)term,
                 (ull)durable->vote);
}

/* The node has the entries up to `index`, or had them in a term before the
 * current one: a new leader may have replaced them in the same turn. While the
 * node installs a snapshot, its log is empty. */
static void check_entries(const struct sim_node *node, uint64_t term,
                          uint64_t index, const struct hf_log_state *durable)
{
    const struct hf_engine *engine = &node->node->engine;

    if (index > durable->last_index && term == hf_engine_term(engine) &&
        !engine->installing)
        fail_msg("node %u acknowledges entry %llu, and entry %llu is durable",
                 node->number + 1, (ull)index, (ull)durable->last_index);
}

/* The term of a pre-vote is a proposal. */
static void check_message(struct node_messages *messages,
                          const struct sim_node *node, unsigned to,
                          const struct hf_message *message)
{
    struct hf_log_state durable = hf_wal_durable(node->node->journal.wal);
    const struct hf_message_vote_result *result = &message->vote_result;

    messages->checked++;
    switch (message->kind) {
    case HF_MESSAGE_VOTE:
        if (!message->vote.pre_vote)
            check_vote(node, message->term, node->number + 1, &durable);
        break;
    case HF_MESSAGE_VOTE_RESULT:
        if (result->granted && !result->pre_vote) {
            check_vote(node, message->term, to + 1, &durable);
            messages->votes++;
        }
        break;
    case HF_MESSAGE_APPEND_RESULT:
        if (message->append_result.rejected == 0)
            check_entries(node, message->term,
                          message->append_result.last_index, &durable);
        check_term(node, message->term, &durable);
        break;
    default:
        check_term(node, message->term, &durable);
    }
}

static void check_frame(struct node_messages *messages,
                        const struct sim_node *node, unsigned to,
                        struct hf_reader *frame)
{
    struct hf_frames frames = {0};

    (void)hf_frames_sender(frame);
    (void)hf_frames_check(&frames, 0, frame);
    (void)hf_reader_u8(frame); /* flags */
    while (frame->size > 0 && !frame->failed) {
        uint8_t kind = hf_reader_u8(frame);
        struct hf_bytes bytes = hf_reader_bytes(frame, HF_NODE_FRAME_MAX);
        struct hf_reader reader = {.data = bytes.data, .size = bytes.size};
        struct hf_message message;

        if (kind != HF_PACKET_RAFT)
            continue;
        assert_int_equal(hf_message_decode(&reader, &message), HF_OK);
        check_message(messages, node, to, &message);
        hf_message_fini(&message);
    }
    assert_false(frame->failed);
}

void node_messages_check(struct node_messages *messages,
                         const struct sim_node *node, unsigned to,
                         bool is_first, const void *bytes, size_t size)
{
    struct hf_reader reader = {.data = bytes, .size = size};

    while (reader.size > 0) {
        struct hf_bytes frame_bytes =
            hf_reader_bytes(&reader, HF_NODE_FRAME_MAX);
        struct hf_reader frame = {.data = frame_bytes.data,
                                  .size = frame_bytes.size};

        assert_false(reader.failed);
        if (!is_first)
            check_frame(messages, node, to, &frame);
        is_first = false;
    }
}
