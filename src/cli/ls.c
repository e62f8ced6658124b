#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "info.h"
#include "store.h"
#include "text.h"

#define COLUMNS 6 /* padded columns; the note follows as the last column */
#define WIDTH_MAX 48

struct row {
    char *cells[COLUMNS + 1];
};

struct table {
    const struct args *args;
    struct row *rows;
    size_t count, capacity;
};

static const char *const names[COLUMNS + 1] = {
    "KEY", "TOKEN", "HELD", "LEFT", "WAITERS", "OWNER", "NOTE",
};

static char *format_number(uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return text_copy(text);
}

static char *format_span(uint64_t ms)
{
    char text[TEXT_SPAN_SIZE];

    text_span(ms, text);
    for (char *blank = text; (blank = strchr(blank, ' '));)
        memmove(blank, blank + 1, strlen(blank));
    return text_copy(text);
}

/* The time until the lease expires. Mark a broken lock, because renewals no
 * longer extend its lease. */
static char *format_left(const struct hf_info *info)
{
    char *time = info->left_ms == HF_FOREVER ? text_copy("no-expiry")
                                             : format_span(info->left_ms);
    char *marked;

    if (!info->forced)
        return time;
    if (asprintf(&marked, "%s,broken", time) < 0)
        failure_no_memory();
    free(time);
    return marked;
}

static void add_row(struct table *table, const struct hf_info *info)
{
    struct row *row;

    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        struct row *rows = realloc(table->rows, capacity * sizeof(*rows));

        if (!rows)
            failure_no_memory();
        table->rows = rows;
        table->capacity = capacity;
    }
    row = &table->rows[table->count++];
    row->cells[0] = text_quote(info->key.data, info->key.size);
    row->cells[1] = format_number(info->token);
    row->cells[2] = format_span(info->held_ms);
    row->cells[3] = format_left(info);
    row->cells[4] = format_number(info->waiters);
    row->cells[5] = text_label(info->owner ? info->owner : "");
    row->cells[6] = text_label(info->note ? info->note : "");
}

static bool on_listed_lock(const struct hf_info *info, void *arg)
{
    struct table *table = arg;

    if (table->args->keys && !table->args->json) {
        char *word = text_quote(info->key.data, info->key.size);

        (void)puts(word);
        free(word);
    } else if (table->args->json) {
        info_json(info);
    } else {
        add_row(table, info);
    }
    return !ferror(stdout);
}

static void widen_columns(size_t widths[COLUMNS],
                          const char *const cells[COLUMNS])
{
    for (size_t i = 0; i < COLUMNS; i++) {
        size_t width = text_width(cells[i]);

        width = width < WIDTH_MAX ? width : WIDTH_MAX;
        if (width > widths[i])
            widths[i] = width;
    }
}

static void put_row(const char *const cells[COLUMNS + 1],
                    const size_t widths[COLUMNS])
{
    for (size_t i = 0; i < COLUMNS; i++) {
        size_t width = text_width(cells[i]);
        size_t pad = width < widths[i] ? widths[i] - width : 0;
        bool last = i == COLUMNS - 1 && cells[COLUMNS][0] == '\0';

        (void)printf("%s%*s", cells[i], last ? 0 : (int)pad + 2, "");
    }
    (void)printf("%s\n", cells[COLUMNS]);
}

static void print_table(const struct table *table)
{
    size_t widths[COLUMNS] = {0};

    if (table->count == 0)
        return;
    widen_columns(widths, names);
    for (size_t i = 0; i < table->count; i++)
        widen_columns(widths, (const char *const *)table->rows[i].cells);
    put_row(names, widths);
    for (size_t i = 0; i < table->count; i++)
        put_row((const char *const *)table->rows[i].cells, widths);
}

static void table_fini(struct table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        for (size_t j = 0; j < COLUMNS + 1; j++)
            free(table->rows[i].cells[j]);
    }
    free(table->rows);
}

static int ls_main(struct args *args)
{
    struct table table = {.args = args};
    struct hf_client *client;
    struct hf_error error;
    enum hf_err err;
    int status = store_open(args, NULL, &client);

    if (status)
        return status;
    err = hf_list(client, hf_key_of(args->word_count ? args->words[0] : ""),
                  on_listed_lock, &table);
    if (err) {
        hf_client_error(client, &error);
        status = failure(args, err, "%s",
                         error.code == err ? error.text : hf_err_text(err));
    } else {
        print_table(&table);
    }
    table_fini(&table);
    store_close(client);
    return status;
}

const struct verb verb_ls = {
    .name = "ls",
    .words = "[PREFIX]",
    .summary = "list the keys that are held",
    .text =
        "Lists the keys that are held and begin with PREFIX, in byte order:\n"
        "the key, the token, how long it has been held, the rest of its lease,\n"
        "the number of waiters, the owner and the note. ',broken' marks a\n"
        "lock that 'force' has broken. A key with bytes other than letters,\n"
        "digits and _-./:@%+,= is quoted as $'my\\x20key', which bash reads\n"
        "as the same bytes.\n",
    .examples = "  holdfast ls\n"
                "  holdfast ls --keys deploy/\n"
                "  holdfast ls --json | jq -r 'select(.waiters > 0) | .key'\n",
    .options = OPTION(KEYS),
    .words_min = 0,
    .words_max = 1,
    .main = ls_main,
};
