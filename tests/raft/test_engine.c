/* test_engine.c - what one step of the engine asks its caller to store and to
 * send. */
#include <stdlib.h>

#include "base/limits.h"
#include "lib/alloc.h"
#include "raft/one_engine.h"

/* ---- Start --------------------------------------------------------------*/

static void new_voter_waits_for_its_timeout(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one.update.role, HF_ENGINE_FOLLOWER);
    assert_int_equal(one.update.commit, 1); /* the members */
    assert_int_equal(one.update.write, 0);
    assert_true(one.update.timeout >= one.now + ELECTION_MS);
    assert_true(one.update.timeout <= one.now + ELECTION_MS + ELECTION_MS);
    one_fini(&one);
}

static void a_log_without_members_does_not_start(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load(&one, 1);
    assert_int_equal(hf_engine_start(&one.engine, &one.loaded, 0, &one.update),
                     HF_EINVAL);
    one_fini(&one);
}

static void bad_configurations_are_refused(void **state)
{
    struct hf_engine_config config = {1, 300, 50, 10, 0, 0};
    struct hf_engine engine;

    (void)state;
    config.id = 0;
    assert_int_equal(hf_engine_init(&engine, &config), HF_EINVAL);
    hf_engine_fini(&engine);
    config.id = 1;
    config.heartbeat_ms = 150;
    assert_int_equal(hf_engine_init(&engine, &config), HF_EINVAL);
    hf_engine_fini(&engine);
}

static void a_log_that_contradicts_the_snapshot_is_dropped(void **state)
{
    struct hf_buf members = {0};
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_snapshot(&one, 10, 4, &members);
    hf_entries_reset(&one.engine.log, 0, 0);
    for (unsigned i = 0; i < 12; i++)
        one_load(&one, 2); /* entry 10 is of term 2, not 4 */
    one.loaded.term = 4;
    one_start(&one);
    assert_true(one.update.changes & HF_ENGINE_RESET);
    assert_true(one.update.write > 0);
    assert_int_equal(one.engine.log.last, 10);
    assert_int_equal(hf_entries_term(&one.engine.log, 10), 4);
    assert_int_equal(one.update.commit, 10);
    one_fini(&one);
    hf_buf_fini(&members);
}

static void a_log_that_contains_the_snapshot_is_kept(void **state)
{
    struct hf_buf members = {0};
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_snapshot(&one, 10, 2, &members);
    hf_entries_reset(&one.engine.log, 0, 0);
    for (unsigned i = 0; i < 12; i++)
        one_load(&one, 2);
    one.loaded.term = 4;
    one_start(&one);
    assert_false(one.update.changes & HF_ENGINE_RESET);
    assert_int_equal(one.engine.log.last, 12);
    one_fini(&one);
    hf_buf_fini(&members);
}

/* ---- Leading ------------------------------------------------------------*/

static void a_new_leader_appends_a_no_op(void **state)
{
    const struct hf_entry *entry;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    assert_true(one.update.changes & HF_ENGINE_ENTRIES);
    assert_int_equal(one.update.first, 2);
    assert_int_equal(one.update.last, 2);
    entry = hf_entries_find(&one.engine.log, 2);
    assert_int_equal(entry->kind, HF_ENTRY_BARRIER);
    assert_int_equal(entry->term, 2);
    assert_false(hf_engine_can_read(&one.engine));
    one_fini(&one);
}

static void a_no_op_with_uncommitted_entries_is_appended_once(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_load(&one, 1);
    one_start(&one);
    one_elect(&one);
    assert_int_equal(one.engine.log.last, 3);
    assert_int_equal(hf_entries_find(&one.engine.log, 3)->kind,
                     HF_ENTRY_BARRIER);
    one_fini(&one);
}

/* Submit `count` commands of `size` bytes each. */
static enum hf_err submit(struct one *one, size_t count, size_t size)
{
    struct hf_bytes *commands = calloc(count, sizeof(*commands));
    void *data = calloc(1, size + 1);
    enum hf_err err;

