#include "lib/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/folder.h"

/* ---- The command line ---------------------------------------------------*/

static _Noreturn void usage(const struct bench *bench)
{
    fprintf(stderr,
            "usage: bench_%s [URL] [--rounds N] [--json | --markdown]\n",
            bench->name);
    exit(2);
}

static unsigned read_rounds(const struct bench *bench, const char *text)
{
    char *end = NULL;
    unsigned long rounds = text ? strtoul(text, &end, 10) : 0;

    if (rounds < 1 || rounds > BENCH_ROUNDS_MAX || *end) {
        fprintf(stderr, "bench_%s: --rounds: 1 to %d\n", bench->name,
                BENCH_ROUNDS_MAX);
        exit(2);
    }
    return (unsigned)rounds;
}

static void choose_shared_url(struct bench *bench)
{
    static char url[64];

    if (!bench->url) {
        (void)snprintf(url, sizeof(url), "file:%s", bench_folder());
        bench->url = url;
    }
    if (!strncmp(bench->url, "memory:", 7)) {
        fprintf(stderr, "bench_%s: several processes cannot share memory:\n",
                bench->name);
        exit(2);
    }
}

void bench_init(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            bench->format = BENCH_JSON;
        else if (!strcmp(argv[i], "--markdown"))
            bench->format = BENCH_MARKDOWN;
        else if (!strcmp(argv[i], "--rounds"))
            bench->rounds = read_rounds(bench, argv[++i]);
        else if (argv[i][0] != '-')
            bench->url = argv[i];
        else
            usage(bench);
    }
    if (bench->processes)
        choose_shared_url(bench);
}

bool bench_has_part(const char *part)
{
    const char *only = getenv("BENCH_ONLY");

    return !only || strstr(only, part);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

void bench_progress(const struct bench *bench, unsigned round, const char *text)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s: round %u of %u: %.50s", bench->name,
                round + 1, bench->rounds, text);
}

void bench_fail(const char *what)
{
    clear_progress();
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

void bench_check(const char *what, enum hf_err err)
{
    if (!err)
        return;
    clear_progress();
    fprintf(stderr, "bench: %s: %s (%s)\n", what, hf_err_text(err),
            hf_err_name(err));
    exit(1);
}

static char folder[] = "/tmp/holdfast-bench-XXXXXX";
static pid_t folder_owner;

static void remove_folder(void)
{
    if (getpid() == folder_owner) /* only the parent removes the folder */
        (void)hf_test_folder_remove(folder);
}

const char *bench_folder(void)
{
    if (folder_owner)
        return folder;
    if (!mkdtemp(folder) || atexit(remove_folder))
        bench_fail("cannot create a temporary folder");
    folder_owner = getpid();
    return folder;
}

static struct hf_client *open_client(const struct bench *bench, bool background)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_client_opts opts;
    struct hf_client *client;

    hf_client_opts_init(&opts);
    opts.owner = "bench";
    opts.background = background;
    opts.error = &error;
    if (hf_open(bench->url, &opts, &client))
        bench_fail(error.text);
    return client;
}

struct hf_client *bench_open(const struct bench *bench)
{
    return open_client(bench, false);
}

struct hf_client *bench_open_background(const struct bench *bench)
{
    return open_client(bench, true);
}

void bench_close(struct hf_client *client)
{
    bench_check("hf_close", hf_close(client, 10000));
}

struct hf_lock *bench_lock(struct hf_client *client, const char *key)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    opts.ttl_ms = 600000;
    bench_check("hf_acquire", hf_acquire(client, hf_key_of(key), &opts, &lock));
    return lock;
}

void bench_unlock(struct hf_lock *held)
{
    bench_check("hf_release", hf_release(held));
    hf_lock_free(held);
}

void *bench_alloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (!memory)
        bench_fail("out of memory");
    return memory;
}

/* ---- Time ---------------------------------------------------------------*/

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t bench_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t bench_thread_cpu(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t bench_process_cpu(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void bench_sleep_ms(unsigned ms)
{
    struct timespec span = {.tv_sec = ms / 1000,
                            .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&span, &span) && errno == EINTR)
        ;
}

/* ---- Samples ------------------------------------------------------------*/

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
}

double bench_quantile(const double *sorted, size_t count, double part)
{
    double index, fraction;
    size_t below;

    if (count == 0)
        return NAN;
    index = part * (double)(count - 1);
    below = (size_t)index;
    fraction = index - (double)below;
    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + fraction * (sorted[below + 1] - sorted[below]);
}

void bench_add(struct bench_samples *samples, double sample)
{
    if (samples->count >= BENCH_ROUNDS_MAX)
        bench_fail("too many rounds");
    samples->at[samples->count++] = sample;
}

static double sample_quantile(const struct bench_samples *samples, double part)
{
    struct bench_samples sorted = *samples;

    bench_sort(sorted.at, sorted.count);
    return bench_quantile(sorted.at, sorted.count, part);
}

double bench_median(const struct bench_samples *samples)
{
    return sample_quantile(samples, 0.5);
}

double bench_least(const struct bench_samples *samples)
{
    return sample_quantile(samples, 0);
}

double bench_most(const struct bench_samples *samples)
{
    return sample_quantile(samples, 1);
}

/* ---- Keys ---------------------------------------------------------------*/

