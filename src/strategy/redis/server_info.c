#include "strategy/redis/server_info.h"

#include <stdlib.h>
#include <string.h>

#define VERSION_MIN 6 /* Redis 6: the scripts need KEEPTTL */

/* ---- INFO ---------------------------------------------------------------*/

/* Copy the value of the line "name:value" to `value`. Returns false if there is
 * no such line. */
static bool find_info_line(const char *info, const char *name, char *value,
                           size_t size)
{
    size_t name_size = strlen(name);

    for (const char *line = info; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (!strncmp(line, name, name_size) && line[name_size] == ':') {
            size_t length = strcspn(line + name_size + 1, "\r\n");

            if (length >= size)
                length = size - 1;
            memcpy(value, line + name_size + 1, length);
            value[length] = '\0';
            return true;
        }
    }
    return false;
}

bool hf_redis_server_info_has(const char *info, const char *name,
                              const char *wanted)
{
    char value[64];

    return find_info_line(info, name, value, sizeof(value)) &&
           !strcmp(value, wanted);
}

/* The instant at which `grace_ms` have passed since the server started. The
 * reported uptime is a difference of two times in whole seconds, and may be up
 * to a second too long, so a second is subtracted from it. */
static hf_time compute_grace_end(const char *info, uint32_t grace_ms,
                                 hf_time now)
{
    char text[24] = "0";
    uint64_t uptime_ms, left_ms = grace_ms;

    (void)find_info_line(info, "uptime_in_seconds", text, sizeof(text));
    uptime_ms = strtoull(text, NULL, 10) * 1000;
    if (uptime_ms >= 1000 + left_ms)
        return now;
    if (uptime_ms > 1000)
        left_ms -= uptime_ms - 1000;
    /* Wait one percent longer, because the clocks of two machines may drift
     * apart by that much. */
    return hf_time_add(now, (uint32_t)(left_ms + left_ms / 100 + 1));
}

const char *hf_redis_server_info_read_server(
    struct hf_redis_server_info *server, const struct hf_redis_address *address,
    const char *info, hf_time now)
{
    if (!find_info_line(info, "redis_version", server->version,
                        sizeof(server->version)) ||
        strtol(server->version, NULL, 10) < VERSION_MIN)
        return "the server is older than Redis 6, which the scripts need";
    server->run_id[0] = '\0';
    (void)find_info_line(info, "run_id", server->run_id,
                         sizeof(server->run_id));
    server->grace_end = compute_grace_end(info, address->grace_ms, now);
    return NULL;
}

/* Leave the policy empty if Redis evicts nothing: it has no memory limit, or
 * the policy is noeviction. All other policies evict locks, even volatile-*,
 * because locks are keys with an expiry. */
void hf_redis_server_info_read_memory(struct hf_redis_server_info *server,
                                      const char *info)
{
    char *policy = server->eviction_policy;

    if (hf_redis_server_info_has(info, "maxmemory", "0") ||
        !find_info_line(info, "maxmemory_policy", policy,
                        sizeof(server->eviction_policy)) ||
        !strcmp(policy, "noeviction"))
        policy[0] = '\0';
}

static bool config_has(const redisReply *reply, const char *name,
                       const char *wanted)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const char *found = reply->element[i]->str;
        const char *value = reply->element[i + 1]->str;

        if (found && value && !strcmp(found, name))
            return !strcmp(value, wanted);
    }
    return false;
}

/* With no-appendfsync-on-rewrite set, Redis does not fsync while it rewrites
 * the append-only file, so the server counts as not durable. */
void hf_redis_server_info_read_config(struct hf_redis_server_info *server,
                                      const redisReply *reply)
{
    server->durable = config_has(reply, "appendonly", "yes") &&
                      config_has(reply, "appendfsync", "always") &&
                      config_has(reply, "no-appendfsync-on-rewrite", "no");
}

/* ---- Granting -----------------------------------------------------------*/

/* A server that is not durable may forget locks when it restarts. So it must
 * not grant anything until all leases from before its last start have
 * expired. */
static enum hf_err check_grace(const struct hf_redis_server_info *server,
                               const struct hf_redis_address *address,
                               const struct hf_command *command, hf_time now,
                               struct hf_error *error)
{
    if (address->grace_ms == 0 || server->durable)
        return HF_OK;
    if (command->lease_ms > address->grace_ms)
        return hf_error_set(error, HF_EINVAL,
                            "%s: a lease of %u ms is longer than ?grace=%ums: "
                            "choose a shorter ttl or a longer grace",
                            address->name, command->lease_ms,
                            address->grace_ms);
    if (command->kind == HF_COMMAND_LOCK && now < server->grace_end)
        return hf_error_set(error, HF_EUNAVAIL,
                            "%s: the server has restarted and may have "
                            "forgotten locks; it grants again in %u ms "
                            "(?grace=%ums)",
                            address->name, hf_time_left(server->grace_end, now),
                            address->grace_ms);
    return HF_OK;
}

enum hf_err hf_redis_server_info_check_eviction(
    const struct hf_redis_server_info *server,
    const struct hf_redis_address *address, struct hf_error *error)
{
    if (*server->eviction_policy == '\0' || address->unsafe)
        return HF_OK;
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "%s: maxmemory-policy is %s; locks could be evicted. "
                        "Set it to noeviction, or add ?unsafe=1",
                        address->name, server->eviction_policy);
}

static enum hf_err check_durable(const struct hf_redis_server_info *server,
                                 const struct hf_redis_address *address,
                                 struct hf_error *error)
{
    if (!address->requires_durable || server->durable)
        return HF_OK;
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "%s: the server is no longer durable, as the URL "
                        "requires. Set appendonly yes, appendfsync always and "
                        "no-appendfsync-on-rewrite no",
                        address->name);
}

enum hf_err hf_redis_server_info_check_grant(
    const struct hf_redis_server_info *server,
    const struct hf_redis_address *address, const struct hf_command *command,
    hf_time now, struct hf_error *error)
{
    enum hf_err err = HF_OK;

    if (command->kind != HF_COMMAND_LOCK && command->kind != HF_COMMAND_RENEW)
        return HF_OK;
    if (command->kind == HF_COMMAND_LOCK)
        err = hf_redis_server_info_check_eviction(server, address, error);
    if (!err && command->kind == HF_COMMAND_LOCK)
        err = check_durable(server, address, error);
    if (err)
        return err;
    return check_grace(server, address, command, now, error);
}
