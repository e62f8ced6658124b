#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "failure.h"
#include "json.h"
#include "store.h"
#include "text.h"

struct watcher {
    const struct args *args;
    uint64_t seen;
    bool answered;
    enum hf_err err;
};

static void print_event_json(const struct hf_event *event)
{
    struct json json;

    json_open(&json, stdout);
    json_integer(&json, "index", event->index);
    json_text(&json, "event", hf_event_name(event->kind));
    json_bytes(&json, "key", event->key.data, event->key.size);
    json_integer(&json, "token", event->token);
    json_text(&json, "owner", event->owner ? event->owner : "");
    json_bool(&json, "freed", event->freed);
    json_close(&json);
}

static void print_event_text(const struct hf_event *event)
{
    char *key = text_quote(event->key.data, event->key.size);
    char *owner = text_label(event->owner ? event->owner : "");

    if (event->kind == HF_EVENT_DROPPED)
        (void)printf("%llu %s\n", (unsigned long long)event->index,
                     hf_event_name(event->kind));
    else
        (void)printf("%llu %-9s %s %llu %s\n", (unsigned long long)event->index,
                     hf_event_name(event->kind), key,
                     (unsigned long long)event->token, owner);
    free(owner);
    free(key);
}

static bool is_complete(const struct watcher *watcher)
{
    return (watcher->args->given & OPTION(COUNT)) &&
           watcher->seen >= watcher->args->count;
}

static void on_printed_event(const struct hf_event *event, void *arg)
{
    struct watcher *watcher = arg;

    if (is_complete(watcher))
        return;
    if (watcher->args->json)
        print_event_json(event);
    else
        print_event_text(event);
    (void)fflush(stdout); /* do not delay events if stdout is a pipe */
    watcher->seen++;
}

static void on_watch_done(enum hf_err err, void *arg)
{
    struct watcher *watcher = arg;

    watcher->answered = true;
    watcher->err = err;
}

static int watch_prefix(struct watcher *watcher, struct hf_client *client)
{
    const struct args *args = watcher->args;
    struct pollfd ready = {.fd = hf_fd(client), .events = POLLIN};
    struct hf_watch_opts opts;
    struct hf_watch *watched = NULL;
    struct hf_error error;
    enum hf_err err;

    hf_watch_opts_init(&opts);
    opts.from = args->from;
    opts.kinds = args->kinds;
    err = hf_watch_open_start(
        client, hf_key_of(args->word_count ? args->words[0] : ""), &opts,
        on_printed_event, watcher, &watched, on_watch_done, watcher, NULL);
    while (!err && !is_complete(watcher) && !ferror(stdout)) {
        (void)poll(&ready, 1, -1);
        (void)hf_process(client);
        err = watcher->answered ? watcher->err : HF_OK;
    }
    if (err) {
        hf_client_error(client, &error);
        return failure(args, err, "%s",
                       error.code == err ? error.text : hf_err_text(err));
    }
    hf_watch_close(watched);
    return STATUS_OK;
}

static int watch_main(struct args *args)
{
    struct watcher watcher = {.args = args};
    struct hf_client *client;
    int status = store_open(args, NULL, &client);

    if (status)
        return status;
    status = watch_prefix(&watcher, client);
    store_close(client);
    return status;
}

const struct verb verb_watch = {
    .name = "watch",
    .words = "[PREFIX]",
    .summary = "print the events of keys as they happen",
    .text =
        "Prints one line for each event on keys that begin with PREFIX,\n"
        "until it is interrupted: its index, its kind, the key, the token\n"
        "and the owner of the lock or of the waiter. The kinds are granted,\n"
        "renewed, updated, released, expired, forced, queued, withdrawn, and\n"
        "dropped, which reports that events were lost: use 'ls' then.\n",
    .examples = "  holdfast watch deploy/\n"
                "  holdfast watch --kinds granted,released,expired\n"
                "\n"
                "The next grant of any key, as JSON:\n"
                "  holdfast watch --json --kinds granted --count 1\n"
                "\n"
                "Continue after 'show --json' has printed the index 41:\n"
                "  holdfast watch --from 42\n",
    .options = OPTION(FROM) | OPTION(KINDS) | OPTION(COUNT),
    .words_min = 0,
    .words_max = 1,
    .main = watch_main,
};
