#include "bounds.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    BOUND_MAX = 9,
};

struct hf_bounds hf_bounds;

/* Each bound is one number, or a list of one for each client, or a flag. */
enum kind {
    KIND_NUMBER,
    KIND_LIST,
    KIND_FLAG,
};

static const struct bound {
    const char *name;
    enum kind kind;
    size_t offset;
    uint8_t value; /* the default */
} list[] = {
    {"claims", KIND_NUMBER, offsetof(struct hf_bounds, claims), 2},
    {"updaters", KIND_NUMBER, offsetof(struct hf_bounds, updaters), 0},
    {"ballots", KIND_LIST, offsetof(struct hf_bounds, ballots), 1},
    {"renewals", KIND_LIST, offsetof(struct hf_bounds, renewals), 0},
    {"ends", KIND_LIST, offsetof(struct hf_bounds, ends), 1},
    {"first-numbers", KIND_LIST, offsetof(struct hf_bounds, first_numbers), 1},
    {"restarts", KIND_NUMBER, offsetof(struct hf_bounds, restarts), 0},
    {"drops", KIND_NUMBER, offsetof(struct hf_bounds, drops), 0},
    {"reads", KIND_NUMBER, offsetof(struct hf_bounds, reads), 0},
    {"no-fast", KIND_FLAG, offsetof(struct hf_bounds, no_fast), 0},
    {"slow", KIND_FLAG, offsetof(struct hf_bounds, slow), 0},
    {"no-time", KIND_FLAG, offsetof(struct hf_bounds, no_time), 0},
    {"outcome", KIND_FLAG, offsetof(struct hf_bounds, outcome), 0},
};

#define BOUND_COUNT (sizeof list / sizeof list[0])

static unsigned value_count(const struct bound *bound)
{
    return bound->kind == KIND_LIST ? CLIENTS_MAX : 1;
}

static const uint8_t *bound_values(const struct hf_bounds *bounds,
                                   const struct bound *bound)
{
    return (const uint8_t *)bounds + bound->offset;
}

struct hf_bounds hf_bounds_default(void)
{
    struct hf_bounds bounds;

    memset(&bounds, 0, sizeof bounds);
    for (unsigned i = 0; i < BOUND_COUNT; i++)
        memset((uint8_t *)&bounds + list[i].offset, list[i].value,
               value_count(&list[i]));
    return bounds;
}

/* Read "1,2" into `values`; the last number is also that of all others. */
static bool read_values(const char *text, uint8_t *values, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char *end;
        unsigned long value = strtoul(text, &end, 10);

        if (end == text || value > BOUND_MAX)
            return false;
        values[i] = (uint8_t)value;
        if (*end == ',' && i + 1 < count)
            text = end + 1;
        else if (*end != '\0')
            return false;
    }
    return true;
}

bool hf_bounds_set(struct hf_bounds *bounds, const char *name, const char *text)
{
    for (unsigned i = 0; i < BOUND_COUNT; i++) {
        uint8_t *values = (uint8_t *)bounds + list[i].offset;

        if (strcmp(list[i].name, name) != 0)
            continue;
        return read_values(text ? text : "1", values, value_count(&list[i]));
    }
    return false;
}

bool hf_bounds_fit(const struct hf_bounds *bounds)
{
    return bounds->claims >= 1 &&
           bounds->claims + bounds->updaters <= CLIENTS_MAX;
}

/* How many of the values to print: the last one stands for the rest. */
static unsigned printed_count(const uint8_t *values, unsigned count)
{
    while (count > 1 && values[count - 1] == values[count - 2])
        count--;
    return count;
}

void hf_bounds_print(const struct hf_bounds *bounds, FILE *out)
{
    const char *space = "";

    for (unsigned i = 0; i < BOUND_COUNT; i++) {
        const uint8_t *values = bound_values(bounds, &list[i]);
        unsigned count = printed_count(values, value_count(&list[i]));

        /* How many claims there are is always worth reading. */
        if (i > 0 && count == 1 && values[0] == list[i].value)
            continue;
        fprintf(out, "%s--%s", space, list[i].name);
        space = " ";
        for (unsigned j = 0; j < count && list[i].kind != KIND_FLAG; j++)
            fprintf(out, "%c%d", j == 0 ? ' ' : ',', values[j]);
    }
}