/* Write "prefix0000000042", without a NUL. */
static void write_key(char *key, const char *prefix, size_t number)
{
    memset(key, '0', BENCH_KEY_SIZE);
    memcpy(key, prefix, strnlen(prefix, 8));
    for (size_t i = BENCH_KEY_SIZE; number > 0; number /= 10)
        key[--i] = (char)('0' + number % 10);
}

void bench_keys_init(struct bench_keys *keys, const char *prefix, size_t count)
{
    *keys = (struct bench_keys){bench_alloc(count, BENCH_KEY_SIZE), count};
    for (size_t i = 0; i < count; i++)
        write_key(keys->bytes + i * BENCH_KEY_SIZE, prefix, i);
}

void bench_keys_fini(struct bench_keys *keys)
{
    free(keys->bytes);
    *keys = (struct bench_keys){0};
}

/* ---- Tables -------------------------------------------------------------*/

void bench_table_init(struct bench_table *table, const char *title,
                      const char *name, const struct bench_column *columns)
{
    *table = (struct bench_table){.title = title, .name = name};
    while (columns[table->column_count].title) {
        if (table->column_count >= BENCH_COLUMNS_MAX)
            bench_fail("too many columns");
        table->columns[table->column_count] = columns[table->column_count];
        table->column_count++;
    }
}

static char *next_cell(struct bench_table *table)
{
    if (table->cell_count >= BENCH_ROWS_MAX * table->column_count)
        bench_fail("too many rows");
    return table->cells[table->cell_count++];
}

void bench_table_text(struct bench_table *table, const char *text)
{
    (void)snprintf(next_cell(table), sizeof(table->cells[0]), "%s", text);
}

void bench_table_number(struct bench_table *table, double number)
{
    int decimals =
        table->columns[table->cell_count % table->column_count].decimals;
    char *cell = next_cell(table);

    if (!isnan(number))
        (void)snprintf(cell, sizeof(table->cells[0]), "%.*f", decimals, number);
}

static size_t row_count(const struct bench_table *table)
{
    return table->cell_count / table->column_count;
}

static const char *cell_at(const struct bench_table *table, size_t row,
                           size_t column)
{
    return table->cells[row * table->column_count + column];
}

/* The width of `text` on a screen: the number of its UTF-8 characters. */
static int text_width(const char *text)
{
    int columns = 0;

    for (; *text; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

static int column_width(const struct bench_table *table, size_t column)
{
    int widest = text_width(table->columns[column].title);

    for (size_t row = 0; row < row_count(table); row++) {
        int width = text_width(cell_at(table, row, column));

        widest = width > widest ? width : widest;
    }
    return widest;
}

/* Align text to the left, numbers to the right. */
static void print_cell(const struct bench_table *table, size_t column,
                       const char *text)
{
    int space = column_width(table, column) - text_width(text);
    bool left = table->columns[column].decimals == BENCH_TEXT;

    printf("%*s%s%*s", left ? 0 : space, "", text, left ? space : 0, "");
}

static void print_line(const struct bench_table *table, const char *edge,
                       const char *between, size_t row)
{
    printf("%s", edge);
    for (size_t column = 0; column < table->column_count; column++) {
        const char *text = row == SIZE_MAX ? table->columns[column].title
                                           : cell_at(table, row, column);

        if (column > 0)
            printf("%s", between);
        print_cell(table, column, text);
    }
    printf("%s\n", *edge ? " |" : "");
}

static void print_plain(const struct bench_table *table)
{
    printf("%s\n", table->title);
    print_line(table, "", "  ", SIZE_MAX);
    for (size_t row = 0; row < row_count(table); row++)
        print_line(table, "", "  ", row);
}

static void print_rule(const struct bench_table *table)
{
    for (size_t column = 0; column < table->column_count; column++) {
        printf("|");
        for (int i = column_width(table, column); i >= 0; i--)
            printf("-");
        printf(table->columns[column].decimals == BENCH_TEXT ? "-" : ":");
    }
    printf("|\n");
}

static void print_markdown(const struct bench_table *table)
{
    printf("%s:\n\n", table->title);
    print_line(table, "| ", " | ", SIZE_MAX);
    print_rule(table);
    for (size_t row = 0; row < row_count(table); row++)
        print_line(table, "| ", " | ", row);
}

/* The texts are constants of the benchmarks, and need no escaping. */
static void print_json(const struct bench *bench,
                       const struct bench_table *table)
{
    for (size_t row = 0; row < row_count(table); row++) {
        printf("{\"bench\":\"%s\",\"table\":\"%s\"", bench->name, table->name);
        for (size_t column = 0; column < table->column_count; column++) {
            const char *text = cell_at(table, row, column);
            const char *quote =
                table->columns[column].decimals == BENCH_TEXT ? "\"" : "";

            printf(",\"%s\":%s%s%s", table->columns[column].name, quote,
                   *text || *quote ? text : "null", quote);
        }
        printf("}\n");
    }
}

void bench_table_print(struct bench *bench, const struct bench_table *table)
{
    clear_progress();
    if (bench->has_printed && bench->format != BENCH_JSON)
        printf("\n");
    bench->has_printed = true;
    if (bench->format == BENCH_JSON)
        print_json(bench, table);
    else if (bench->format == BENCH_MARKDOWN)
        print_markdown(table);
    else
        print_plain(table);
    (void)fflush(stdout);
}
