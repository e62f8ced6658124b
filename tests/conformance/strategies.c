#include "conformance/strategies.h"

#include <stdio.h>

static void memory_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "memory:%s", unique);
}

const struct strategy strategies[] = {
    {"memory", memory_url, NULL, NULL, NULL},
};

const size_t strategy_count = sizeof(strategies) / sizeof(strategies[0]);
