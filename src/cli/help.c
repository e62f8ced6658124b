#include <stdio.h>

#include "failure.h"
#include "json.h"

static void list_verbs(void)
{
    (void)puts("Usage: holdfast VERB [OPTION...] [ARGUMENT...]\n\n"
               "Named locks for scripts, programs and machines.\n");
    for (size_t i = 0; verbs[i]; i++)
        (void)printf("  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    (void)puts(
        "\n"
        "Times are 250ms, 15s, 2m, 1h or seconds such as 1.5. '--' ends "
        "the options.\n"
        "Without --url and HOLDFAST_URL, locks are shared by the processes "
        "of this user\non this machine.\n\n"
        "  holdfast run report -- ./report.sh     one at a time\n"
        "  holdfast ls                            list the held keys\n"
        "  holdfast help run                      details and examples");
}

void help_show_verb(const struct verb *verb)
{
    if (!verb) {
        list_verbs();
        return;
    }
    (void)printf("Usage: holdfast %s [OPTION...]%s%s\n\n%s\nOptions:\n",
                 verb->name, verb->words[0] ? " " : "", verb->words,
                 verb->text);
    args_describe(verb);
    (void)printf("\nExamples:\n%s", verb->examples);
}

static void print_verb_json(const struct verb *verb)
{
    struct json json;

    json_open(&json, stdout);
    json_text(&json, "verb", verb->name);
    json_text(&json, "words", verb->words);
    json_text(&json, "summary", verb->summary);
    json_text(&json, "text", verb->text);
    json_text(&json, "examples", verb->examples);
    json_close(&json);
}

static int help_main(struct args *args)
{
    const char *name = args->word_count ? args->words[0] : NULL;
    const struct verb *verb = name ? verb_find(name) : NULL;

    if (name && !verb)
        return failure_usage(args, "unknown verb '%s'", name);
    if (!args->json)
        help_show_verb(verb);
    for (size_t i = 0; args->json && verbs[i]; i++) {
        if (!verb || verb == verbs[i])
            print_verb_json(verbs[i]);
    }
    return STATUS_OK;
}

const struct verb verb_help = {
    .name = "help",
    .words = "[VERB]",
    .summary = "explain a verb, with examples",
    .text =
        "Explains VERB, as 'holdfast VERB --help' does, or lists all verbs.\n",
    .examples = "  holdfast help run\n",
    .words_min = 0,
    .words_max = 1,
    .main = help_main,
};
