/* checker - how long does it take to read and check a history of a million
 * operations?
 *
 * The history has no violations and is generated from a seed: 64 clients, 200
 * keys, leases that expire, answers that are lost. It is written to a temporary
 * file, then read and checked as hf-check does. */
#include <stdlib.h>
#include <unistd.h>

#include "hf-check/check.h"
#include "hf-check/decoder.h"
#include "hf-check/encoder.h"
#include "hf-check/simulate.h"
#include "lib/bench.h"

static const size_t sizes[] = {10000, 100000, 1000000};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct figures {
    double bytes;
    struct bench_samples read, check; /* seconds */
};

static FILE *write_history(size_t ops, double *bytes)
{
    struct hf_simulate_opts opts = {
        .seed = 1,
        .ops = ops,
        .clients = 64,
        .keys = 200,
        .lease_max = 1000,
        .unit_ns = 1000,
        .trouble = 10,
    };
    FILE *file = tmpfile();
    struct hf_check_history history;

    if (!file)
        bench_fail("cannot create a temporary file");
    hf_check_history_init(&history, false);
    hf_simulate_run(&history, &opts);
    if (hf_encoder_write(&history, file) < 0 || fflush(file) < 0)
        bench_fail("cannot write a history");
    hf_check_history_fini(&history);
    *bytes = (double)ftell(file);
    return file;
}

static double seconds_since(uint64_t from)
{
    return (double)(bench_now() - from) / 1e9;
}

static void measure(FILE *file, struct figures *figures)
{
    static struct hf_check_report report;
    struct hf_check_fault fault;
    struct hf_check_history history;
    uint64_t from;

    rewind(file);
    hf_check_history_init(&history, false);
    from = bench_now();
    if (hf_decoder_read(&history, file, &fault) < 0)
        bench_fail(fault.text);
    bench_add(&figures->read, seconds_since(from));
    from = bench_now();
    hf_check_run(&history, &report);
    bench_add(&figures->check, seconds_since(from));
    if (report.violation_count > 0)
        bench_fail("violation reported in a correct history");
    hf_check_history_fini(&history);
}

static void print_table(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"operations", "operations", 0}, {"MB", "megabytes", 1},
        {"read, s", "read_s", 3},        {"check, s", "check_s", 3},
        {"ns an operation", "ns", 0},    {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Reading and checking a history", "checker",
                     columns);
    for (size_t i = 0; i < SIZES; i++) {
        double read = bench_median(&figures[i].read);
        double check = bench_median(&figures[i].check);

        bench_table_number(&table, (double)sizes[i]);
        bench_table_number(&table, figures[i].bytes / 1e6);
        bench_table_number(&table, read);
        bench_table_number(&table, check);
        bench_table_number(&table, (read + check) / (double)sizes[i] * 1e9);
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "checker", .rounds = 3};
    static struct figures figures[SIZES];
    FILE *files[SIZES];

    bench_init(&bench, argc, argv);
    for (size_t i = 0; i < SIZES; i++)
        files[i] = write_history(sizes[i], &figures[i].bytes);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SIZES; i++) {
            bench_progress(&bench, round, "reading and checking");
            measure(files[i], &figures[i]);
        }
    }
    print_table(&bench, figures);
    for (size_t i = 0; i < SIZES; i++)
        (void)fclose(files[i]);
    return 0;
}
