/* server_info.h - what a server's configuration promises, read by INFO and CONFIG
 * when a connection is made and now and then after it; and whether a lock may
 * be granted on that. */
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
    char eviction_policy
        [HF_REDIS_POLICY_SIZE]; /* the policy by which; "": it does not */
    char version[HF_REDIS_VERSION_SIZE];
    bool durable;      /* each write is on the disk before its reply */
    hf_time grace_end; /* where it is not: ?grace= has passed then */
};

/* Read INFO server: run id, version, and how long the server is up, as of
 * `now` or before. INFO memory: the eviction policy. The reply to CONFIG GET
 * *append*: the durability; a user that may not ask has none. The first
 * answers with a text if the server cannot be used, else with NULL. */
const char *hf_redis_server_info_read_server(
    struct hf_redis_server_info *server, const struct hf_redis_address *address,
    const char *info, hf_time now);
void hf_redis_server_info_read_memory(struct hf_redis_server_info *server,
                                      const char *info);
void hf_redis_server_info_read_config(struct hf_redis_server_info *server,
                                      const redisReply *reply);

/* Whether INFO has the line "name:wanted". */
bool hf_redis_server_info_has(const char *info, const char *name,
                              const char *wanted);

/* HF_EUNSUPPORTED, with a text, if the server may evict locks and the URL does
 * not accept that. */
enum hf_err hf_redis_server_info_check_eviction(
    const struct hf_redis_server_info *server,
    const struct hf_redis_address *address, struct hf_error *error);

/* HF_OK if a lease of `lease_ms` may be granted, or renewed, now.
 * HF_EUNSUPPORTED: the server evicts keys, or is not durable where the URL
 * requires that. HF_EUNAVAIL: the grace period is not over; grants only.
 * HF_EINVAL: the lease is longer than the grace period. */
enum hf_err hf_redis_server_info_check_grant(
    const struct hf_redis_server_info *server,
    const struct hf_redis_address *address, const struct hf_command *command,
    hf_time now, struct hf_error *error);

#endif
