/* stream.h - the change stream of a client, which a dedicated thread reads.
 *
 * The stream delivers every change, in the order of the cluster, across lost
 * connections and elections: the thread resumes at the current primary where it
 * stopped. If the server no longer has the next change, a change with `lost`
 * set marks the gap. Changes wait in a bounded queue until the client takes
 * them: while the queue is full, the thread stops reading, and the server keeps
 * the changes. */
#ifndef HF_STRATEGY_MONGO_STREAM_H
#define HF_STRATEGY_MONGO_STREAM_H

#include "strategy/mongo/change.h"
#include "strategy/mongo/op.h"

struct hf_mongo_stream;

/* Create a stream, without starting it. `on_changes` runs in the client's
 * context when there are changes to take. Returns NULL if out of memory. */
struct hf_mongo_stream *hf_mongo_stream_open(
    struct hf_mongo_workers *workers, const struct hf_mongo_identity *identity,
    void (*on_changes)(void *arg), void *arg);

/* Stop the thread, without waiting for it. `stream` may be NULL. */
void hf_mongo_stream_close(struct hf_mongo_stream *stream,
                           struct hf_host *host);

/* Deliver changes from `time` on: changes that name this client, or, with
 * `all`, every change. A later call without `all` does not undo a call with it
 * while the thread runs. Starts the thread unless it runs. Earlier changes may
 * be delivered again. Returns false if no thread could be started. */
bool hf_mongo_stream_request(struct hf_mongo_stream *stream, uint64_t time,
                             bool all);

/* Returns true if the stream is open: the server has answered and not failed
 * since. */
bool hf_mongo_stream_is_live(struct hf_mongo_stream *stream);

/* Let the thread end after a while, because no changes are needed until the
 * next hf_mongo_stream_request(). */
void hf_mongo_stream_release(struct hf_mongo_stream *stream);

/* Take the next change, which the caller frees with free(). Returns NULL if
 * there is none. */
struct hf_mongo_change *hf_mongo_stream_take(struct hf_mongo_stream *stream);

#endif
