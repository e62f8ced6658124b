/* bench.h - what the benchmarks share: the command line, the clock, medians,
 * tables.
 *
 * A benchmark compares side by side: each round runs every case once, in turn,
 * so that what disturbs the machine disturbs them all, and the median of the
 * rounds is told. Whatever fails ends the program: half a figure is none. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "holdfast.h"

#define BENCH_ROUNDS_MAX 64

enum bench_format {
    BENCH_PLAIN,
    BENCH_JSON,
    BENCH_MARKDOWN
};

struct bench {
    const char *name;
    const char *url; /* of the locks to measure */
    unsigned rounds;
    bool processes; /* several use the locks: by default file:, not memory: */
    enum bench_format format;
    bool told; /* a table has been printed */
};

/* Read the command line, `[URL] [--rounds N] [--json | --markdown]`, over what
 * `bench` is filled with. Ends the program where it is wrong. */
void bench_init(struct bench *bench, int argc, char **argv);

/* Show on a terminal what is under way: `text` of a round, from 0. */
void bench_progress(const struct bench *bench, unsigned round,
                    const char *text);

/* End the program, saying what failed. */
_Noreturn void bench_fail(const char *what);

/* The same, unless `err` is HF_OK. */
void bench_check(const char *what, enum hf_err err);

/* A folder of this program's own, in /tmp; it is removed at the end. */
const char *bench_folder(void);

struct hf_client *bench_open(const struct bench *bench);
struct hf_client *bench_open_background(const struct bench *bench);
void bench_close(struct hf_client *client);

/* Wait for `key` as long as it takes, and hold it longer than a round; give it
 * back, and free it. */
struct hf_lock *bench_lock(struct hf_client *client, const char *key);
void bench_unlock(struct hf_lock *held);

/* Memory that is there; zeroed. */
void *bench_alloc(size_t count, size_t size);

/* ---- Time ---------------------------------------------------------------*/

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t bench_now(void);

/* Nanoseconds that this thread, or all of this process, has had a processor:
 * the better measure of what never sleeps, on a machine with other work. */
uint64_t bench_thread_cpu(void);
uint64_t bench_process_cpu(void);

void bench_sleep_ms(unsigned ms);

/* ---- Samples ------------------------------------------------------------*/

/* One number a round. */
struct bench_samples {
    unsigned count;
    double at[BENCH_ROUNDS_MAX];
};

void bench_add(struct bench_samples *samples, double sample);
double bench_median(const struct bench_samples *samples);
double bench_least(const struct bench_samples *samples);
double bench_most(const struct bench_samples *samples);

/* Sort `values`, for bench_quantile(), which interpolates between them:
 * `part` is 0.5 for the median, 0.99 for what one in a hundred exceeds. */
void bench_sort(double *values, size_t count);
double bench_quantile(const double *sorted, size_t count, double part);

/* ---- Keys ---------------------------------------------------------------*/

/* Keys of 16 bytes each, in one block. */
#define BENCH_KEY_SIZE 16

struct bench_keys {
    char *bytes;
    size_t count;
};

/* Keys that begin with `prefix`, of up to 8 bytes, and end with a number. */
void bench_keys_init(struct bench_keys *keys, const char *prefix, size_t count);
void bench_keys_fini(struct bench_keys *keys);

static inline struct hf_key bench_key(const struct bench_keys *keys, size_t i)
{
    return (struct hf_key){keys->bytes + i * BENCH_KEY_SIZE, BENCH_KEY_SIZE};
}

/* ---- Tables -------------------------------------------------------------*/

#define BENCH_COLUMNS_MAX 8
#define BENCH_ROWS_MAX 64

struct bench_column {
    const char *title; /* in a table */
    const char *name;  /* in JSON */
    int decimals;      /* of a number; BENCH_TEXT for words */
};

#define BENCH_TEXT (-1)

struct bench_table {
    const char *title;
    const char *name; /* in JSON */
    struct bench_column columns[BENCH_COLUMNS_MAX];
    size_t column_count;
    size_t cell_count;
    char cells[BENCH_ROWS_MAX * BENCH_COLUMNS_MAX][64];
};

/* The columns end with one that has no title. Cells are added row by row; a
 * number that is not one (NAN) stands for nothing to tell. */
void bench_table_init(struct bench_table *table, const char *title,
                      const char *name, const struct bench_column *columns);
void bench_table_text(struct bench_table *table, const char *text);
void bench_table_number(struct bench_table *table, double number);

/* Aligned, as Markdown, or one JSON object a row. */
void bench_table_print(struct bench *bench, const struct bench_table *table);

#endif
