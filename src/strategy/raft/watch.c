/* watch.c - the watches of a client.
 *
 * Indexes of events are equal on all nodes, so a watch continues on the next
 * connection after the last event that it received. If the node does not keep
 * the next event any more, it sends DROPPED. */
#include "base/bytes.h"
#include "strategy/raft/raft.h"

struct hf_raft_watch {
    struct hf_watch_entry entry;
    uint64_t next;   /* index of the next event */
    uint64_t resume; /* id of an unanswered WATCH that resumes it; or 0 */
};

enum hf_err hf_raft_watch_add(struct hf_raft *raft,
                              const struct hf_request *request, uint64_t index)
{
    struct hf_raft_watch *watch =
        hf_watches_add(&raft->watches, request, sizeof(*watch));

    if (!watch) {
        hf_raft_watch_stop(raft, request->watch);
        return HF_ENOMEM;
    }
    watch->next = request->from > 0 ? request->from : index + 1;
    return HF_OK;
}

/* The reply to the UNWATCH is ignored, because nobody waits for it. */
void hf_raft_watch_stop(struct hf_raft *raft, uint64_t number)
{
    struct hf_watch_entry *entry = hf_watches_find(&raft->watches, number);
    struct hf_mux_request unwatch = {.verb = HF_VERB_UNWATCH, .watch = number};

    if (entry)
        hf_watches_remove(entry);
    hf_watches_sweep(&raft->watches, NULL, NULL);
    if (!hf_raft_connection_is_up(raft->current))
        return;
    unwatch.id = raft->net.next_id++;
    hf_raft_connection_send(raft->current, &unwatch);
}

void hf_raft_watches_resume(struct hf_raft *raft)
{
    struct hf_raft_watch *watch = NULL;

    while ((watch = hf_watches_next(&raft->watches, watch))) {
        struct hf_mux_request request = {
            .id = raft->net.next_id++,
            .verb = HF_VERB_WATCH,
            .exact = watch->entry.exact,
            .watch = watch->entry.number,
            .from = watch->next,
            .key = watch->entry.key,
        };

        watch->resume = request.id;
        hf_raft_connection_send(raft->current, &request);
    }
}

/* If the node refuses to resume a watch, lose the connection, because another
 * node may have room for the watch. */
void hf_raft_watches_on_reply(struct hf_raft_connection *connection,
                              uint64_t id,
                              const struct hf_resp_message *message)
{
    struct hf_raft *raft = connection->raft;
    struct hf_raft_watch *watch = NULL;
    struct hf_mux_reply reply;

    do
        watch = hf_watches_next(&raft->watches, watch);
    while (watch && watch->resume != id);
    if (!watch)
        return;
    watch->resume = 0;
    if (hf_mux_reply_decode(&reply, HF_VERB_WATCH, message) || reply.err)
        hf_raft_connection_lose(connection, HF_EUNAVAIL,
                                "the node does not continue a watch");
}

/* The index from which to resume the watch after this event. DROPPED replaces
 * the events before its index, so the event at that index is still to come. */
static uint64_t index_after(const struct hf_event *event)
{
    return event->kind == HF_EVENT_DROPPED ? event->index : event->index + 1;
}

void hf_raft_watches_on_event(struct hf_raft_connection *connection,
                              const struct hf_mux_push *push)
{
    struct hf_raft *raft = connection->raft;
    struct hf_raft_watch *watch = hf_watches_find(&raft->watches, push->watch);
    struct hf_push_event event = {.watch = push->watch};

    if (hf_protocol_decode_event(&event.event, push->event)) {
        hf_raft_connection_lose(connection, HF_EPROTO,
                                "the node sent a malformed event");
        return;
    }
    if (!watch || connection != raft->current ||
        event.event.index < watch->next)
        return;
    watch->next = index_after(&event.event);
    raft->net.host->ops->event(raft->net.host, &event);
}
