#include "failure.h"
#include "json.h"
#include "store.h"

static int renew(const struct args *args, struct hf_lock *lock)
{
    struct hf_key key = args_key(args);
    enum hf_err err = hf_renew(lock, args->ttl_ms);

    if (err)
        return failure_of(args, lock, err);
    if (args->json) {
        struct json json;

        json_open(&json, stdout);
        json_bytes(&json, "key", key.data, key.size);
        json_integer(&json, "token", hf_token(lock));
        json_bool(&json, "renewed", true);
        json_number(&json, "ttl_ms", args->ttl_ms);
        json_number(&json, "left_ms", hf_remaining_ms(lock));
        json_close(&json);
    }
    failure_say(args, "renewed for %u ms", hf_remaining_ms(lock));
    return STATUS_OK;
}

static int renew_main(struct args *args)
{
    return store_act(args, renew);
}

const struct verb verb_renew = {
    .name = "renew",
    .words = "KEY NONCE TOKEN",
    .summary = "extend the lease of what 'lock' took",
    .text =
        "Extends the lease to --ttl from now. It never makes a lease\n"
        "shorter, and never takes a lock that has ended: then the status is\n"
        "77. '-' for NONCE takes it from HOLDFAST_NONCE.\n",
    .examples =
        "  holdfast renew --ttl 5m deploy - \"$token\" || abort\n"
        "\n"
        "Under 'run', where the environment has it all:\n"
        "  holdfast renew --ttl 1h \"$HOLDFAST_KEY\" - \"$HOLDFAST_TOKEN\"\n",
    .options = OPTION(TTL),
    .words_min = 3,
    .words_max = 3,
    .main = renew_main,
};
