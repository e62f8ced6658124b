#include "strategy/redis/reader.h"

#include "base/limits.h"

bool hf_redis_reader_count(struct hf_redis_reader *limited, size_t received)
{
    limited->unfinished += received;
    return limited->unfinished <= HF_REDIS_REPLY_MAX;
}

int hf_redis_reader_next(struct hf_redis_reader *limited, void **reply)
{
    int status = redisReaderGetReply(limited->reader, reply);

    if (status == REDIS_OK && *reply)
        limited->unfinished = 0;
    return status;
}

#ifdef HF_REDIS_MAXELEMENTS

void hf_redis_reader_init(struct hf_redis_reader *limited, redisReader *reader)
{
    limited->reader = reader;
    limited->unfinished = 0;
    reader->maxelements = HF_REDIS_ELEMENTS_MAX;
}

const char *hf_redis_reader_error(const struct hf_redis_reader *limited)
{
    return limited->reader->errstr;
}

#else

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

static void *create_array(const redisReadTask *task, element_count count)
{
    struct hf_redis_reader *limited = task->privdata;

    limited->refused = count > HF_REDIS_ELEMENTS_MAX;
    return limited->refused ? NULL
                            : limited->defaults->createArray(task, count);
}

void hf_redis_reader_init(struct hf_redis_reader *limited, redisReader *reader)
{
    limited->reader = reader;
    limited->unfinished = 0;
    limited->defaults = reader->fn;
    limited->functions = *reader->fn;
    limited->functions.createArray = create_array;
    limited->refused = false;
    reader->fn = &limited->functions;
    reader->privdata = limited;
}

/* hiredis reports an array that this reader refused as out of memory, so
 * replace that text. */
const char *hf_redis_reader_error(const struct hf_redis_reader *limited)
{
    return limited->refused ? "an array of its reply is too long"
                            : limited->reader->errstr;
}

#endif
