#include "args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "failure.h"
#include "flock.h"
#include "loop.h"
#include "number.h"
#include "text.h"
#include "torture.h"

#define TTL_MAX_MS (7u * 24 * 3600 * 1000)
#define WAIT_MAX_MS (HF_FOREVER - 1u)

static const struct {
    const char *name;
    char letter;
    const char *value; /* what `help` calls the option's value; NULL: a flag */
    const char *text;
} options[] = {
#define ROW(id, name, letter, value, text) {name, letter, value, text},
    ARGS_OPTIONS(ROW)
#undef ROW
};

static const struct {
    const char *name;
    enum hf_event_kind kind;
} kinds[] = {
#define ROW(name, text, bit) {text, HF_EVENT_##name},
    HF_EVENTS(ROW)
#undef ROW
};

void args_init(struct args *args)
{
    *args = (struct args){
        .ttl_ms = 10000,
        .wait_ms = HF_FOREVER,
        .wait_until = INT64_MAX,
        .busy_status = STATUS_BUSY,
        .kinds = HF_EVENT_ANY,
    };
}

/* ---- Values -------------------------------------------------------------*/

static int reject_value(const struct args *args, enum option option,
                        const char *value, const char *why)
{
    char *word = text_quote(value, strlen(value));
    int status =
        failure_usage(args, "--%s: %s %s", options[option].name, word, why);

    free(word);
    return status;
}

static int parse_number(const struct args *args, enum option option,
                        const char *value, uint64_t max, uint64_t *number)
{
    const char *why = number_parse(value, max, number);

    return why ? reject_value(args, option, value, why) : 0;
}

static int parse_duration(const struct args *args, enum option option,
                          const char *value, uint32_t max_ms, uint32_t *ms)
{
    uint64_t read;
    const char *why = number_parse_duration(value, max_ms, &read);

    if (why)
        return reject_value(args, option, value, why);
    *ms = (uint32_t)read;
    return 0;
}

/* Parse a number from 1 to `max`. */
static int parse_count(const struct args *args, enum option option,
                       const char *value, unsigned max, unsigned *count)
{
    uint64_t number;
    int status = parse_number(args, option, value, max, &number);

    if (!status && number == 0)
        status =
            reject_value(args, option, value, "is too small; the minimum is 1");
    if (!status)
        *count = (unsigned)number;
    return status;
}

/* Parse a duration of at least a millisecond. */
static int parse_span(const struct args *args, enum option option,
                      const char *value, uint32_t max_ms, uint32_t *ms)
{
    int status = parse_duration(args, option, value, max_ms, ms);

    if (!status && *ms == 0)
        status = reject_value(args, option, value,
                              "is too short; the minimum is 1ms");
    return status;
}

static int parse_kinds(struct args *args, const char *list)
{
    args->kinds = 0;
    for (const char *word = list;; word++) {
        size_t size = strcspn(word, ",");
        size_t i = 0;

        while (i < sizeof(kinds) / sizeof(kinds[0]) &&
               (strlen(kinds[i].name) != size ||
                strncmp(kinds[i].name, word, size) != 0))
            i++;
        if (i == sizeof(kinds) / sizeof(kinds[0]))
            return reject_value(args, OPTION_KINDS, list,
                                "contains an unknown kind of event");
        args->kinds |= (uint32_t)kinds[i].kind;
        word += size;
        if (*word == '\0')
            return 0;
    }
}

static int parse_mode(struct args *args, const char *value)
{
    args->mode = cluster_mode_of(value);
    return args->mode ? 0
                      : reject_value(args, OPTION_MODE, value,
                                     "is not a mode; expected raft or quorum");
}

/* Set an option that takes any text. */
static void set_text(struct args *args, enum option option, const char *value)
{
    if (option == OPTION_NOTE)
        args->note = value;
    if (option == OPTION_VALUE)
        args->value = value;
    if (option == OPTION_EXPECT)
        args->expect = value;
    if (option == OPTION_DIR)
        args->dir = value;
    if (option == OPTION_HISTORY)
        args->history = value;
}

/* Parse the value of an option of `cluster`, or of one that takes any text. */
static int parse_cluster_value(struct args *args, enum option option,
                               const char *value)
{
    switch (option) {
    case OPTION_MODE:
        return parse_mode(args, value);
    case OPTION_NODES:
        return parse_count(args, option, value, CLUSTER_NODES_MAX,
                           &args->nodes);
    case OPTION_LEASE_MAX:
        return parse_span(args, option, value, TTL_MAX_MS, &args->lease_max_ms);
    default:
        set_text(args, option, value);
        return 0;
    }
}

