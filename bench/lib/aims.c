#include "lib/aims.h"

#define AIMS_MAX 16

static struct aim {
    const char *what;
    bool is_upper; /* `limit` is the largest value that is good enough */
    double limit;
    struct bench_range range;
} aims[AIMS_MAX];

static size_t aim_count;

static void add_aim(struct aim aim)
{
    if (aim_count == AIMS_MAX)
        bench_fail("too many aims");
    aims[aim_count++] = aim;
}

void bench_aim_at_most(const char *what, double limit, struct bench_range range)
{
    add_aim((struct aim){what, true, limit, range});
}

void bench_aim_at_least(const char *what, double limit,
                        struct bench_range range)
{
    add_aim((struct aim){what, false, limit, range});
}

struct bench_range bench_range_of(const struct bench_samples *samples)
{
    return (struct bench_range){bench_median(samples), bench_least(samples),
                                bench_most(samples)};
}

void bench_aims_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"aim", "aim", BENCH_TEXT}, {"", "kind", BENCH_TEXT},
        {"limit", "limit", 2},      {"measured", "measured", 2},
        {"least", "least", 2},      {"most", "most", 2},
        {"met", "met", BENCH_TEXT}, {NULL, NULL, 0},
    };
    static struct bench_table table;
    static char name[64];

    (void)snprintf(name, sizeof(name), "%s_aims", bench->name);
    bench_table_init(&table, "Aims", name, columns);
    for (size_t i = 0; i < aim_count; i++) {
        const struct aim *aim = &aims[i];
        bool is_met = aim->is_upper ? aim->range.figure <= aim->limit
                                    : aim->range.figure >= aim->limit;

        bench_table_text(&table, aim->what);
        bench_table_text(&table, aim->is_upper ? "at most" : "at least");
        bench_table_number(&table, aim->limit);
        bench_table_number(&table, aim->range.figure);
        bench_table_number(&table, aim->range.least);
        bench_table_number(&table, aim->range.most);
        bench_table_text(&table, is_met ? "yes" : "no");
    }
    if (aim_count > 0)
        bench_table_print(bench, &table);
}