    for (size_t i = 0; i < count; i++)
        commands[i] = (struct hf_bytes){data, size};
    err = one_step(one, (struct hf_engine_event){.kind = HF_ENGINE_SUBMIT,
                                                 .submit = {commands, count}});
    free(data);
    free(commands);
    return err;
}

/* Node `from` acknowledges the log up to `index`. */
static void acknowledge(struct one *one, uint64_t from, uint64_t index)
{
    uint64_t term = hf_engine_term(&one->engine);

    assert_int_equal(
        one_receive(one, from,
                    (struct hf_message){.kind = HF_MESSAGE_APPEND_RESULT,
                                        .term = term,
                                        .append_result = {0, index, 0, 0}}),
        HF_OK);
}

/* Node `from`, whose log ends at `last`, rejects entries after `index`. */
static void reject(struct one *one, uint64_t from, uint64_t index,
                   uint64_t last)
{
    uint64_t term = hf_engine_term(&one->engine);

    assert_int_equal(
        one_receive(one, from,
                    (struct hf_message){.kind = HF_MESSAGE_APPEND_RESULT,
                                        .term = term,
                                        .append_result = {index, last, 0, 0}}),
        HF_OK);
}

static void a_command_is_committed_by_a_majority(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    one_persist(&one);
    acknowledge(&one, 2, 2);
    assert_int_equal(one.update.commit, 2);
    assert_true(hf_engine_can_read(&one.engine));
    assert_int_equal(submit(&one, 3, 5), HF_OK);
    assert_int_equal(one.update.submitted, 3);
    assert_int_equal(one.update.last, 5);
    acknowledge(&one, 2, 5);
    assert_int_equal(one.update.commit, 2); /* our own copy is not durable */
    one_persist(&one);
    assert_int_equal(one.update.commit, 5);
    one_fini(&one);
}

static void an_idle_follower_is_sent_the_commit_index(void **state)
{
    struct hf_message message;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    one_persist(&one);
    acknowledge(&one, 2, 2);
    assert_false(hf_engine_send_commit(&one.engine, 3, &message));
    assert_false(hf_engine_send_commit(&one.engine, 1, &message));
    assert_true(hf_engine_send_commit(&one.engine, 2, &message));
    assert_int_equal(message.peer, 2);
    assert_int_equal(message.append.prev_index, 2);
    assert_int_equal(message.append.prev_term, 2);
    assert_int_equal(message.append.commit, 2);
    assert_int_equal(message.append.count, 0);
    assert_false(hf_engine_send_commit(&one.engine, 2, &message));
    one_fini(&one);
}

/* If a follower refused entries, it would not learn either that earlier ones
 * are committed, and could never compact its log. */
static void a_full_log_does_not_refuse_entries_of_the_leader(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one.engine.log.bytes_max = 1;
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 1, 1), HF_OK);
    assert_int_equal(one.engine.log.last, 2);
    one_fini(&one);
}

static void a_full_log_does_not_prevent_an_election(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one.engine.log.bytes_max = 1;
    one_start(&one);
    one_elect(&one);
    assert_int_equal(one.engine.log.last, 2);
    one_fini(&one);
}

static void entries_of_earlier_terms_are_not_committed_alone(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_load(&one, 1);
    one_start(&one);
    one_elect(&one); /* appends entry 3 */
    one_persist(&one);
    acknowledge(&one, 2, 2);
    assert_int_equal(one.update.commit, 1);
    acknowledge(&one, 2, 3);
    assert_int_equal(one.update.commit, 3);
    one_fini(&one);
}

static void a_follower_refuses_commands(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(submit(&one, 1, 1), HF_ESTATE);
    assert_int_equal(one.engine.log.last, 1);
    one_fini(&one);
}

static void large_messages_are_split(void **state)
{
    uint64_t next = 3;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    one_persist(&one);
    acknowledge(&one, 2, 2);
    assert_int_equal(submit(&one, 5, HF_RAFT_APPEND_BYTES / 2), HF_OK);
    for (size_t i = 0; i < one.update.message_count; i++) {
        const struct hf_message *message = &one.update.messages[i];

        if (message->peer != 2)
            continue;
        assert_int_equal(message->kind, HF_MESSAGE_APPEND);
        assert_int_equal(message->append.prev_index, next - 1);
        assert_int_equal(message->append.prev_term, 2);
        assert_true(message->append.count <= 2);
        next += message->append.count;
    }
    assert_int_equal(next, 8);
    one_fini(&one);
}