static int parse_value(struct args *args, enum option option, const char *value)
{
    uint64_t number;
    int status;

    switch (option) {
    case OPTION_URL:
        args->url = (char *)(uintptr_t)value;
        return 0;
    case OPTION_COMMAND:
        args->in_shell[2] = (char *)(uintptr_t)value;
        return 0;
    case OPTION_TTL:
        return parse_span(args, option, value, TTL_MAX_MS, &args->ttl_ms);
    case OPTION_WAIT:
        return parse_duration(args, option, value, WAIT_MAX_MS, &args->wait_ms);
    case OPTION_BUSY_STATUS:
        status = parse_number(args, option, value, 255, &number);
        if (!status)
            args->busy_status = (int)number;
        return status;
    case OPTION_TOKEN:
        return parse_number(args, option, value, UINT64_MAX, &args->token);
    case OPTION_FROM:
        return parse_number(args, option, value, UINT64_MAX, &args->from);
    case OPTION_COUNT:
        return parse_number(args, option, value, UINT64_MAX, &args->count);
    case OPTION_FOR:
        return parse_span(args, option, value, WAIT_MAX_MS, &args->for_ms);
    case OPTION_CLIENTS:
        return parse_count(args, option, value, TORTURE_CLIENTS_MAX,
                           &args->clients);
    case OPTION_KEY_COUNT:
        return parse_count(args, option, value, TORTURE_KEYS_MAX,
                           &args->key_count);
    case OPTION_SEED:
        return parse_number(args, option, value, UINT64_MAX, &args->seed);
    case OPTION_KINDS:
        return parse_kinds(args, value);
    default:
        return parse_cluster_value(args, option, value);
    }
}

static void set_flag(struct args *args, enum option option)
{
    args->json |= option == OPTION_JSON;
    args->verbose |= option == OPTION_VERBOSE;
    args->quiet |= option == OPTION_QUIET;
    args->close |= option == OPTION_CLOSE;
    args->hold |= option == OPTION_HOLD;
    args->held |= option == OPTION_HELD;
    args->now |= option == OPTION_NOW;
    args->keys |= option == OPTION_KEYS;
    args->kill |= option == OPTION_KILL;
}

/* ---- Options ------------------------------------------------------------*/

static bool takes_option(const struct args *args, unsigned option)
{
    uint64_t set = OPTIONS_COMMON | (args->verb ? args->verb->options : 0);

    return (set & (UINT64_C(1) << option)) != 0;
}

static int reject_option(const struct args *args, const char *dashes,
                         const char *name, size_t size)
{
    bool takes_locks = args->verb && (args->verb->options & OPTION(TTL)) &&
                       (args->verb->options & OPTION(WAIT));
    const char *hint = takes_locks ? flock_hint(name, size) : NULL;

    return failure_usage(args, "unknown option %s%.*s%s%s", dashes, (int)size,
                         name, hint ? ": " : "", hint ? hint : "");
}

/* Parse one "--name", "--name=value" or "--name value" at the start of `argv`.
 * Increment `*used` if the next word of `argv` is the option's value. */
static int parse_long_option(struct args *args, char **argv, int *used)
{
    const char *name = argv[0] + 2;
    size_t size = strcspn(name, "=");
    const char *value = name[size] ? name + size + 1 : NULL;
    unsigned option = 0;

    while (option < OPTION_COUNT_OF &&
           (!takes_option(args, option) ||
            strlen(options[option].name) != size ||
            strncmp(options[option].name, name, size) != 0))
        option++;
    if (option == OPTION_COUNT_OF)
        return reject_option(args, "--", name, size);
    args->given |= UINT64_C(1) << option;
    if (!options[option].value) {
        if (value)
            return failure_usage(args, "--%.*s takes no value", (int)size,
                                 name);
        set_flag(args, (enum option)option);
        return 0;
    }
    if (!value) {
        value = argv[1];
        ++*used;
    }
    if (!value)
        return failure_usage(args, "--%s requires a value: %s", name,
                             options[option].value);
    return parse_value(args, (enum option)option, value);
}

/* Parse a word of short options at the start of `argv`: "-nv", "-w5" or "-w 5".
 * Increment `*used` as parse_long_option() does. */
static int parse_short_options(struct args *args, char **argv, int *used)
{
    for (const char *letter = argv[0] + 1; *letter; letter++) {
        unsigned option = 0;
        const char *value;

        while (option < OPTION_COUNT_OF && (!takes_option(args, option) ||
                                            options[option].letter != *letter))
            option++;
        if (option == OPTION_COUNT_OF)
            return reject_option(args, "-", letter, 1);
        args->given |= UINT64_C(1) << option;
        if (!options[option].value) {
            set_flag(args, (enum option)option);
            continue;
        }
        value = letter[1] ? letter + 1 : argv[1];
        *used += letter[1] == '\0';
        if (!value)
            return failure_usage(args, "-%c requires a value: %s", *letter,
                                 options[option].value);
        return parse_value(args, (enum option)option, value);
    }
    return 0;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0';
}

static int parse_option(struct args *args, char **argv, int *next)
{
    char **at = argv + *next;

    ++*next;
    return at[0][1] == '-' ? parse_long_option(args, at, next)
                           : parse_short_options(args, at, next);
}

int args_parse_before_verb(struct args *args, char **argv, int *next)
{
    int status = 0;

    while (!status && argv[*next] && is_option(argv[*next]) &&
           strcmp(argv[*next], "--") != 0) {
        if (!strcmp(argv[*next], "--version"))
            return 0; /* choose_verb() treats --version as a verb */
        status = parse_option(args, argv, next);
    }
    return status;
}

