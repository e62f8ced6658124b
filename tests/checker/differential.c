/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * hf-check-differential [COUNT] [SEED]
 *
 * Do the clever checker and the stupid one agree? On COUNT random histories of
 * about a dozen operations both must say the same about linearizability. Half
 * of them are good, and in those the checker must find no violation of any
 * kind; a quarter are damaged, and a quarter are noise. Exit status: 0 they
 * agree, 1 they do not (the history is printed), 2 usage. */
#include "check.h"
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
    uint64_t kinds[CHECK_KINDS];
};

static struct simulate_opts random_opts(uint64_t seed)
{
    uint64_t random = seed;

    return (struct simulate_opts){
        .seed = simulate_random(&random),
        .ops = 3 + simulate_random(&random) % 9,
        .clients = (uint32_t)(2 + simulate_random(&random) % 3),
        .keys = (uint32_t)(1 + simulate_random(&random) % 8 / 6 +
                           simulate_random(&random) % 8 / 7),
        .lease_max = 4 + simulate_random(&random) % 12,
        .unit_ns = 1000,
        .trouble = (unsigned)(simulate_random(&random) % 3 * 100),
    };
}

static const char *search_name(enum search_verdict verdict)
{
    static const char *const names[] = {"linearizable", "not linearizable",
                                        "too large"};

    return names[verdict];
}

static int complain(const struct history *h, uint64_t seed,
                    const struct check_report *report,
                    enum search_verdict verdict, enum source source)
{
    static const char *const names[] = {"good", "damaged", "noise"};

    history_write(h, stdout);
    printf("seed %llu (%s): check says %s", (unsigned long long)seed,
           names[source],
           report->linearizable ? "linearizable" : "not linearizable");
    for (size_t i = 0; i < report->violation_count && i < CHECK_LIST_MAX; i++)
        printf(", %s", check_kind_name(report->violations[i].kind));
    printf("; search says %s\n", search_name(verdict));
    return -1;
}

static void count(struct counts *counts, const struct check_report *report,
                  enum source source)
{
    counts->linearizable += report->linearizable;
    counts->not_linearizable += !report->linearizable;
    counts->of_good_source += source == GOOD;
    for (size_t i = 0; i < report->violation_count && i < CHECK_LIST_MAX; i++)
        counts->kinds[report->violations[i].kind]++;
}

static void fill(struct history *h, uint64_t seed, enum source source)
{
    struct simulate_opts opts = random_opts(seed);

    if (source == NOISE) {
        simulate_noise(h, seed, opts.ops);
        return;
    }
    simulate_good(h, &opts);
    if (source == DAMAGED)
        simulate_damage(h, seed);
}

static int compare(uint64_t seed, enum source source, struct counts *counts)
{
    struct check_report report;
    struct history h;
    int answer = 0;

    history_init(&h, false);
    fill(&h, seed, source);
    check_history(&h, &report);
    enum search_verdict verdict = search_history(&h);

    count(counts, &report, source);
    if (report.linearizable != (verdict == SEARCH_LINEARIZABLE) ||
        (source == GOOD && report.violation_count))
        answer = complain(&h, seed, &report, verdict, source);
    history_fini(&h);
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
    for (unsigned i = 0; i < CHECK_KINDS; i++)
        printf("%10llu %s\n", (unsigned long long)counts->kinds[i],
               check_kind_name(i));
}

static uint64_t number(const char *text)
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
    uint64_t total = argc > 1 ? number(argv[1]) : 100000;
    uint64_t seed = argc > 2 ? number(argv[2]) : 1;
    static const enum source sources[] = {GOOD, DAMAGED, GOOD, NOISE};
    struct counts counts = {0};

    for (uint64_t i = 0; i < total; i++) {
        if (compare(seed + i, sources[i % 4], &counts) < 0)
            return 1;
    }
    print_counts(&counts);
    return 0;
}