/* Returns the bytes of entries for `peer` in the messages of the last step. */
static uint64_t bytes_sent_to(const struct one *one, uint64_t peer)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < one->update.message_count; i++) {
        const struct hf_message *message = &one->update.messages[i];

        if (message->peer != peer || message->kind != HF_MESSAGE_APPEND)
            continue;
        for (uint32_t j = 0; j < message->append.count; j++)
            bytes += message->append.entries[j].data.size;
    }
    return bytes;
}

/* Node 3, whose log ends at `last`, receives the messages of the last step, and
 * answers the last one. Returns where its log ends then. */
static uint64_t follow(struct one *one, uint64_t last)
{
    uint64_t prev_index = 0;
    bool is_rejected = false;

    for (size_t i = 0; i < one->update.message_count; i++) {
        const struct hf_message *message = &one->update.messages[i];

        if (message->peer != 3 || message->kind != HF_MESSAGE_APPEND)
            continue;
        prev_index = message->append.prev_index;
        is_rejected = prev_index > last;
        if (prev_index + message->append.count > last && !is_rejected)
            last = prev_index + message->append.count;
    }
    if (is_rejected)
        reject(one, 3, prev_index, last);
    else if (prev_index > 0)
        acknowledge(one, 3, last);
    else
        one_tick_after(one, HEARTBEAT_MS);
    return last;
}

/* A peer that does not answer gets heartbeats, and when it answers, all that it
 * lacks. */
static void a_silent_peer_gets_a_limited_number_of_bytes(void **state)
{
    const uint64_t most = HF_RAFT_UNANSWERED_BYTES + HF_RAFT_APPEND_BYTES;
    uint64_t sent = 0;
    uint64_t last = 2; /* of the log of node 3 */
    unsigned heartbeats = 0;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    one_persist(&one);
    acknowledge(&one, 2, 2);
    acknowledge(&one, 3, 2);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(submit(&one, 1, HF_RAFT_ENTRY_MAX), HF_OK);
        sent += bytes_sent_to(&one, 3);
        one_persist(&one);
        acknowledge(&one, 2, one.engine.log.last);
        sent += bytes_sent_to(&one, 3);
        assert_int_equal(one.update.commit, one.engine.log.last);
    }
    for (unsigned i = 0; i < 20; i++) {
        one_tick_after(&one, HEARTBEAT_MS);
        sent += bytes_sent_to(&one, 3);
        heartbeats += one_find(&one, HF_MESSAGE_APPEND, 3) != NULL;
        acknowledge(&one, 2, one.engine.log.last);
    }
    assert_true(sent > HF_RAFT_UNANSWERED_BYTES / 2 && sent < most);
    assert_true(heartbeats > 0);
    for (unsigned i = 0; i < 100 && last < one.engine.log.last; i++) {
        last = follow(&one, last);
        assert_true(bytes_sent_to(&one, 3) < most);
    }
    assert_int_equal(last, one.engine.log.last);
    one_fini(&one);
}

static void a_full_log_refuses_commands(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one.engine.log.bytes_max = 4096;
    one_start(&one);
    one_elect(&one);
    assert_int_equal(submit(&one, 1, 5000), HF_ELIMIT);
    assert_int_equal(one.engine.log.last, 2);
    assert_int_equal(submit(&one, 1, 1000), HF_OK);
    one_fini(&one);
}

/* ---- Following ----------------------------------------------------------*/

static void an_append_is_acknowledged_when_it_is_durable(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    assert_null(one_find(&one, HF_MESSAGE_APPEND_RESULT, 2));
    assert_int_equal(one.update.first, 2);
    assert_int_equal(one.update.last, 4);
    assert_true(one.update.changes & HF_ENGINE_HARD_STATE);
    assert_int_equal(one.update.term, 2);
    assert_int_equal(one.update.leader, 2);
    one_persist(&one);
    assert_int_equal(
        one_find(&one, HF_MESSAGE_APPEND_RESULT, 2)->append_result.last_index,
        4);
    one_fini(&one);
}

