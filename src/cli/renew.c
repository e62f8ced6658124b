#include "failure.h"
#include "json.h"
#include "store.h"

/* How much of the ttl is left when `lease_ms` is left of the lease. The client
 * asks for a lease that is longer than the ttl by a sixteenth and 50 ms, so
 * that validity ends before the lease expires even if the clocks drift. */
static uint32_t ttl_left_ms(uint32_t lease_ms)
{
    return lease_ms > 50 ? (uint32_t)((uint64_t)(lease_ms - 50) * 16 / 17) : 0;
}

/* How long the lock stays held without another renewal. A renewal never
 * shortens a lease. The handle was adopted just now and does not know the
 * earlier lease, so the store may keep the lock longer than the handle
 * assumes. */
static uint32_t renewed_left_ms(struct hf_client *client,
                                const struct hf_lock *lock)
{
    uint32_t left = hf_lock_remaining_ms(lock);
    struct hf_info info = {0};

    if (!hf_read(client, hf_lock_key(lock), HF_LINEARIZABLE, &info) &&
        info.held && info.token == hf_lock_token(lock) &&
        ttl_left_ms(info.left_ms) > left)
        left = ttl_left_ms(info.left_ms);
    hf_info_fini(&info);
    return left;
}

static int renew_lock(const struct args *args, struct hf_client *client,
                      struct hf_lock *lock)
{
    struct hf_key key = args_key(args);
    enum hf_err err = hf_renew(lock, args->ttl_ms);

    uint32_t left;

    if (err)
        return failure_on_lock(args, lock, err);
    left = renewed_left_ms(client, lock);
    if (args->json) {
        struct json json;

        json_open(&json, stdout);
        json_bytes(&json, "key", key.data, key.size);
        json_integer(&json, "token", hf_lock_token(lock));
        json_bool(&json, "renewed", true);
        json_number(&json, "ttl_ms", args->ttl_ms);
        json_number(&json, "left_ms", left);
        json_close(&json);
    }
    failure_trace(args, "renewed for %u ms", left);
    return STATUS_OK;
}

static int renew_main(struct args *args)
{
    return store_with_lock(args, renew_lock);
}

const struct verb verb_renew = {
    .name = "renew",
    .words = "KEY NONCE TOKEN",
    .summary = "extend the lease of a lock that 'lock' took",
    .text =
        "Extends the lease to --ttl from now. Never shortens a lease. A lock\n"
        "that has ended is not taken again: the status is 77 then. If NONCE\n"
        "is '-', it is read from HOLDFAST_NONCE.\n",
    .examples =
        "  holdfast renew --ttl 5m deploy - \"$token\" || abort\n"
        "\n"
        "Under 'run', which sets these variables:\n"
        "  holdfast renew --ttl 1h \"$HOLDFAST_KEY\" - \"$HOLDFAST_TOKEN\"\n",
    .options = OPTION(TTL),
    .words_min = 3,
    .words_max = 3,
    .main = renew_main,
};
