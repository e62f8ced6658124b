/* server_info.h - the configuration of a server, as INFO and CONFIG report it,
 * and whether the server may grant a lock. handshake.c requests the
 * configuration on each new connection, and again at a LOCK if it is older than
 * 5 s. */
#ifndef HF_STRATEGY_REDIS_SERVER_INFO_H
#define HF_STRATEGY_REDIS_SERVER_INFO_H

#include <hiredis/hiredis.h>

#include "base/error.h"
#include "base/time.h"
#include "core/command.h"
#include "strategy/redis/address.h"

#define HF_REDIS_RUN_ID_SIZE 40
#define HF_REDIS_POLICY_SIZE 32
#define HF_REDIS_VERSION_SIZE 32

struct hf_redis_server_info {
    char run_id[HF_REDIS_RUN_ID_SIZE + 1];
    char eviction_policy[HF_REDIS_POLICY_SIZE]; /* "": no eviction */
    char version[HF_REDIS_VERSION_SIZE];
    bool durable;      /* every write is on disk before its reply */
    hf_time grace_end; /* the server must not grant earlier, unless durable */
};

/* Read run id, version and uptime from INFO server, which was received at
 * `now`. Returns NULL, or an error text if the version is missing or too
 * old. */
const char *hf_redis_server_info_read_server(
    struct hf_redis_server_info *server, const struct hf_redis_address *address,
    const char *info, hf_time now);

/* Read the eviction policy from INFO memory. */
void hf_redis_server_info_read_memory(struct hf_redis_server_info *server,
                                      const char *info);

/* Read the durability from the reply to CONFIG GET *append*. A server whose
 * configuration the user may not read counts as not durable. */
void hf_redis_server_info_read_config(struct hf_redis_server_info *server,
                                      const redisReply *reply);

/* Returns true if INFO has the line "name:wanted". */
bool hf_redis_server_info_has(const char *info, const char *name,
                              const char *wanted);

/* HF_EUNSUPPORTED if the server may evict locks and the URL has no
 * ?unsafe=1. */
enum hf_err hf_redis_server_info_check_eviction(
    const struct hf_redis_server_info *server,
    const struct hf_redis_address *address, struct hf_error *error);

/* Returns HF_OK if the server may execute the command now: LOCK and RENEW are
 * checked, all others pass.
 *
 * HF_EUNSUPPORTED  LOCK: the server may evict locks, or is not durable although
 *                  the URL requires it
 * HF_EUNAVAIL      LOCK: the grace period is not over
 * HF_EINVAL        LOCK, RENEW: the lease is longer than the grace period of a
 *                  server that is not durable */
enum hf_err hf_redis_server_info_check_grant(
    const struct hf_redis_server_info *server,
    const struct hf_redis_address *address, const struct hf_command *command,
    hf_time now, struct hf_error *error);

#endif