/* G2-09: the entries 2 to 4 of the leader differ from those of this node. Its
 * heartbeats have the commit index 4: the first one does not match the log, and
 * the second one does so only up to entry 1. */
static void entries_that_the_leader_lacks_are_not_committed(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    one_persist(&one);
    assert_int_equal(one_append(&one, 3, 3, 4, 3, 0, 4), HF_OK);
    assert_int_equal(one.update.commit, 1);
    assert_int_equal(one_append(&one, 3, 3, 1, 1, 0, 4), HF_OK);
    assert_int_equal(one.update.commit, 1);
    one_fini(&one);
}

/* GO-26 */
static void a_candidate_of_an_older_term_gets_no_vote(void **state)
{
    const struct hf_message *result;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one.loaded.term = 9;
    one_start(&one);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE,
                                        .term = 8,
                                        .vote = {20, 8, false, false}}),
        HF_OK);
    one_persist(&one);
    result = one_find(&one, HF_MESSAGE_VOTE_RESULT, 2);
    assert_true(result == NULL || !result->vote_result.granted);
    assert_int_equal(hf_engine_term(&one.engine), 9);
    assert_int_equal(one.update.vote, 0);
    one_fini(&one);
}

static void an_overlapping_append_adds_new_entries_only(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    assert_int_equal(one_append(&one, 2, 2, 2, 2, 4, 1), HF_OK);
    assert_int_equal(one.update.first, 5);
    assert_int_equal(one.update.last, 6);
    one_fini(&one);
}

static void the_flush_of_replaced_entries_is_not_acknowledged(void **state)
{
    uint64_t replaced;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    replaced = one.update.write;
    /* The leader of term 3 replaces entries 3 and 4. */
    assert_int_equal(one_append(&one, 3, 3, 2, 2, 2, 1), HF_OK);
    assert_int_equal(one.update.first, 3);
    assert_int_equal(
        one_step(&one, (struct hf_engine_event){.kind = HF_ENGINE_PERSISTED,
                                                .write = replaced}),
        HF_OK);
    assert_int_equal(
        one_find(&one, HF_MESSAGE_APPEND_RESULT, 3)->append_result.last_index,
        2);
    one_persist(&one);
    assert_int_equal(
        one_find(&one, HF_MESSAGE_APPEND_RESULT, 3)->append_result.last_index,
        4);
    one_fini(&one);
}

static void a_vote_is_sent_after_it_is_durable(void **state)
{
    uint64_t write;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE,
                                        .term = 2,
                                        .vote = {1, 1, false, false}}),
        HF_OK);
    assert_true(one_find(&one, HF_MESSAGE_VOTE_RESULT, 2)->vote_result.granted);
    assert_true(one.update.changes & HF_ENGINE_HARD_STATE);
    assert_int_equal(one.update.vote, 2);
    write = one.update.write;
    assert_true(write > 0);
    assert_int_equal(one.update.after, write);
    /* Later messages wait for the same write. */
    assert_int_equal(one_append(&one, 2, 2, 9, 2, 0, 1), HF_OK);
    assert_non_null(one_find(&one, HF_MESSAGE_APPEND_RESULT, 2));
    assert_int_equal(one.update.after, write);
    one_persist(&one);
    assert_int_equal(one_append(&one, 2, 2, 9, 2, 0, 1), HF_OK);
    assert_int_equal(one.update.after, 0);
    one_fini(&one);
}

static void messages_of_strangers_are_ignored(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 7, 9, 1, 1, 1, 1), HF_OK);
    assert_int_equal(one_append(&one, 1, 9, 1, 1, 1, 1), HF_OK);
    assert_int_equal(hf_engine_term(&one.engine), 1);
    assert_int_equal(one.engine.log.last, 1);
    one_fini(&one);
}

/* ---- Snapshots ----------------------------------------------------------*/

static enum hf_err take_snapshot(struct one *one, uint64_t index)
{
    return one_step(one, (struct hf_engine_event){
                             .kind = HF_ENGINE_SNAPSHOT_TAKEN, .index = index});
}

