/* redis.h - starts a real redis-server for a test, on a free port.
 *
 * Environment:
 *   HF_TEST_REDIS=6.2   run that version, which scripts/deps fetches. The case
 *                       is skipped if it is not installed */
#ifndef HF_TESTS_LIB_REDIS_H
#define HF_TESTS_LIB_REDIS_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/folder.h"

#define HF_TEST_REDIS_OPTIONS 12

struct hf_test_redis {
    pid_t pid; /* 0 if the server is not running */
    int port;
    char folder[sizeof(HF_TEST_FOLDER)];
    char socket[sizeof(HF_TEST_FOLDER) +
                16]; /* Unix socket of the same server */
    char options[HF_TEST_REDIS_OPTIONS][96];
};

/* Start a server, and wait until it answers. `options` are arguments of its
 * command line, terminated by NULL; NULL for none. Returns false if the server
 * does not start. It dies with this process. */
bool hf_test_redis_start(struct hf_test_redis *redis,
                         const char *const *options);

/* Kill the server, like a crash, and remove its data. */
void hf_test_redis_stop(struct hf_test_redis *redis);

/* hf_test_redis_kill() kills the server and keeps its data.
 * hf_test_redis_restart() starts it again with that data, and waits until the
 * server answers unless `wait` is false. */
void hf_test_redis_kill(struct hf_test_redis *redis);
bool hf_test_redis_restart(struct hf_test_redis *redis, bool wait);

/* Send a command, formatted like redisCommand(). Returns the reply as text: the
 * elements of an array on a line each, "(nil)", "(error) ..." for an error, ""
 * for an empty reply, "(lost)" if there is no reply. The text is valid until
 * the next call. */
const char *hf_test_redis_command(struct hf_test_redis *redis,
                                  const char *format, ...);

/* Returns true if the server answers within a tenth of a second. */
bool hf_test_redis_is_awake(struct hf_test_redis *redis);

#endif
