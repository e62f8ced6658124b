/* stream.h - the change stream of a client, in a thread of its own.
 *
 * Changes are delivered in the order of the cluster and once each, even over lost
 * connections and elections: the stream is resumed where it ended, at the current
 * primary. If the server no longer has what came next, a change with `lost` set
 * marks the gap. The queue is bounded: while the client does not take changes,
 * the thread stops reading, and the server keeps the rest. */
#ifndef HF_STRATEGY_MONGO_STREAM_H
#define HF_STRATEGY_MONGO_STREAM_H

#include "strategy/mongo/change.h"
#include "strategy/mongo/op.h"

struct hf_mongo_stream;

/* `on_changes` is called in the client's context when there are changes to take. NULL:
 * out of memory. */
struct hf_mongo_stream *hf_mongo_stream_open(
    struct hf_mongo_workers *workers, const struct hf_mongo_identity *identity,
    void (*on_changes)(void *arg), void *arg);
void hf_mongo_stream_close(struct hf_mongo_stream *stream,
                           struct hf_host *host);

/* Deliver changes from `time` on: those that name this client, and with `all`
 * every change, also after later calls without `all`. The first call starts the
 * stream. Changes that were delivered before may be delivered again. False: no
 * thread could be started. */
bool hf_mongo_stream_request(struct hf_mongo_stream *stream, uint64_t time,
                             bool all);

/* Whether the server has answered and the stream has not failed since. */
bool hf_mongo_stream_is_live(struct hf_mongo_stream *stream);

/* No changes are needed until the next hf_mongo_stream_request(): the stream ends
 * after a while. */
void hf_mongo_stream_release(struct hf_mongo_stream *stream);

/* The next change, which the caller frees with free(); NULL if there is none. */
struct hf_mongo_change *hf_mongo_stream_take(struct hf_mongo_stream *stream);

#endif
