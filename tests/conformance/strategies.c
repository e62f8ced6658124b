#include "conformance/strategies.h"

#include <stdio.h>

#include "lib/folder.h"

static void memory_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "memory:%s", unique);
}

/* A directory for each case, in one that goes with the suite. */
static char folder[] = HF_TEST_FOLDER;

static bool file_start(void)
{
    return hf_test_folder_make(folder);
}

static void file_stop(void)
{
    (void)hf_test_folder_remove(folder);
}

static void file_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "file:%s/%s", folder, unique);
}

const struct strategy strategies[] = {
    {"memory", memory_url, NULL, NULL, NULL, 1},
    {"file", file_url, NULL, file_start, file_stop, 1},
};

const size_t strategy_count = sizeof(strategies) / sizeof(strategies[0]);
