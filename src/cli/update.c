#include "failure.h"
#include "json.h"
#include "store.h"

static int update_value(const struct args *args, struct hf_client *client,
                        struct hf_lock *lock)
{
    struct hf_bytes expected = hf_bytes_of(args->expect);
    struct hf_key key = args_key(args);
    enum hf_err err = hf_update(lock, args->expect ? &expected : NULL,
                                hf_bytes_of(args->words[3]));

    (void)client;
    if (err)
        return failure_on_lock(args, lock, err);
    if (args->json) {
        struct json json;

        json_open(&json, stdout);
        json_bytes(&json, "key", key.data, key.size);
        json_integer(&json, "token", hf_lock_token(lock));
        json_bool(&json, "updated", true);
        json_close(&json);
    }
    failure_trace(args, "updated");
    return STATUS_OK;
}

static int update_main(struct args *args)
{
    return store_with_lock(args, update_value);
}

const struct verb verb_update = {
    .name = "update",
    .words = "KEY NONCE TOKEN VALUE",
    .summary = "replace the value of a lock that 'lock' took",
    .text = "Replaces the value that is stored with the lock and that 'show'\n"
            "shows. With --expect, the value is replaced only if it is TEXT,\n"
            "else the status is 65. If the lock has ended, the status is 77.\n"
            "If NONCE is '-', it is read from HOLDFAST_NONCE.\n",
    .examples =
        "  holdfast update deploy - \"$token\" 'step 2 of 3'\n"
        "  holdfast update --expect blue deploy - \"$token\" green\n"
        "\n"
        "Under 'run', to show others the progress:\n"
        "  holdfast update \"$HOLDFAST_KEY\" - \"$HOLDFAST_TOKEN\" '80 %'\n",
    .options = OPTION(EXPECT),
    .words_min = 4,
    .words_max = 4,
    .main = update_main,
};