/* Large entries before a snapshot must not use up the limit of the log. */
static void entries_kept_before_a_snapshot_are_limited_in_bytes(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one.engine.config.trailing = 100;
    one_load_first(&one);
    one.engine.log.bytes_max = 40000;
    one_start(&one);
    one_elect(&one);
    for (unsigned i = 0; i < 30; i++) {
        assert_int_equal(submit(&one, 1, 3000), HF_OK);
        one_persist(&one);
        acknowledge(&one, 2, one.engine.log.last);
        if (i % 6 == 5)
            assert_int_equal(take_snapshot(&one, one.engine.log.last), HF_OK);
    }
    /* They may have a quarter of the limit. */
    assert_int_equal(one.engine.log.base_index, one.engine.log.last - 3);
    /* The library forgets the same entries: it asks for a snapshot instead. */
    one_tick_after(&one, HEARTBEAT_MS);
    reject(&one, 3, one.engine.snapshot.index, 1);
    assert_int_equal(one.update.snapshot_peer_count, 1);
    one_fini(&one);
}

/* Commit a command with the acknowledgement of node 2, and take a snapshot. */
static void commit_and_take_snapshot(struct one *one)
{
    assert_int_equal(submit(one, 1, 10), HF_OK);
    one_persist(one);
    acknowledge(one, 2, one->engine.log.last);
    assert_int_equal(take_snapshot(one, one->engine.log.last), HF_OK);
}

/* Node 3 was sent a snapshot and has lost it. The leader has another one by
 * now, and then the library ignores rejections. */
static void a_follower_that_lost_a_snapshot_is_served_again(void **state)
{
    struct one one;
    bool is_served = false;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    commit_and_take_snapshot(&one);
    one_tick_after(&one, HEARTBEAT_MS);
    reject(&one, 3, one.engine.snapshot.index, 1);
    assert_int_equal(one.update.snapshot_peer_count, 1);
    commit_and_take_snapshot(&one);
    for (unsigned ms = 0; ms < 3 * ELECTION_MS && !is_served;
         ms += HEARTBEAT_MS) {
        one_tick_after(&one, HEARTBEAT_MS);
        is_served = one.update.snapshot_peer_count > 0;
        acknowledge(&one, 2, one.engine.log.last);
        reject(&one, 3, one.engine.snapshot.index, 1);
        is_served |= one.update.snapshot_peer_count > 0;
    }
    assert_true(is_served);
    one_fini(&one);
}

static void a_snapshot_is_taken_of_what_is_durable_and_committed(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 5, 5), HF_OK);
    assert_int_equal(take_snapshot(&one, 4), HF_ESTATE); /* not durable */
    one_persist(&one);
    assert_int_equal(take_snapshot(&one, 6), HF_ESTATE); /* not committed */
    assert_int_equal(take_snapshot(&one, 4), HF_OK);
    assert_int_equal(take_snapshot(&one, 4), HF_ESTATE); /* not new */
    assert_int_equal(one.engine.log.base_index, 4);
    assert_int_equal(hf_entries_term(&one.engine.log, 4), 2);
    assert_int_equal(one.engine.log.last, 6);
    one_fini(&one);
}

static enum hf_err receive_snapshot(struct one *one, uint64_t index,
                                    uint64_t term)
{
    struct hf_membership voters = one_members(one);
    struct hf_buf members = {0};
    struct hf_engine_event event = {.kind = HF_ENGINE_SNAPSHOT_RECEIVED};
    enum hf_err err;

    hf_membership_encode(&members, &voters);
    if (members.failed)
        return HF_ENOMEM;
    event.received.from = 2;
    event.received.term = term;
    event.received.snapshot = (struct hf_engine_snapshot){
        index, term, 1, {members.data, members.size}};
    err = one_step(one, event);
    hf_buf_fini(&members);
    return err;
}

