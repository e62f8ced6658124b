#include "node/sessions.h"

#include <stdlib.h>

#include "node/state.h"

struct session {
    struct hf_map_link link;
    struct hf_heap_link detached; /* in sessions.detached, unless attached */
    uint64_t id;
    uint32_t origins; /* the nodes that have a client of it; bit i stands for
                         members[i]; 0: detached */
};

_Static_assert(HF_RAFT_VOTERS_MAX <= 32, "too many nodes for `origins`");

/* Returns the bit of the node `id`; 0 if it is not a member. */
static uint32_t bit_of(const struct hf_node *node, uint64_t id)
{
    for (size_t i = 0; i < node->opts.member_count; i++) {
        if (node->members[i].id == id)
            return UINT32_C(1) << i;
    }
    return 0;
}

void hf_sessions_init(struct hf_sessions *sessions)
{
    hf_map_init(&sessions->by_id);
}

static struct session *session_at(struct hf_map_link *link)
{
    return link ? HF_CONTAINER(link, struct session, link) : NULL;
}

static void forget_all(struct hf_sessions *sessions)
{
    struct hf_map_link *link = hf_map_next(&sessions->by_id, NULL);

    while (link) {
        struct session *session = session_at(link);

        link = hf_map_next(&sessions->by_id, link);
        free(session);
    }
    hf_map_fini(&sessions->by_id);
    hf_map_init(&sessions->by_id);
    hf_heap_fini(&sessions->detached);
}

void hf_sessions_fini(struct hf_sessions *sessions)
{
    forget_all(sessions);
    hf_map_fini(&sessions->by_id);
}

static struct session *find_watched_session(const struct hf_sessions *sessions,
                                            uint64_t id)
{
    struct hf_map_link *link =
        hf_map_find(&sessions->by_id, hf_map_hash_number(id));

    while (link && session_at(link)->id != id)
        link = hf_map_find_next(link);
    return session_at(link);
}

/* Let the session be closed HF_NODE_DETACHED_MS from now. Cannot fail:
 * add_session() has reserved the space in the heap. */
static void set_detached(struct hf_node *node, struct session *session)
{
    hf_heap_set(&node->sessions.detached, &session->detached,
                hf_time_add(node->now, HF_NODE_DETACHED_MS));
}

/* Returns NULL if memory is short, or if HF_NODE_SESSIONS_MAX is reached. Then
 * this leader does not close the session, but the next one will. */
static struct session *add_session(struct hf_node *node, uint64_t id)
{
    struct hf_sessions *sessions = &node->sessions;
    struct session *session = find_watched_session(sessions, id);

    if (session)
        return session;
    if (sessions->by_id.count >= HF_NODE_SESSIONS_MAX ||
        hf_heap_reserve(&sessions->detached, sessions->by_id.count + 1))
        return NULL;
    session = calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->id = id;
    hf_map_insert(&sessions->by_id, &session->link, hf_map_hash_number(id));
    set_detached(node, session);
    return session;
}

static void remove_session(struct hf_sessions *sessions,
                           struct session *session)
{
    hf_heap_drop(&sessions->detached, &session->detached);
    hf_map_remove(&sessions->by_id, &session->link);
    free(session);
}

void hf_sessions_reset(struct hf_node *node)
{
    const struct hf_table *table = &node->machine.store->table;
    struct hf_session *session = NULL;

    forget_all(&node->sessions);
    if (!hf_node_leads(node))
        return;
    while ((session = hf_table_next_session(table, session)))
        (void)add_session(node, session->id);
}

/* ---- Attaching ----------------------------------------------------------*/

/* A session is unknown if this leader has not applied its OPEN yet, or if it is
 * closed. Add it in both cases: hf_sessions_take_due() removes a closed session
 * when it is due. */
void hf_sessions_attach(struct hf_node *node, uint64_t origin, uint64_t id)
{
    struct session *session =
        hf_node_leads(node) ? add_session(node, id) : NULL;

    if (!session)
        return;
    session->origins |= bit_of(node, origin);
    hf_heap_drop(&node->sessions.detached, &session->detached);
}

/* A node that was cut off may still have an old connection of a client that is
 * at another node by now, so a session is detached when its client has left all
 * nodes. */
static void remove_origins(struct hf_node *node, struct session *session,
                           uint32_t origins)
{
    if (!(session->origins & origins))
        return;
    session->origins &= ~origins;
    if (session->origins == 0)
        set_detached(node, session);
}

void hf_sessions_detach(struct hf_node *node, uint64_t origin, uint64_t id)
{
    struct session *session = find_watched_session(&node->sessions, id);

    if (session)
        remove_origins(node, session, bit_of(node, origin));
}

void hf_sessions_drop_origin(struct hf_node *node, uint64_t origin)
{
    uint32_t origins = bit_of(node, origin);
    struct hf_map_link *link = NULL;

    while ((link = hf_map_next(&node->sessions.by_id, link)))
        remove_origins(node, session_at(link), origins);
}

uint32_t hf_sessions_origins(const struct hf_node *node, uint64_t id)
{
    const struct session *session = find_watched_session(&node->sessions, id);

    return session ? session->origins : 0;
}

/* ---- Commands -----------------------------------------------------------*/

void hf_sessions_applied(struct hf_node *node, const struct hf_command *command,
                         const struct hf_result *result)
{
    struct session *session;

    if (!hf_node_leads(node) || result->err)
        return;
    if (command->kind == HF_COMMAND_OPEN)
        (void)add_session(node, result->session);
    if (command->kind != HF_COMMAND_CLOSE)
        return;
    session = find_watched_session(&node->sessions, command->session);
    if (session)
        remove_session(&node->sessions, session);
}

static bool fill_close(struct hf_node *node, uint64_t id,
                       struct hf_command *close)
{
    const struct hf_session *session =
        hf_table_find_session(&node->machine.store->table, id);

    if (!session || session->ended)
        return false;
    *close = (struct hf_command){
        .kind = HF_COMMAND_CLOSE,
        .session = id,
        .sequence = session->highest,
    };
    return true;
}

bool hf_sessions_take_due(struct hf_node *node, struct hf_command *close)
{
    struct hf_heap *heap = &node->sessions.detached;

    while (hf_heap_top(heap) && hf_heap_top_key(heap) <= node->now) {
        struct session *session =
            HF_CONTAINER(hf_heap_top(heap), struct session, detached);

        if (fill_close(node, session->id, close)) {
            set_detached(node, session);
            return true;
        }
        remove_session(&node->sessions, session);
    }
    return false;
}

hf_time hf_sessions_deadline(const struct hf_node *node)
{
    return node->in_office ? hf_heap_top_key(&node->sessions.detached)
                           : HF_NEVER;
}
