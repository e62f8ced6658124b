#include "conformance/strategies.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static void memory_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "memory:%s", unique);
}

/* A directory for each case, in one that goes with the suite. */
static char folder[] = "/tmp/holdfast-file-XXXXXX";

static bool file_start(void)
{
    return mkdtemp(folder) != NULL;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void file_stop(void)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void file_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "file:%s/%s", folder, unique);
}

const struct strategy strategies[] = {
    {"memory", memory_url, NULL, NULL, NULL},
    {"file", file_url, NULL, file_start, file_stop},
};

const size_t strategy_count = sizeof(strategies) / sizeof(strategies[0]);