static void a_snapshot_is_installed_before_anything_is_applied(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    assert_int_equal(receive_snapshot(&one, 20, 2), HF_OK);
    assert_true(one.update.changes & HF_ENGINE_INSTALL);
    assert_int_equal(one.update.commit, 0);
    assert_int_equal(one.engine.log.last, 20);
    assert_int_equal(receive_snapshot(&one, 21, 2), HF_EBUSY);
    assert_int_equal(take_snapshot(&one, 1), HF_ESTATE);
    /* The leader's heartbeat says that entry 20 is committed, but the snapshot
     * is not installed yet. */
    assert_int_equal(one_append(&one, 2, 2, 20, 2, 0, 20), HF_OK);
    assert_int_equal(one.update.commit, 0);
    one_persist(&one);
    assert_true(one.update.changes & HF_ENGINE_RESTORE);
    assert_int_equal(one.update.commit, 20);
    assert_int_equal(
        one_find(&one, HF_MESSAGE_APPEND_RESULT, 2)->append_result.last_index,
        20);
    assert_int_equal(one_append(&one, 2, 2, 20, 2, 2, 22), HF_OK);
    one_persist(&one);
    assert_int_equal(one.update.commit, 22);
    one_fini(&one);
}

static void a_snapshot_that_the_log_contains_is_not_installed(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    one_persist(&one);
    assert_int_equal(receive_snapshot(&one, 3, 2), HF_OK);
    assert_false(one.update.changes & HF_ENGINE_INSTALL);
    assert_int_equal(one.engine.log.last, 4);
    one_fini(&one);
}

/* ---- Transfers and lost leaders -----------------------------------------*/

static enum hf_err transfer_to(struct one *one, uint64_t peer)
{
    return one_step(one, (struct hf_engine_event){.kind = HF_ENGINE_TRANSFER,
                                                  .peer = peer});
}

static void leadership_is_transferred_to_a_complete_peer_only(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(transfer_to(&one, 2), HF_ESTATE);
    one_elect(&one);
    one_persist(&one);
    assert_int_equal(transfer_to(&one, 2), HF_EBUSY);
    assert_int_equal(transfer_to(&one, 1), HF_EINVAL);
    assert_int_equal(transfer_to(&one, 4), HF_EINVAL);
    acknowledge(&one, 2, 2);
    assert_int_equal(transfer_to(&one, 2), HF_OK);
    assert_non_null(one_find(&one, HF_MESSAGE_TIMEOUT_NOW, 2));
    assert_int_equal(submit(&one, 1, 1), HF_EBUSY);
    assert_int_equal(transfer_to(&one, 3), HF_EBUSY);
    one_fini(&one);
}

static void a_lost_leader_is_replaced_after_the_flush(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    assert_int_equal(
        one_step(&one, (struct hf_engine_event){.kind = HF_ENGINE_LEADER_LOST,
                                                .peer = 2}),
        HF_OK);
    assert_int_equal(one.update.role, HF_ENGINE_FOLLOWER);
    one_persist(&one);
    assert_int_equal(one.update.role, HF_ENGINE_CANDIDATE);
    assert_true(one_find(&one, HF_MESSAGE_VOTE, 3)->vote.disrupt);
    assert_int_equal(one.update.term, 3);
    one_fini(&one);
}

static void a_leader_that_is_heard_again_is_not_replaced(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 3, 1), HF_OK);
    assert_int_equal(
        one_step(&one, (struct hf_engine_event){.kind = HF_ENGINE_LEADER_LOST,
                                                .peer = 2}),
        HF_OK);
    assert_int_equal(one_append(&one, 2, 2, 4, 2, 0, 1), HF_OK);
    one_persist(&one);
    assert_int_equal(one.update.role, HF_ENGINE_FOLLOWER);
    one_fini(&one);
}

/* ---- Memory -------------------------------------------------------------*/

/* Let a leader append commands, follow another leader and install a snapshot. A
 * step that returned HF_ENOMEM has changed nothing, so it is repeated. Returns
 * false if the engine has failed. */
