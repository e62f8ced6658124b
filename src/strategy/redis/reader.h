/* reader.h - limits on the replies that hiredis parses.
 *
 * hiredis reserves the memory of an array when it reads the array's length,
 * before any element has arrived. Without a limit, a hostile server could make
 * a client reserve 16 GB with a reply of thirteen bytes. hiredis also keeps the
 * bytes of an unfinished reply, however many the server sends. */
#ifndef HF_STRATEGY_REDIS_READER_H
#define HF_STRATEGY_REDIS_READER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* hiredis keeps a pointer to this struct, so it must not move. */
struct hf_redis_reader {
    redisReader *reader;
    size_t unfinished; /* bytes received since the last complete reply */
#ifndef HF_REDIS_MAXELEMENTS
    redisReplyObjectFunctions functions; /* hiredis's, except createArray */
    const redisReplyObjectFunctions *defaults;
    bool refused; /* an array was too long */
#endif
};

/* Make a new `reader` refuse arrays of more than HF_REDIS_ELEMENTS_MAX
 * elements. hf_redis_reader_next() then fails on such an array. */
void hf_redis_reader_init(struct hf_redis_reader *limited, redisReader *reader);

/* Count bytes that hiredis has received. Returns false if the unfinished reply
 * is longer than HF_REDIS_REPLY_MAX. */
bool hf_redis_reader_count(struct hf_redis_reader *limited, size_t received);

/* Like redisReaderGetReply(). A complete reply resets the count of bytes. */
int hf_redis_reader_next(struct hf_redis_reader *limited, void **reply);

/* The reason why hf_redis_reader_next() failed; valid as long as the reader. */
const char *hf_redis_reader_error(const struct hf_redis_reader *limited);

#endif
