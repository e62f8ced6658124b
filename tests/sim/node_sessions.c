#include "sim/node_sessions.h"

#include <stdlib.h>

#include "lib/runner.h"
#include "node/state.h"

typedef unsigned long long ull;

void node_sessions_fini(struct node_sessions *sessions)
{
    free(sessions->list);
}

static struct node_session *session_at(struct node_sessions *sessions,
                                       uint64_t id)
{
    size_t capacity = sessions->capacity ? sessions->capacity : 64;

    while (capacity <= id)
        capacity *= 2;
    if (capacity > sessions->capacity) {
        sessions->list =
            realloc(sessions->list, capacity * sizeof(*sessions->list));
        assert_non_null(sessions->list);
        memset(sessions->list + sessions->capacity, 0,
               (capacity - sessions->capacity) * sizeof(*sessions->list));
        sessions->capacity = capacity;
    }
    return &sessions->list[id];
}

static void add_close(struct node_sessions *sessions, uint64_t index,
                      const struct hf_command *close)
{
    struct node_session *session = session_at(sessions, close->session);

    if (close->sequence > session->highest)
        fail_msg("entry %llu closes session %llu after command %llu, and the "
                 "last one was %llu",
                 (ull)index, (ull)close->session, (ull)close->sequence,
                 (ull)session->highest);
    if (close->sequence < session->highest) {
        sessions->saved++;
        return;
    }
    sessions->closed += !session->is_closed;
    session->is_closed = true;
}

void node_sessions_add(struct node_sessions *sessions, uint64_t index,
                       const struct hf_entry *entry)
{
    struct hf_command command;
    struct node_session *session;

    assert_int_equal(index, sessions->index + 1);
    sessions->index = index;
    if (entry->kind != HF_ENTRY_COMMAND)
        return;
    assert_int_equal(
        hf_command_decode(&command, entry->data.data, entry->data.size), HF_OK);
    if (command.session == 0)
        return;
    if (command.kind == HF_COMMAND_CLOSE) {
        add_close(sessions, index, &command);
        return;
    }
    session = session_at(sessions, command.session);
    if (command.sequence > session->highest)
        session->highest = command.sequence;
}

void node_sessions_check(struct node_sessions *sessions,
                         const struct sim_node *node)
{
    const struct hf_table *table = &node->node->machine.store->table;

    if (node->node->machine.applied != sessions->index)
        return;
    for (uint64_t id = 1; id <= table->last_session; id++) {
        const struct hf_session *found = hf_table_find_session(table, id);
        bool is_open = found && !found->ended;

        if (is_open == session_at(sessions, id)->is_closed)
            fail_msg("session %llu is %s at node %u, after entry %llu", (ull)id,
                     is_open ? "open" : "closed", node->number + 1,
                     (ull)sessions->index);
    }
}