static bool run_life(struct one *one)
{
    struct hf_bytes command = {"abc", 3};
    struct hf_engine_event events[] = {
        {.kind = HF_ENGINE_SUBMIT, .submit = {&command, 1}},
        {.kind = HF_ENGINE_PERSISTED, .write = 3},
        {.kind = HF_ENGINE_SUBMIT, .submit = {&command, 1}},
    };

    for (size_t i = 0; i < HF_TEST_COUNT(events); i++) {
        enum hf_err err = one_step(one, events[i]);

        if (err == HF_ENOMEM)
            err = one_step(one, events[i]);
        if (err)
            return false;
    }
    for (unsigned i = 0; i < 2; i++) {
        enum hf_err err = one_append(one, 2, 3, 1, 1, 2, 1);

        if (err && err != HF_ENOMEM)
            return false;
    }
    for (unsigned i = 0; i < 2; i++) {
        enum hf_err err = receive_snapshot(one, 20, 3);

        assert_true(err == HF_OK || err == HF_ENOMEM || err == HF_EBUSY ||
                    err == HF_ESYSTEM);
        if (err == HF_ESYSTEM)
            return false;
    }
    one_persist(one);
    return one->engine.snapshot.index == 20;
}

static void each_failed_allocation_is_survived_or_stops_the_engine(void **state)
{
    bool failed = true;

    (void)state;
    for (unsigned long nth = 1; failed; nth++) {
        long blocks = hf_alloc_blocks();
        struct one one;
        bool completed;

        one_init(&one, 3);
        one_load_first(&one);
        one_start(&one);
        one_elect(&one);
        hf_alloc_fail(nth, 1);
        completed = run_life(&one);
        failed = hf_alloc_failed();
        assert_true(completed || one.engine.failed);
        assert_true(failed || completed);
        one_fini(&one);
        assert_int_equal(hf_alloc_blocks(), blocks);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(new_voter_waits_for_its_timeout),
        cmocka_unit_test(a_log_without_members_does_not_start),
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(a_log_that_contradicts_the_snapshot_is_dropped),
        cmocka_unit_test(a_log_that_contains_the_snapshot_is_kept),
        cmocka_unit_test(a_new_leader_appends_a_no_op),
        cmocka_unit_test(a_no_op_with_uncommitted_entries_is_appended_once),
        cmocka_unit_test(a_command_is_committed_by_a_majority),
        cmocka_unit_test(an_idle_follower_is_sent_the_commit_index),
        cmocka_unit_test(a_full_log_does_not_refuse_entries_of_the_leader),
        cmocka_unit_test(a_full_log_does_not_prevent_an_election),
        cmocka_unit_test(entries_of_earlier_terms_are_not_committed_alone),
        cmocka_unit_test(a_follower_refuses_commands),
        cmocka_unit_test(large_messages_are_split),
        cmocka_unit_test(a_silent_peer_gets_a_limited_number_of_bytes),
        cmocka_unit_test(a_full_log_refuses_commands),
        cmocka_unit_test(an_append_is_acknowledged_when_it_is_durable),
        cmocka_unit_test(entries_that_the_leader_lacks_are_not_committed),
        cmocka_unit_test(a_candidate_of_an_older_term_gets_no_vote),
        cmocka_unit_test(an_overlapping_append_adds_new_entries_only),
        cmocka_unit_test(the_flush_of_replaced_entries_is_not_acknowledged),
        cmocka_unit_test(a_vote_is_sent_after_it_is_durable),
        cmocka_unit_test(messages_of_strangers_are_ignored),
        cmocka_unit_test(entries_kept_before_a_snapshot_are_limited_in_bytes),
        cmocka_unit_test(a_follower_that_lost_a_snapshot_is_served_again),
        cmocka_unit_test(a_snapshot_is_taken_of_what_is_durable_and_committed),
        cmocka_unit_test(a_snapshot_is_installed_before_anything_is_applied),
        cmocka_unit_test(a_snapshot_that_the_log_contains_is_not_installed),
        cmocka_unit_test(leadership_is_transferred_to_a_complete_peer_only),
        cmocka_unit_test(a_lost_leader_is_replaced_after_the_flush),
        cmocka_unit_test(a_leader_that_is_heard_again_is_not_replaced),
        cmocka_unit_test(
            each_failed_allocation_is_survived_or_stops_the_engine),
    };

    return hf_test_main("engine", cases, HF_TEST_COUNT(cases), 0);
}
