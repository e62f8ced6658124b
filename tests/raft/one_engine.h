/* one_engine.h - the fixture of cases with one engine: the case itself makes
 * the messages of the other nodes. */
#ifndef HF_TESTS_RAFT_ONE_ENGINE_H
#define HF_TESTS_RAFT_ONE_ENGINE_H

#include "lib/runner.h"
#include "raft/engine.h"

#define ELECTION_MS 300u
#define HEARTBEAT_MS 50u

/* The node under test has the id 1; the others are 2, 3, ... */
struct one {
    struct hf_engine engine;
    struct hf_engine_update update; /* of the last step */
    hf_time now;
    uint64_t voters;
    struct hf_engine_loaded loaded; /* set it before one_start() */
};

static inline void one_init(struct one *one, uint64_t voters)
{
    struct hf_engine_config config = {
        .id = 1,
        .election_ms = ELECTION_MS,
        .heartbeat_ms = HEARTBEAT_MS,
        .inflight_max = 1000,
        .trailing = 0,
        .seed = 1,
    };

    *one = (struct one){.now = 1000, .voters = voters};
    one->loaded.term = 1;
    assert_int_equal(hf_engine_init(&one->engine, &config), HF_OK);
}

static inline void one_fini(struct one *one)
{
    hf_engine_fini(&one->engine);
}

static inline struct hf_membership one_members(const struct one *one)
{
    struct hf_membership members = {.count = one->voters};

    for (uint64_t i = 0; i < one->voters; i++)
        members.voters[i] = i + 1;
    return members;
}

/* Add an entry to the log that the node finds on its disk. */
static inline void one_load(struct one *one, uint64_t term)
{
    struct hf_entry entry = {term, HF_ENTRY_COMMAND, {"abc", 3}};

    assert_int_equal(hf_entries_append(&one->engine.log, &entry, 1), HF_OK);
}

static inline void one_load_first(struct one *one)
{
    struct hf_membership members = one_members(one);
    struct hf_buf data = {0};
    struct hf_entry entry;

    hf_engine_first_entry(&members, &data, &entry);
    assert_int_equal(hf_entries_append(&one->engine.log, &entry, 1), HF_OK);
    hf_buf_fini(&data);
}

static inline void one_start(struct one *one)
{
    assert_int_equal(
        hf_engine_start(&one->engine, &one->loaded, one->now, &one->update),
        HF_OK);
}

/* Let the node start with a snapshot at `index`, and a log that begins after
 * it. `members` must outlive one_start(); the caller frees it. */
static inline void one_load_snapshot(struct one *one, uint64_t index,
                                     uint64_t term, struct hf_buf *members)
{
    struct hf_membership voters = one_members(one);

    hf_membership_encode(members, &voters);
    one->loaded.snapshot = (struct hf_engine_snapshot){
        .index = index,
        .term = term,
        .members_index = 1,
        .members = {members->data, members->size},
    };
    hf_entries_reset(&one->engine.log, index, term);
}

static inline enum hf_err one_step(struct one *one,
                                   struct hf_engine_event event)
{
    event.now = one->now;
    return hf_engine_step(&one->engine, &event, &one->update);
}

static inline enum hf_err one_receive(struct one *one, uint64_t from,
                                      struct hf_message message)
{
    message.peer = from;
    message.version = 2;
    return one_step(one, (struct hf_engine_event){.kind = HF_ENGINE_RECEIVE,
                                                  .message = &message});
}

static inline void one_tick_after(struct one *one, uint32_t ms)
{
    one->now += ms;
    assert_int_equal(
        one_step(one, (struct hf_engine_event){.kind = HF_ENGINE_TICK}), HF_OK);
}

/* Report to the engine that all writes so far are durable. */
static inline void one_persist(struct one *one)
{
    uint64_t write = one->engine.last_write;

    assert_int_equal(
        one_step(one, (struct hf_engine_event){.kind = HF_ENGINE_PERSISTED,
                                               .write = write}),
        HF_OK);
}

/* Receive `count` entries of `term` after (prev_index, prev_term), from node
 * `leader`, which leads in `term` and has the commit index `commit`. */
static inline enum hf_err one_append(struct one *one, uint64_t leader,
                                     uint64_t term, uint64_t prev_index,
                                     uint64_t prev_term, uint32_t count,
                                     uint64_t commit)
{
    struct hf_entry entries[64];

    assert_true(count <= 64);
    for (uint32_t i = 0; i < count; i++)
        entries[i] = (struct hf_entry){term, HF_ENTRY_COMMAND, {"xyz", 3}};
    return one_receive(one, leader,
                       (struct hf_message){.kind = HF_MESSAGE_APPEND,
                                           .term = term,
                                           .append = {prev_index, prev_term,
                                                      commit, entries, count}});
}

/* Returns the first message of this kind to `peer` in the last update, or
 * NULL. */
static inline const struct hf_message *one_find(const struct one *one,
                                                enum hf_message_kind kind,
                                                uint64_t peer)
{
    for (size_t i = 0; i < one->update.message_count; i++) {
        if (one->update.messages[i].kind == kind &&
            one->update.messages[i].peer == peer)
            return &one->update.messages[i];
    }
    return NULL;
}

/* Elect the node: time out, win the pre-vote and the vote of node 2. */
static inline void one_elect(struct one *one)
{
    one_tick_after(one, 2 * ELECTION_MS);
    for (int pre_vote = 1; pre_vote >= 0; pre_vote--) {
        uint64_t term = hf_engine_term(&one->engine) + (pre_vote == 1 ? 1 : 0);

        one_persist(one);
        assert_int_equal(
            one_receive(one, 2,
                        (struct hf_message){
                            .kind = HF_MESSAGE_VOTE_RESULT,
                            .term = term,
                            .vote_result = {true, pre_vote == 1, 0, 0}}),
            HF_OK);
    }
    assert_int_equal(hf_engine_role(&one->engine), HF_ENGINE_LEADER);
}

#endif
