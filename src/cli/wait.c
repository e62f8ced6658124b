#include <stdio.h>
#include <stdlib.h>

#include "failure.h"
#include "info.h"
#include "json.h"
#include "store.h"
#include "text.h"

static const char *const freed_names[] = {
    [HF_FREED_ALREADY] = "free",    [HF_FREED_RELEASED] = "released",
    [HF_FREED_EXPIRED] = "expired", [HF_FREED_FORCED] = "forced",
    [HF_FREED_UNSEEN] = "unseen",
};

static int report_wait_failure(const struct args *args,
                               struct hf_client *client, enum hf_err err)
{
    struct hf_error error;

    if (err == HF_ETIMEDOUT && !args->held)
        return info_busy(args, client, args_key(args), err);
    hf_client_error(client, &error);
    (void)failure_on_key(args, args_key(args), err, &error);
    return err == HF_ETIMEDOUT ? args->busy_status : failure_status(err);
}

static int wait_held(const struct args *args, struct hf_client *client)
{
    struct hf_info info;
    enum hf_err err =
        hf_wait_held(client, args_key(args), args_wait_left(args), &info);

    if (err)
        return report_wait_failure(args, client, err);
    if (args->json) {
        info_json(&info);
    } else {
        char *text = info_holder(&info);

        (void)puts(text);
        free(text);
    }
    hf_info_fini(&info);
    return STATUS_OK;
}

static int wait_free(const struct args *args, struct hf_client *client)
{
    struct hf_key key = args_key(args);
    enum hf_freed freed;
    enum hf_err err = hf_wait_free(client, key, args_wait_left(args), &freed);

    if (err)
        return report_wait_failure(args, client, err);
    if (args->json) {
        struct json json;

        json_open(&json, stdout);
        json_bytes(&json, "key", key.data, key.size);
        json_bool(&json, "held", false);
        json_text(&json, "freed", freed_names[freed]);
        json_close(&json);
    } else {
        char *word = text_quote(key.data, key.size);

        (void)printf("%s %s\n", word, freed_names[freed]);
        free(word);
    }
    return STATUS_OK;
}

static int wait_main(struct args *args)
{
    struct hf_client *client;
    int status = store_open(args, NULL, &client);

    if (status)
        return status;
    status = args->held ? wait_held(args, client) : wait_free(args, client);
    store_close(client);
    return status;
}

const struct verb verb_wait = {
    .name = "wait",
    .words = "KEY",
    .summary = "wait until a key is free, or held",
    .text =
        "Waits until nobody holds KEY, without taking it, and prints how\n"
        "the lock ended:\n"
        "  free      nobody held it in the first place\n"
        "  released  the holder released it\n"
        "  expired   its lease ended\n"
        "  forced    an operator broke it\n"
        "  unseen    the key is free, but its release was not observed\n"
        "With --held, waits until somebody holds it, and prints the holder.\n"
        "The answer may be out of date when it is printed: to be sure of\n"
        "the key, lock it.\n",
    .examples = "  holdfast wait deploy && echo 'go on'\n"
                "  holdfast wait -w 30 deploy || echo 'still busy'\n"
                "  holdfast wait --held leader\n",
    .options = OPTION(WAIT) | OPTION(NO_WAIT) | OPTION(BUSY_STATUS) |
               OPTION(HELD) | OPTION(QUIET),
    .words_min = 1,
    .words_max = 1,
    .main = wait_main,
};