/* ---- Words --------------------------------------------------------------*/

/* Set args->command. `rest` starts after KEY. If "--" preceded KEY, `rest`
 * starts with KEY, and another "--" may follow. */
static void set_command(struct args *args, char **rest)
{
    if (args->word_count == 0) {
        if (*rest)
            args->words[args->word_count++] = *rest++;
        if (*rest && !strcmp(*rest, "--"))
            rest++;
    }
    args->command = *rest ? rest : NULL;
}

static int parse_words(struct args *args, char **argv)
{
    bool command = args->verb->command;
    int next = 0, status;

    while (argv[next]) {
        char *word = argv[next];

        if (!strcmp(word, "--")) {
            next++;
            break;
        }
        if (is_option(word)) {
            status = parse_option(args, argv, &next);
            if (status)
                return status;
            continue;
        }
        if (command && args->word_count == 1)
            break;
        args->words[args->word_count++] = word;
        next++;
    }
    if (command) {
        set_command(args, argv + next);
        return 0;
    }
    for (; argv[next]; next++)
        args->words[args->word_count++] = argv[next];
    return 0;
}

/* Set args->command for -c, which runs its text with the user's shell, as
 * flock(1) does. */
static int set_shell_command(struct args *args)
{
    const char *shell = getenv("SHELL");

    if (!args->in_shell[2])
        return 0;
    if (args->command)
        return failure_usage(
            args, "-c and a command after KEY contradict each other");
    args->in_shell[0] =
        (char *)(uintptr_t)(shell && *shell ? shell : "/bin/sh");
    args->in_shell[1] = (char *)(uintptr_t) "-c";
    args->command = args->in_shell;
    return 0;
}

static int check_words(const struct args *args)
{
    const struct verb *verb = args->verb;

    if (args->given & OPTION(HELP))
        return 0;
    if ((args->given & OPTION(WAIT)) && (args->given & OPTION(NO_WAIT)))
        return failure_usage(args,
                             "--wait and --no-wait contradict each other");
    if (args->word_count < verb->words_min)
        return failure_usage(args, "missing argument: %s requires %s",
                             verb->name, verb->words);
    if (args->word_count > verb->words_max)
        return failure_usage(args, "too many arguments: %d given, %s takes %s",
                             args->word_count, verb->name,
                             verb->words[0] ? verb->words : "none");
    if (verb->command && !args->command)
        return failure_usage(
            args, "missing command: %s requires one after '--'", verb->name);
    return 0;
}

/* Returns true if --json is among the words before "--". Check this before
 * parsing, because --json decides how errors are reported, even an error in an
 * earlier option. */
static bool asks_for_json(char **argv)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++) {
        if (!strcmp(*argv, "--json"))
            return true;
    }
    return false;
}

int args_parse(struct args *args, char **argv)
{
    bool json = args->json;
    int status;

    args->json |= asks_for_json(argv);
    args->words = argv;
    status = parse_words(args, argv);
    if (!status)
        status = set_shell_command(args);
    if (!status)
        status = check_words(args);
    /* Set args->json again, because asks_for_json() may have found an argument
     * of the command that `run` executes. */
    args->json = json || (args->given & OPTION(JSON)) != 0;
    if (args->given & OPTION(NO_WAIT))
        args->wait_ms = 0;
    if (args->wait_ms != HF_FOREVER)
        args->wait_until = loop_now() + args->wait_ms;
    return status;
}

uint32_t args_wait_left(const struct args *args)
{
    int64_t left = args->wait_until - loop_now();

    if (args->wait_ms == HF_FOREVER)
        return HF_FOREVER;
    return left > 0 ? (uint32_t)left : 0;
}

struct hf_key args_key(const struct args *args)
{
    return hf_key_of(args->words[0]);
}

/* ---- Help ---------------------------------------------------------------*/

static const char *option_text(const struct verb *verb, unsigned option)
{
    if (option == OPTION_TTL && verb == &verb_torture)
        return "hold each lock for TIME without a renewal; 2s";
    if (option != OPTION_QUIET)
        return options[option].text;
    return verb == &verb_unlock ? "succeed if the lock has already ended"
                                : "do not report that the key is busy";
}

/* `cluster` refuses --url: the nodes that it starts make the URL. */
static bool shows_option(const struct verb *verb, unsigned option)
{
    if (option == OPTION_URL && verb == &verb_cluster)
        return false;
    return ((verb->options | OPTIONS_COMMON) & (UINT64_C(1) << option)) != 0;
}

void args_describe(const struct verb *verb)
{
    for (unsigned i = 0; i < OPTION_COUNT_OF; i++) {
        char name[40];
        char letter[] = "    ";

        if (!shows_option(verb, i))
            continue;
        if (options[i].letter)
            memcpy(letter, (char[]){'-', options[i].letter, ',', ' '}, 4);
        (void)snprintf(name, sizeof(name), "%s--%s%s%s", letter,
                       options[i].name, options[i].value ? " " : "",
                       options[i].value ? options[i].value : "");
        (void)printf("  %-30s %s\n", name, option_text(verb, i));
    }
}
