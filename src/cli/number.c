#include "number.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define FRACTION_DIGITS_MAX 9

static const struct {
    const char *name;
    uint64_t ms;
} units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000u}, {"h", 3600000u},
};

static const char not_a_duration[] =
    "is not a duration such as 250ms, 15s, 2m or 1.5";

/* The number of digits at the start of `text`. */
static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Convert `size` digits. Returns false if the number overflows. */
static bool read_digits(const char *text, size_t size, uint64_t *number)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < size; i++) {
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(text[i] - '0'), &sum))
            return false;
    }
    *number = sum;
    return true;
}

const char *number_parse(const char *text, uint64_t max, uint64_t *number)
{
    size_t size = count_digits(text);
    uint64_t read;

    if (size == 0 || text[size] != '\0')
        return "is not a number";
    if (!read_digits(text, size, &read) || read > max)
        return "is too large";
    *number = read;
    return NULL;
}

/* The length of the unit `name` in milliseconds, or 0 if there is no such
 * unit. */
static uint64_t find_unit(const char *name)
{
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (!strcmp(units[i].name, name))
            return units[i].ms;
    }
    return 0;
}

/* Convert the `size` digits after the point to milliseconds; `unit` is the unit
 * in milliseconds. Returns false if the result is not a whole number of
 * milliseconds. */
static bool read_fraction(const char *digits, size_t size, uint64_t unit,
                          uint64_t *ms)
{
    uint64_t scale = 1, number;

    while (size > 0 && digits[size - 1] == '0')
        size--;
    if (size > FRACTION_DIGITS_MAX || !read_digits(digits, size, &number))
        return false;
    for (size_t i = 0; i < size; i++)
        scale *= 10;
    *ms = number * unit / scale;
    return number * unit % scale == 0;
}

const char *number_parse_duration(const char *text, uint64_t max_ms,
                                  uint64_t *ms)
{
    size_t whole_size = count_digits(text), fraction_size = 0;
    const char *rest = text + whole_size;
    const char *fraction = rest;
    uint64_t whole, part, unit;

    if (*rest == '.') {
        fraction = rest + 1;
        fraction_size = count_digits(fraction);
        rest = fraction + fraction_size;
    }
    unit = find_unit(rest);
    if (whole_size == 0 || unit == 0 || (fraction == rest && rest[-1] == '.'))
        return not_a_duration;
    if (!read_fraction(fraction, fraction_size, unit, &part))
        return "is finer than a millisecond";
    if (!read_digits(text, whole_size, &whole) ||
        __builtin_mul_overflow(whole, unit, &whole) ||
        __builtin_add_overflow(whole, part, &whole) || whole > max_ms)
        return "is too long";
    *ms = whole;
    return NULL;
}
