#include "info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "json.h"
#include "text.h"

void info_json(const struct hf_info *info)
{
    struct json json;

    json_open(&json, stdout);
    json_bytes(&json, "key", info->key.data, info->key.size);
    json_bool(&json, "held", info->held);
    json_bool(&json, "forced", info->forced);
    json_integer(&json, "token", info->token);
    json_text(&json, "owner", info->owner ? info->owner : "");
    json_text(&json, "note", info->note ? info->note : "");
    json_number(&json, "held_ms", info->held_ms);
    json_number(&json, "left_ms", info->left_ms);
    json_number(&json, "waiters", info->waiters);
    json_bytes(&json, "value", info->value.data, info->value.size);
    json_integer(&json, "index", info->index);
    json_close(&json);
}

static void put_quoted(const char *name, const void *data, size_t size)
{
    char *word = text_quote(data, size);

    (void)printf("%-8s %s\n", name, word);
    free(word);
}

static void put_label(const char *name, const char *text)
{
    char *label = text_label(text ? text : "");

    if (*label)
        (void)printf("%-8s %s\n", name, label);
    free(label);
}

static void put_span(const char *name, uint64_t ms, const char *after)
{
    char span[TEXT_SPAN_SIZE];

    text_span(ms, span);
    (void)printf("%-8s %s%s\n", name, span, after);
}

/* Print the value as the last line. On a terminal the value is quoted, because
 * its bytes may contain control sequences; a pipe or a file gets the bytes
 * unchanged. */
static void put_value(const struct hf_info *info)
{
    if (isatty(STDOUT_FILENO)) {
        put_quoted("value", info->value.data, info->value.size);
        return;
    }
    (void)printf("%-8s ", "value");
    (void)fwrite(info->value.data, 1, info->value.size, stdout);
    (void)putchar('\n');
}

void info_text(const struct hf_info *info)
{
    put_quoted("key", info->key.data, info->key.size);
    (void)printf("%-8s %s\n", "state",
                 !info->held    ? "free"
                 : info->forced ? "held, but broken: its lease is not renewed"
                                : "held");
    if (!info->held)
        return;
    (void)printf("%-8s %llu\n", "token", (unsigned long long)info->token);
    put_label("owner", info->owner);
    put_label("note", info->note);
    put_span("since", info->held_ms, " ago");
    if (info->left_ms == HF_FOREVER)
        (void)printf("%-8s %s\n", "left", "no expiry");
    else
        put_span("left", info->left_ms, "");
    (void)printf("%-8s %u\n", "waiters", info->waiters);
    if (info->value.size > 0)
        put_value(info);
}

char *info_holder(const struct hf_info *info)
{
    bool noted = info->note && *info->note;
    char *key = text_quote(info->key.data, info->key.size);
    char *owner = text_label(info->owner ? info->owner : "");
    char *note = text_label(noted ? info->note : "");
    char span[TEXT_SPAN_SIZE];
    char *text;

    text_span(info->held_ms, span);
    if (!info->held) {
        if (asprintf(&text, "%s is free", key) < 0)
            failure_no_memory();
    } else if (asprintf(&text, "%s is held by %s for %s, token %llu%s%s%s", key,
                        *owner ? owner : "another", span,
                        (unsigned long long)info->token, noted ? " (" : "",
                        note, noted ? ")" : "") < 0) {
        failure_no_memory();
    }
    free(note);
    free(owner);
    free(key);
    return text;
}

int info_busy(const struct args *args, struct hf_client *client,
              struct hf_key key, enum hf_err err)
{
    struct hf_info info = {0};
    char *text;

    if (args->quiet)
        return args->busy_status;
    if (hf_read(client, key, HF_LINEARIZABLE, &info) || !info.held) {
        (void)failure_on_key(args, key, err, NULL);
    } else {
        text = info_holder(&info);
        (void)failure(args, err, "%s%s", text,
                      err == HF_ETIMEDOUT ? "; the wait timed out" : "");
        free(text);
    }
    hf_info_fini(&info);
    return args->busy_status;
}
