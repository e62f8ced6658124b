/* The command: explore the model of the quorum protocol within bounds. */
#include "bounds.h"
#include "explore.h"
#include "mutants.h"
#include "walk.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum status {
    STATUS_NOTHING_VIOLATED = 0,
    STATUS_VIOLATED = 1,
    STATUS_NO_RESULT = 2,
};

static const char help[] =
    "usage: quorum-model-N [OPTION...]     N masters: 3 or 5\n"
    "\n"
    "Visits every state of the quorum protocol for one key, within bounds,\n"
    "and checks the invariants in each. Prints the steps to the first\n"
    "violation.\n"
    "\n"
    "Bounds; a LIST has a number for each client, the last one for the rest:\n"
    "  --claims N         claims that compete for the key, 1 to 3 (2)\n"
    "  --ballots LIST     ballots that each may use to get the key (1)\n"
    "  --renewals LIST    renewals and repairs of each (0)\n"
    "  --ends LIST        0: it never unlocks and never gives up (1)\n"
    "  --first-numbers LIST  the first ballot of each has a number from 1 to\n"
    "                     this (1); of an updater, above the token\n"
    "  --slow             a claim may ask for slow votes\n"
    "  --no-fast          no claim is held by votes alone\n"
    "  --restarts N       masters restart empty, N times in all (0)\n"
    "  --drops N          masters drop a free record, N times in all (0)\n"
    "  --updaters N       processes that update the value of claim A (0);\n"
    "                     in a LIST they follow the claims\n"
    "  --reads N          linearizable reads, one after another (0)\n"
    "  --no-time          time does not pass: no validity ends\n"
    "  --outcome          check only what clients see: one valid holder,\n"
    "                     rising tokens, reads, values\n"
    "\n"
    "Mistakes:\n"
    "  --mutant K         make mistake K, within the bounds that show it\n"
    "  --mutants          list the mistakes: number, masters, bounds, text\n"
    "\n"
    "Exploration:\n"
    "  --states-max N     give up after N states (100000000)\n"
    "  --walks N          take N random walks instead\n"
    "  --seed N           of the walks (1)\n"
    "  --quiet            do not print the steps to a violation\n"
    "  --help             print this\n"
    "\n"
    "Exit status: 0 nothing is violated, 1 an invariant is violated, 2 no\n"
    "result (usage, memory, --states-max).\n";

struct options {
    uint64_t mutant;
    uint64_t states_max;
    uint64_t walks;
    uint64_t seed;
    bool quiet;
};

enum {
    OPTION_BOUND, /* any of bounds.h */
    OPTION_MUTANT,
    OPTION_MUTANTS,
    OPTION_STATES_MAX,
    OPTION_WALKS,
    OPTION_SEED,
    OPTION_QUIET,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"claims", required_argument, NULL, OPTION_BOUND},
    {"updaters", required_argument, NULL, OPTION_BOUND},
    {"ballots", required_argument, NULL, OPTION_BOUND},
    {"renewals", required_argument, NULL, OPTION_BOUND},
    {"ends", required_argument, NULL, OPTION_BOUND},
    {"first-numbers", required_argument, NULL, OPTION_BOUND},
    {"restarts", required_argument, NULL, OPTION_BOUND},
    {"drops", required_argument, NULL, OPTION_BOUND},
    {"reads", required_argument, NULL, OPTION_BOUND},
    {"no-fast", no_argument, NULL, OPTION_BOUND},
    {"slow", no_argument, NULL, OPTION_BOUND},
    {"no-time", no_argument, NULL, OPTION_BOUND},
    {"outcome", no_argument, NULL, OPTION_BOUND},
    {"mutant", required_argument, NULL, OPTION_MUTANT},
    {"mutants", no_argument, NULL, OPTION_MUTANTS},
    {"states-max", required_argument, NULL, OPTION_STATES_MAX},
    {"walks", required_argument, NULL, OPTION_WALKS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static _Noreturn void fail(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s; see --help\n", what, text);
    exit(STATUS_NO_RESULT);
}

static uint64_t read_number(const char *name, const char *text, uint64_t max)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);

    if (end == text || *end != '\0' || number > max)
        fail(name, "not a number, or too large");
    return number;
}

static void list_mutants(void)
{
    for (unsigned number = 1; number < MUTANTS_END; number++) {
        const struct hf_mutant_info *info = hf_mutants_find(number);

        if (info)
            printf("%u | %u | %s | %s\n", number, info->masters, info->bounds,
                   info->text);
    }
}

