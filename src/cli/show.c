#include "failure.h"
#include "info.h"
#include "store.h"

static int show_key(const struct args *args, struct hf_client *client)
{
    struct hf_info info;
    struct hf_error error;
    enum hf_err err = hf_read(client, args_key(args), HF_LINEARIZABLE, &info);

    if (err) {
        hf_client_error(client, &error);
        return failure_on_key(args, args_key(args), err, &error);
    }
    if (args->json)
        info_json(&info);
    else
        info_text(&info);
    hf_info_fini(&info);
    return STATUS_OK;
}

static int show_main(struct args *args)
{
    struct hf_client *client;
    int status = store_open(args, NULL, &client);

    if (status)
        return status;
    status = show_key(args, client);
    store_close(client);
    return status;
}

const struct verb verb_show = {
    .name = "show",
    .words = "KEY",
    .summary =
        "show the holder of a key, since when, and the number of waiters",
    .text =
        "Shows the state of one key. A key that nobody holds is shown as\n"
        "free, and the status is 0. The nonce of a holder is never shown.\n",
    .examples = "  holdfast show deploy\n"
                "\n"
                "In a script, with jq(1):\n"
                "  holdfast show --json deploy | jq -e .held && echo busy\n",
    .words_min = 1,
    .words_max = 1,
    .main = show_main,
};
