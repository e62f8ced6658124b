#include <stdio.h>
#include <stdlib.h>

#include "failure.h"
#include "json.h"
#include "store.h"
#include "text.h"

static const char only_the_fence[] =
    "the old holder may not have noticed yet: until it has, only a resource "
    "that checks tokens is protected";

/* The time until the lease of the broken lock expires; 0 if it has expired or
 * cannot be read. */
static uint32_t read_left_ms(const struct args *args, struct hf_client *client)
{
    struct hf_info info = {0};
    uint32_t left = 0;

    if (!hf_read(client, args_key(args), HF_LINEARIZABLE, &info) && info.held &&
        info.token == args->token)
        left = info.left_ms;
    hf_info_fini(&info);
    return left;
}

static void print_forced_json(const struct args *args, uint32_t left)
{
    struct hf_key key = args_key(args);
    struct json json;

    json_open(&json, stdout);
    json_bytes(&json, "key", key.data, key.size);
    json_integer(&json, "token", args->token);
    json_bool(&json, "forced", true);
    json_bool(&json, "now", args->now);
    json_number(&json, "left_ms", left);
    if (args->now)
        json_text(&json, "warning", only_the_fence);
    json_close(&json);
}

static void print_forced_text(const struct args *args, uint32_t left)
{
    struct hf_key key = args_key(args);
    char *word = text_quote(key.data, key.size);
    char span[TEXT_SPAN_SIZE];

    text_span(left, span);
    if (args->now) {
        (void)printf(
            "%s: the lock with token %llu is broken; the key is granted to "
            "the next waiter\n",
            word, (unsigned long long)args->token);
        failure_warn(args, HF_EFORCED, "%s", only_the_fence);
    } else {
        (void)printf(
            "%s: the lock with token %llu is broken; its lease ends in %s\n",
            word, (unsigned long long)args->token, span);
    }
    free(word);
}

static int force_lock(const struct args *args, struct hf_client *client)
{
    struct hf_error error;
    enum hf_err err = hf_force(client, args_key(args), args->token, args->now);
    uint32_t left;

    if (err) {
        hf_client_error(client, &error);
        return failure_on_key(args, args_key(args), err, &error);
    }
    left = read_left_ms(args, client);
    if (args->json)
        print_forced_json(args, left);
    else
        print_forced_text(args, left);
    return STATUS_OK;
}

static int force_main(struct args *args)
{
    struct hf_client *client;
    int status;

    if (!(args->given & OPTION(TOKEN)))
        return failure_usage(args, "force requires --token N, the token of the "
                                   "lock to break: see 'holdfast show'");
    status = store_open(args, NULL, &client);
    if (status)
        return status;
    status = force_lock(args, client);
    store_close(client);
    return status;
}

const struct verb verb_force = {
    .name = "force",
    .words = "KEY",
    .summary = "break a lock",
    .text =
        "Breaks the lock on KEY that was granted with --token. If the key has\n"
        "been granted again since, nothing is changed and the status is 77.\n"
        "Renewals of the broken lock are refused, so its holder stops in\n"
        "time, its lease ends, and the key never has two holders.\n"
        "\n"
        "With --now the key is granted to the next waiter at once, and for\n"
        "a moment two programs may act as its holder. Only a resource that\n"
        "refuses tokens smaller than the largest it has seen is safe then.\n",
    .examples = "  holdfast show deploy\n"
                "  holdfast force --token 17 deploy\n"
                "  holdfast force --token 17 --now deploy\n",
    .options = OPTION(TOKEN) | OPTION(NOW),
    .words_min = 1,
    .words_max = 1,
    .main = force_main,
};
