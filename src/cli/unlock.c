#include "failure.h"
#include "json.h"
#include "store.h"

/* Returns true if `err` means that the lock had already ended. */
static bool had_ended(enum hf_err err)
{
    return err == HF_ENOTOWNER || err == HF_ENOTHELD || err == HF_EEXPIRED;
}

static int unlock_adopted(const struct args *args, struct hf_client *client,
                          struct hf_lock *lock)
{
    struct hf_key key = args_key(args);
    enum hf_err err = hf_release(lock);

    (void)client;
    if (err && !(args->quiet && had_ended(err)))
        return failure_on_lock(args, lock, err);
    if (args->json) {
        struct json json;

        json_open(&json, stdout);
        json_bytes(&json, "key", key.data, key.size);
        json_integer(&json, "token", hf_lock_token(lock));
        json_bool(&json, "unlocked", err == HF_OK);
        json_close(&json);
    }
    failure_trace(args, err ? "the lock had already ended" : "unlocked");
    return STATUS_OK;
}

static int unlock_main(struct args *args)
{
    return store_with_lock(args, unlock_adopted);
}

const struct verb verb_unlock = {
    .name = "unlock",
    .words = "KEY NONCE TOKEN",
    .summary = "release a lock that 'lock' took",
    .text =
        "Releases the lock that 'lock' printed as KEY NONCE TOKEN. If NONCE\n"
        "is '-', it is read from HOLDFAST_NONCE, so that it does not show up\n"
        "in ps(1). If the lock has ended or the key has another holder by\n"
        "now, nothing is changed and the status is 77, or 0 with --quiet.\n",
    .examples = "  holdfast unlock deploy 0f5c...e1 17\n"
                "  HOLDFAST_NONCE=$nonce holdfast unlock deploy - \"$token\"\n"
                "\n"
                "Clean up at the end of a script:\n"
                "  trap 'holdfast unlock -q deploy - \"$token\"' EXIT\n",
    .options = OPTION(QUIET),
    .words_min = 3,
    .words_max = 3,
    .main = unlock_main,
};
