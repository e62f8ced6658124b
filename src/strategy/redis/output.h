/* output.h - the bytes that a connection has to write.
 *
 * Commands are appended to `bytes` during a turn and written together when it
 * ends. */
#ifndef HF_STRATEGY_REDIS_OUTPUT_H
#define HF_STRATEGY_REDIS_OUTPUT_H

#include <hiredis/hiredis.h>

#include "base/buf.h"

struct hf_redis_output {
    struct hf_buf bytes;
    size_t written; /* how many of `bytes` are written */
    bool blocked;   /* the last write left bytes unwritten */
};

void hf_redis_output_fini(struct hf_redis_output *output);

/* Write as much as the socket takes. With `tls`, hiredis encrypts the bytes,
 * and buffers those that the socket did not take. Returns false if the
 * connection is broken. Never raises SIGPIPE. */
bool hf_redis_output_write(struct hf_redis_output *output,
                           redisContext *context, bool tls);

/* Returns true if there is something left to write. */
bool hf_redis_output_is_pending(const struct hf_redis_output *output);

#endif
