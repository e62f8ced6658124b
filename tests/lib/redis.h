/* redis.h - a real redis-server of a test's own, on a port of its own.
 *
 * Environment:
 *   HF_TEST_REDIS=6.2   run that version, which scripts/deps fetches; without
 *                       it the case is skipped */
#ifndef HF_TESTS_LIB_REDIS_H
#define HF_TESTS_LIB_REDIS_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/folder.h"

#define HF_TEST_REDIS_OPTIONS 12

struct hf_test_redis {
    pid_t pid; /* 0: it does not run */
    int port;
    char folder[sizeof(HF_TEST_FOLDER)];
    char socket[sizeof(HF_TEST_FOLDER) + 16]; /* the same server */
    char options[HF_TEST_REDIS_OPTIONS][96];
};

/* Start one, and wait until it answers. `options` are words of its command
 * line, ended by NULL; NULL for none. It dies with this process. */
bool hf_test_redis_start(struct hf_test_redis *redis,
                         const char *const *options);

/* Stop it (SIGKILL: as a crash does) and remove what it has written. */
void hf_test_redis_stop(struct hf_test_redis *redis);

/* Only stop it; and start it again, over what it has written. The second
 * waits until it answers, unless `wait` is false. */
void hf_test_redis_kill(struct hf_test_redis *redis);
bool hf_test_redis_again(struct hf_test_redis *redis, bool wait);

/* Say a command to it, as printf() makes it, and return the reply as text:
 * what redis-cli would print, or "(error) ..."; "" for nothing. It is in
 * place until the next call. */
const char *hf_test_redis_say(struct hf_test_redis *redis, const char *format,
                              ...);

/* Whether it answers within a tenth of a second. */
bool hf_test_redis_is_awake(struct hf_test_redis *redis);

#endif
