/* events.c - the changes of a master as events.
 *
 * An event is what this one master has seen: `granted` is also a vote that does
 * not become a grant, because the claim has too few of them. The index counts
 * the events of this node. It begins at the mark, which rises with each start,
 * so a watch that continues after a restart receives DROPPED. */
#include "quorum/state.h"

static void copy_owner(struct hf_quorum_view *view,
                       const struct hf_claim_copy *copy)
{
    hf_quorum_read_text(view->owner, sizeof(view->owner),
                        hf_claim_copy_data(copy).owner);
}

static void take_view(const struct hf_record *record,
                      struct hf_quorum_view *view)
{
    view->is_held = !hf_record_is_free(record);
    view->is_vote = view->is_held && record->state != HF_REPORT_HELD;
    if (!view->is_held)
        return;
    view->token = view->is_vote ? record->vote->number : record->token;
    view->id = view->is_vote ? record->vote->id : record->holder;
    view->forced = view->is_vote ? record->vote->forced : record->forced;
    copy_owner(view, view->is_vote ? &record->vote->data : &record->data);
}

static void add_event(struct hf_quorum_node *node,
                      const struct hf_record *record, enum hf_event_kind kind,
                      const struct hf_quorum_view *view, bool freed)
{
    const struct hf_event event = {
        .kind = kind,
        .index = ++node->index,
        .key = hf_record_key(record),
        .token = kind == HF_EVENT_WITHDRAWN ? 0 : view->token,
        .owner = view->owner,
        .freed = freed,
    };

    hf_history_add(&node->history, &event);
    hf_serve_watch_notify(&node->server);
}

/* How the lease or the vote of `before` has ended. */
static enum hf_event_kind end_kind(const struct hf_quorum_node *node,
                                   const struct hf_record *record)
{
    if (!node->request)
        return HF_EVENT_EXPIRED;
    if (node->request->kind == HF_QUORUM_FORCE)
        return HF_EVENT_FORCED;
    if (record->state == HF_REPORT_RELEASED &&
        hf_claim_id_equal(&record->holder, &node->before.id))
        return HF_EVENT_RELEASED;
    return HF_EVENT_WITHDRAWN; /* a vote, which was not part of a grant */
}

static bool is_same_grant(const struct hf_quorum_view *a,
                          const struct hf_quorum_view *b)
{
    return a->is_held && b->is_held && a->token == b->token &&
           hf_claim_id_equal(&a->id, &b->id);
}

/* A COMMIT of a claim that had the vote confirms a grant, and a repeated one
 * under a new number repairs a lease, like RENEW. */
static void report_kept(struct hf_quorum_node *node,
                        const struct hf_record *record,
                        const struct hf_quorum_view *after)
{
    const struct hf_quorum_request *request = node->request;

    if (after->forced && !node->before.forced)
        add_event(node, record, HF_EVENT_FORCED, after, false);
    else if (request && request->kind == HF_QUORUM_COMMIT &&
             request->keeps_deadline)
        add_event(node, record, HF_EVENT_UPDATED, after, false);
    else if (request &&
             (request->kind == HF_QUORUM_RENEW ||
              (request->kind == HF_QUORUM_COMMIT && !node->before.is_vote)))
        add_event(node, record, HF_EVENT_RENEWED, after, false);
}

void hf_quorum_events_changing(void *arg, const struct hf_record *record)
{
    struct hf_quorum_node *node = arg;

    take_view(record, &node->before);
}

void hf_quorum_events_changed(void *arg, const struct hf_record *record)
{
    struct hf_quorum_node *node = arg;
    struct hf_quorum_view after;

    take_view(record, &after);
    if (is_same_grant(&node->before, &after)) {
        report_kept(node, record, &after);
        return;
    }
    if (node->before.is_held)
        add_event(node, record, end_kind(node, record), &node->before,
                  !after.is_held);
    if (after.is_held)
        add_event(node, record, HF_EVENT_GRANTED, &after, false);
}