/* Handle one option that is not a bound. */
static void read_option(int option, const char *name, struct options *options)
{
    switch (option) {
    case OPTION_MUTANT:
        options->mutant = read_number(name, optarg, MUTANTS_END);
        break;
    case OPTION_STATES_MAX:
        options->states_max = read_number(name, optarg, UINT32_MAX - 1);
        break;
    case OPTION_WALKS:
        options->walks = read_number(name, optarg, UINT64_MAX);
        break;
    case OPTION_SEED:
        options->seed = read_number(name, optarg, UINT64_MAX);
        break;
    case OPTION_QUIET:
        options->quiet = true;
        break;
    case OPTION_MUTANTS:
        list_mutants();
        exit(STATUS_NOTHING_VIOLATED);
    case OPTION_HELP:
        fputs(help, stdout);
        exit(STATUS_NOTHING_VIOLATED);
    default:
        exit(STATUS_NO_RESULT);
    }
}

/* Set the bounds of a mutant, from their text. */
static void set_mutant_bounds(const struct hf_mutant_info *info)
{
    char text[128];
    char *rest = text;
    char *word;

    snprintf(text, sizeof text, "%s", info->bounds);
    while ((word = strsep(&rest, " ")) != NULL) {
        bool has_value = rest && rest[0] != '-';

        hf_bounds_set(&hf_bounds, word + 2,
                      has_value ? strsep(&rest, " ") : NULL);
    }
}

static void choose_mutant(uint64_t number)
{
    const struct hf_mutant_info *info = hf_mutants_find((unsigned)number);

    if (!info)
        fail("--mutant", "there is none with this number");
    if (info->masters != MASTERS)
        fail("--mutant", "this one needs the other program (--mutants)");
    hf_mutant = info->mutant;
    set_mutant_bounds(info);
}

/* Bounds that are given override those of the mutant, so they come second. */
static void read_arguments(int argc, char **argv, struct options *options)
{
    int option, at;

    while ((option = getopt_long(argc, argv, "", long_options, &at)) != -1)
        if (option != OPTION_BOUND)
            read_option(option, option == '?' ? "" : long_options[at].name,
                        options);
    if (optind < argc)
        fail(argv[optind], "unexpected argument");
    hf_bounds = hf_bounds_default();
    if (options->mutant)
        choose_mutant(options->mutant);
    optind = 1;
    while ((option = getopt_long(argc, argv, "", long_options, &at)) != -1)
        if (option == OPTION_BOUND &&
            !hf_bounds_set(&hf_bounds, long_options[at].name, optarg))
            fail(long_options[at].name, "not a number or a list of numbers");
    if (!hf_bounds_fit(&hf_bounds))
        fail("--claims, --updaters", "there must be one to three clients");
}

static void print_result(const struct hf_result *result)
{
    if (result->walks > 0)
        printf("%llu walks, ", (unsigned long long)result->walks);
    else
        printf("%llu states, ", (unsigned long long)result->states);
    printf("%llu steps", (unsigned long long)result->steps);
    if (result->bytes > 0)
        printf(", %zu MiB", result->bytes >> 20);
    printf("\n");
    if (result->violated != INVARIANT_NONE)
        printf("violated after %u steps: ", result->trace_len);
    printf("%s%s\n", hf_invariants_text(result->violated),
           result->cut_off ? ", but not all states were visited" : "");
}

int main(int argc, char **argv)
{
    struct options options = {.states_max = 100000000, .seed = 1};
    struct hf_result result;
    FILE *trace;

    read_arguments(argc, argv, &options);
    trace = options.quiet ? NULL : stdout;
    printf("%d masters, ", MASTERS);
    hf_bounds_print(&hf_bounds, stdout);
    if (hf_mutant != CORRECT)
        printf(", mutant %d: %s", hf_mutant, hf_mutants_find(hf_mutant)->text);
    printf("\n");
    fflush(stdout);
    result = options.walks
                 ? hf_walk_many(options.walks, options.seed, trace)
                 : hf_explore_all((uint32_t)options.states_max, trace);
    print_result(&result);
    if (result.violated != INVARIANT_NONE)
        return STATUS_VIOLATED;
    return result.cut_off ? STATUS_NO_RESULT : STATUS_NOTHING_VIOLATED;
}
