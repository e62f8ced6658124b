#include "conformance/strategies.h"

#include <stdio.h>

#include "lib/folder.h"
#ifdef HF_MONGO
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/mongo.h"
#include "lib/runner.h"

#define MONGO_CASES 4
#endif

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

#ifdef HF_MONGO
/* A replica set of one, and a collection for each case. */
static struct hf_test_mongo mongo;

static bool mongo_start(void)
{
    return !hf_test_mongo_found() || hf_test_mongo_start(&mongo, 1);
}

static void mongo_stop(void)
{
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
}

/* More cases at a time would measure how long they wait for the server. The
 * lock goes with the process. */
static void mongo_take_turns(void)
{
    char path[sizeof(mongo.folder) + 16];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/turn-%d", mongo.folder,
                   (int)getpid() % MONGO_CASES);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0)
        continue;
}

static void mongo_url(char url[URL_SIZE], const char *unique)
{
    char options[URL_SIZE];

    if (mongo.count == 0)
        hf_test_skip(HF_TEST_MONGO_NONE);
    mongo_take_turns();
    (void)snprintf(options, sizeof(options), "&collection=%.100s", unique);
    hf_test_mongo_url(&mongo, url, options);
}

static void mongo_unreachable_url(char url[URL_SIZE])
{
    (void)snprintf(url, URL_SIZE, "mongodb://127.0.0.1:1/");
}
#endif

const struct strategy strategies[] = {
    {"memory", memory_url, NULL, NULL, NULL, 1},
    {"file", file_url, NULL, file_start, file_stop, 1},
#ifdef HF_MONGO
    {"mongo", mongo_url, mongo_unreachable_url, mongo_start, mongo_stop, 400},
#endif
};

const size_t strategy_count = sizeof(strategies) / sizeof(strategies[0]);
