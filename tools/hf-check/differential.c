/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * hf-check-differential [COUNT] [SEED]
 *
 * Compares the checker (check.h) with the exhaustive search (search.h) on COUNT
 * random histories of about a dozen operations: both must agree whether each is
 * linearizable without its "busy" answers, and without its reads that saw no
 * holder, because the checker does not check these two together. Half of them
 * are correct, and the checker must find no violation of any kind in these; a
 * quarter are damaged, and a quarter are noise. Exit status: 0 they agree, 1
 * they do not, or a correct history has a violation (the history is printed), 2
 * usage. */
#include "array.h"
#include "check.h"
#include "damage.h"
#include "encoder.h"
#include "search.h"
#include "simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum source {
    GOOD,
    DAMAGED,
    NOISE
};

struct counts {
    uint64_t linearizable, not_linearizable;
    uint64_t of_good_source;
    uint64_t kinds[HF_CHECK_KINDS];
};

static struct hf_simulate_opts random_opts(uint64_t seed)
{
    uint64_t random = seed;

    return (struct hf_simulate_opts){
        .seed = hf_simulate_random(&random),
        .ops = 3 + hf_simulate_random(&random) % 9,
        .clients = (uint32_t)(2 + hf_simulate_random(&random) % 3),
        .keys = (uint32_t)(1 + hf_simulate_random(&random) % 8 / 6 +
                           hf_simulate_random(&random) % 8 / 7),
        .lease_max = 4 + hf_simulate_random(&random) % 12,
        .unit_ns = 1000,
        .trouble = (unsigned)(hf_simulate_random(&random) % 3 * 100),
    };
}

static const char *search_name(enum hf_search_verdict verdict)
{
    static const char *const names[] = {"linearizable", "not linearizable",
                                        "too large"};

    return names[verdict];
}

static int print_disagreement(const struct hf_check_history *h, uint64_t seed,
                              const struct hf_check_report *report,
                              enum hf_search_verdict verdict,
                              enum source source)
{
    static const char *const names[] = {"good", "damaged", "noise"};

    hf_encoder_write(h, stdout);
    printf("seed %llu (%s): check says %s", (unsigned long long)seed,
           names[source],
           report->linearizable ? "linearizable" : "not linearizable");
    for (size_t i = 0; i < report->violation_count && i < HF_CHECK_LIST_MAX;
         i++)
        printf(", %s", hf_check_kind_name(report->violations[i].kind));
    printf("; search says %s\n", search_name(verdict));
    return -1;
}

static void count_report(struct counts *counts,
                         const struct hf_check_report *report,
                         enum source source)
{
    counts->linearizable += report->linearizable;
    counts->not_linearizable += !report->linearizable;
    counts->of_good_source += source == GOOD;
    for (size_t i = 0; i < report->violation_count && i < HF_CHECK_LIST_MAX;
         i++)
        counts->kinds[report->violations[i].kind]++;
}

static void make_history(struct hf_check_history *h, uint64_t seed,
                         enum source source)
{
    struct hf_simulate_opts opts = random_opts(seed);

    if (source == NOISE) {
        hf_damage_noise(h, seed, opts.ops);
        return;
    }
    hf_simulate_run(h, &opts);
    if (source == DAMAGED)
        hf_damage_history(h, seed);
}

static bool is_busy(const struct hf_op *op)
{
    return op->error == HF_OP_ERROR_BUSY;
}

static bool is_vacant(const struct hf_op *op)
{
    return op->kind == HF_OP_READ && op->token == 0;
}

/* Search the history without the operations for which `left_out` is true. */
static enum hf_search_verdict search_without(
    const struct hf_check_history *h, bool (*left_out)(const struct hf_op *))
{
    struct hf_check_history part = *h;
    enum hf_search_verdict verdict;

    part.ops = hf_array_new(h->op_count, sizeof *part.ops);
    part.op_count = 0;
    for (size_t i = 0; i < h->op_count; i++) {
        if (!left_out(&h->ops[i]))
            part.ops[part.op_count++] = h->ops[i];
    }
    verdict = hf_search_run(&part);
    free(part.ops);
    return verdict;
}

static enum hf_search_verdict search_history(const struct hf_check_history *h)
{
    enum hf_search_verdict verdict = search_without(h, is_vacant);

    return verdict == HF_SEARCH_LINEARIZABLE ? search_without(h, is_busy)
                                             : verdict;
}

static int compare_verdicts(uint64_t seed, enum source source,
                            struct counts *counts)
{
    struct hf_check_report report;
    struct hf_check_history h;
    int answer = 0;

    hf_check_history_init(&h, false);
    make_history(&h, seed, source);
    hf_check_run(&h, &report);
    enum hf_search_verdict verdict = search_history(&h);

    count_report(counts, &report, source);
    if (report.linearizable != (verdict == HF_SEARCH_LINEARIZABLE) ||
        (source == GOOD && report.violation_count))
        answer = print_disagreement(&h, seed, &report, verdict, source);
    hf_check_history_fini(&h);
    return answer;
}

static void print_counts(const struct counts *counts)
{
    uint64_t total = counts->linearizable + counts->not_linearizable;

    printf("%llu histories (%llu good, the others damaged or noise): "
           "the checkers agree; %llu linearizable, %llu not\n",
           (unsigned long long)total,
           (unsigned long long)counts->of_good_source,
           (unsigned long long)counts->linearizable,
           (unsigned long long)counts->not_linearizable);
    for (unsigned i = 0; i < HF_CHECK_KINDS; i++)
        printf("%10llu %s\n", (unsigned long long)counts->kinds[i],
               hf_check_kind_name(i));
}

static uint64_t parse_number(const char *text)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);

    if (errno || end == text || *end) {
        fprintf(stderr, "usage: hf-check-differential [COUNT] [SEED]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    uint64_t total = argc > 1 ? parse_number(argv[1]) : 100000;
    uint64_t seed = argc > 2 ? parse_number(argv[2]) : 1;
    static const enum source sources[] = {GOOD, DAMAGED, GOOD, NOISE};
    struct counts counts = {0};

    for (uint64_t i = 0; i < total; i++) {
        if (compare_verdicts(seed + i, sources[i % 4], &counts) < 0)
            return 1;
    }
    print_counts(&counts);
    return 0;
}
