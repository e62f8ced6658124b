/* stream.h - one change stream for a client, in a thread of its own.
 *
 * What changed is told in the order of the cluster, each change once, also
 * over lost connections and elections: the stream is resumed where it ended, at
 * the primary of the time.
 * Where the server has forgotten what came next, a mark says so. A client that
 * does not take what it is told is not run over: the server keeps the rest. */
#ifndef HF_STRATEGY_MONGO_STREAM_H
#define HF_STRATEGY_MONGO_STREAM_H

#include "strategy/mongo/change.h"
#include "strategy/mongo/command.h"

struct hf_mongo_stream;

/* `heard` runs in the client's context when there is something to take. NULL:
 * out of memory. */
struct hf_mongo_stream *hf_mongo_stream_open(struct hf_mongo_crew *crew,
                                             const struct hf_mongo_asker *asker,
                                             void (*heard)(void *arg),
                                             void *arg);
void hf_mongo_stream_close(struct hf_mongo_stream *stream,
                           struct hf_host *host);

/* Hear what happens from `time` on: grants of this client; with `all`,
 * everything, from now on. It starts with the first call. What it has told
 * already it may tell again. False: no thread could be started. */
bool hf_mongo_stream_want(struct hf_mongo_stream *stream, uint64_t time,
                          bool all);

/* Whether it follows what happens, and has not failed since. */
bool hf_mongo_stream_is_live(struct hf_mongo_stream *stream);

/* Nobody wants to hear anything until the next wish: it ends after a while. */
void hf_mongo_stream_rest(struct hf_mongo_stream *stream);

/* A change that was heard, which is the caller's to free(); or NULL. */
struct hf_mongo_change *hf_mongo_stream_take(struct hf_mongo_stream *stream);

#endif
