/* bench.h - the benchmark library: command line, clocks, medians, tables.
 *
 * Each round runs every case once, in turn, so that a disturbance of the
 * machine affects all cases; a benchmark reports the median of the rounds.
 * Every failure ends the program. */
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
    const char *url; /* the store to measure */
    unsigned rounds;
    bool processes; /* processes share the store, so the default is file: */
    enum bench_format format;
    bool has_printed; /* print an empty line before the next table */
};

/* Parse the command line, `[URL] [--rounds N] [--json | --markdown]`, into
 * `bench`, which the caller has filled with the defaults. Exits if the command
 * line is wrong. */
void bench_init(struct bench *bench, int argc, char **argv);

/* Returns true if this part of a long benchmark is wanted: the variable
 * BENCH_ONLY, if it is set, contains the names of the parts. */
bool bench_has_part(const char *part);

/* Show the progress if stderr is a terminal. `round` counts from 0; `text` says
 * what is measured. */
void bench_progress(const struct bench *bench, unsigned round,
                    const char *text);

/* Print an error message and exit. */
_Noreturn void bench_fail(const char *what);

/* Print an error message and exit, unless `err` is HF_OK. */
void bench_check(const char *what, enum hf_err err);

/* The path of a temporary folder, which is removed when the program exits. */
const char *bench_folder(void);

/* Open a client of the store. bench_open_background() gives it background
 * threads. */
struct hf_client *bench_open(const struct bench *bench);
struct hf_client *bench_open_background(const struct bench *bench);
void bench_close(struct hf_client *client);

/* Take the lock on `key`, without a limit on the wait, with a ttl that outlasts
 * a round. bench_unlock() releases it and frees the handle. */
struct hf_lock *bench_lock(struct hf_client *client, const char *key);
void bench_unlock(struct hf_lock *held);

/* Allocate zeroed memory. Exits if memory is exhausted, so it never returns
 * NULL. */
void *bench_alloc(size_t count, size_t size);

/* ---- Time ---------------------------------------------------------------*/

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t bench_now(void);

/* CPU time in nanoseconds of this thread, or of this process. On a busy
 * machine, this is the better measure of code that never sleeps. */
uint64_t bench_thread_cpu(void);
uint64_t bench_process_cpu(void);

void bench_sleep_ms(unsigned ms);

/* ---- Samples ------------------------------------------------------------*/

/* Numbers, usually one per round. */
struct bench_samples {
    unsigned count;
    double at[BENCH_ROUNDS_MAX];
};

void bench_add(struct bench_samples *samples, double sample);
double bench_median(const struct bench_samples *samples);
double bench_least(const struct bench_samples *samples);
double bench_most(const struct bench_samples *samples);

/* Sort `values` for bench_quantile(), which interpolates between them. `part`
 * is 0.5 for the median, 0.99 for the 99th percentile. */
void bench_sort(double *values, size_t count);
double bench_quantile(const double *sorted, size_t count, double part);

/* ---- Keys ---------------------------------------------------------------*/

/* Keys of 16 bytes each, in one block. */
#define BENCH_KEY_SIZE 16

struct bench_keys {
    char *bytes;
    size_t count;
};

/* Make keys from a prefix of up to 8 bytes and a number. */
void bench_keys_init(struct bench_keys *keys, const char *prefix, size_t count);
void bench_keys_fini(struct bench_keys *keys);

static inline struct hf_key bench_key(const struct bench_keys *keys, size_t i)
{
    return (struct hf_key){keys->bytes + i * BENCH_KEY_SIZE, BENCH_KEY_SIZE};
}

/* ---- Tables -------------------------------------------------------------*/

#define BENCH_COLUMNS_MAX 10
#define BENCH_ROWS_MAX 64

struct bench_column {
    const char *title; /* in a table */
    const char *name;  /* in JSON */
    int decimals;      /* digits after the point, or BENCH_TEXT */
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

/* Start a table. A column without a title ends `columns`. The caller adds the
 * cells row by row; NAN leaves a cell empty. */
void bench_table_init(struct bench_table *table, const char *title,
                      const char *name, const struct bench_column *columns);
void bench_table_text(struct bench_table *table, const char *text);
void bench_table_number(struct bench_table *table, double number);

/* Print the table aligned, as Markdown, or as one JSON object per row. */
void bench_table_print(struct bench *bench, const struct bench_table *table);

#endif
