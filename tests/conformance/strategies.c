#include "conformance/strategies.h"

#include <stdio.h>

#include "base/limits.h"
#include "lib/cluster.h"
#include "lib/folder.h"
#include "lib/runner.h"
#ifdef HF_MONGO_MODULE
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/mongo.h"

#define MONGO_CASES 6
#endif
#ifdef HF_REDIS
#include <unistd.h>

#include "lib/redis.h"
#endif

static void memory_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "memory:%s", unique);
}

/* Each case has a directory in a temporary directory of the suite. */
static char folder[] = HF_TEST_FOLDER;

static bool file_start(void)
{
    return hf_test_folder_make(folder);
}

static bool file_stop(void)
{
    (void)hf_test_folder_remove(folder);
    return true;
}

static void file_url(char url[URL_SIZE], const char *unique)
{
    (void)snprintf(url, URL_SIZE, "file:%s/%s", folder, unique);
}

/* All cases share a cluster: a case uses only keys that begin with its name. */
struct shared_cluster {
    struct hf_test_cluster cluster;
    char folder[sizeof(HF_TEST_FOLDER)];
};

static struct shared_cluster one = {.folder = HF_TEST_FOLDER},
                             three = {.folder = HF_TEST_FOLDER},
                             five = {.folder = HF_TEST_FOLDER},
                             three_masters = {.folder = HF_TEST_FOLDER},
                             five_masters = {.folder = HF_TEST_FOLDER};

static bool start_cluster(struct shared_cluster *shared, unsigned count)
{
    return !hf_test_cluster_found() ||
           (hf_test_folder_make(shared->folder) &&
            hf_test_cluster_start(&shared->cluster, shared->folder, count));
}

static bool stop_cluster(struct shared_cluster *shared)
{
    bool sound = hf_test_cluster_stop(&shared->cluster);

    (void)hf_test_folder_remove(shared->folder);
    return sound;
}

static void cluster_url(const struct shared_cluster *shared, char url[URL_SIZE],
                        const char *options)
{
    if (shared->cluster.count == 0)
        hf_test_skip(HF_TEST_CLUSTER_NONE);
    hf_test_cluster_url(&shared->cluster, url, URL_SIZE, options);
}

static bool raft_start(void)
{
    return start_cluster(&three, 3);
}

static bool raft_stop(void)
{
    return stop_cluster(&three);
}

static void raft_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    cluster_url(&three, url, "");
}

static bool raft1_start(void)
{
    return start_cluster(&one, 1);
}

static bool raft1_stop(void)
{
    return stop_cluster(&one);
}

static void raft1_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    cluster_url(&one, url, "");
}

static bool raft5_start(void)
{
    return start_cluster(&five, 5);
}

static bool raft5_stop(void)
{
    return stop_cluster(&five);
}

/* With route=any, a client stays with the node that it connected to, which is a
 * follower most of the time. */
static void raft5_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    cluster_url(&five, url, "?route=any");
}

static bool start_masters(struct shared_cluster *shared, unsigned count)
{
    return !hf_test_cluster_found() ||
           (hf_test_folder_make(shared->folder) &&
            hf_test_cluster_start_masters(&shared->cluster, shared->folder,
                                          count, HF_LEASE_MAX_MS));
}

static bool quorum_start(void)
{
    return start_masters(&three_masters, 3);
}

static bool quorum_stop(void)
{
    return stop_cluster(&three_masters);
}

static void quorum_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    cluster_url(&three_masters, url, "");
}

static bool quorum5_start(void)
{
    return start_masters(&five_masters, 5);
}

static bool quorum5_stop(void)
{
    return stop_cluster(&five_masters);
}

static void quorum5_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    cluster_url(&five_masters, url, "");
}

static void quorum_unreachable_url(char url[URL_SIZE])
{
    (void)snprintf(url, URL_SIZE, "quorum://127.0.0.1:1,127.0.0.1:2");
}

static void raft_unreachable_url(char url[URL_SIZE])
{
    (void)snprintf(url, URL_SIZE, "raft://127.0.0.1:1,127.0.0.1:2");
}

#ifdef HF_MONGO_MODULE
/* A replica set with one server, shared by all cases. Each case uses a
 * collection of its own. */
static struct hf_test_mongo mongo;

static bool mongo_start(void)
{
    return !hf_test_mongo_is_installed() || hf_test_mongo_start(&mongo, 1);
}

static bool mongo_stop(void)
{
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
    return true;
}

static bool mongo_take_turn(unsigned number)
{
    char path[sizeof(mongo.folder) + 16];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/turn-%u", mongo.folder, number);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return false;
    }
    return true; /* the flock ends with the case's process */
}

/* At most MONGO_CASES cases use the server at the same time: with more, leases
 * would expire while requests wait for the server. */
static void mongo_take_turns(void)
{
    for (unsigned i = 0; !mongo_take_turn(i % MONGO_CASES); i++)
        if (i % MONGO_CASES == MONGO_CASES - 1)
            (void)poll(NULL, 0, 10);
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

#ifdef HF_REDIS
/* One server. The pid of a case selects its database. */
static struct hf_test_redis redis;

static bool redis_start(void)
{
    return hf_test_redis_start(&redis, NULL);
}

static bool redis_stop(void)
{
    hf_test_redis_stop(&redis);
    return true;
}

static void redis_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    (void)snprintf(url, URL_SIZE, "redis://127.0.0.1:%d/%ld", redis.port,
                   (long)getpid() % 16384);
}

/* Three independent servers. As for redis:, the pid of a case selects its
 * database. */
static struct hf_test_redis masters[3];

static bool redlock_start(void)
{
    return hf_test_redis_start(&masters[0], NULL) &&
           hf_test_redis_start(&masters[1], NULL) &&
           hf_test_redis_start(&masters[2], NULL);
}

static bool redlock_stop(void)
{
    for (size_t i = 0; i < 3; i++)
        hf_test_redis_stop(&masters[i]);
    return true;
}

static void redlock_url(char url[URL_SIZE], const char *unique)
{
    (void)unique;
    (void)snprintf(url, URL_SIZE,
                   "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/%ld",
                   masters[0].port, masters[1].port, masters[2].port,
                   (long)getpid() % 16384);
}

/* Only one of the three servers exists, so there is no majority. */
static void redlock_unreachable_url(char url[URL_SIZE])
{
    (void)snprintf(url, URL_SIZE,
                   "redlock://127.0.0.1:%d,127.0.0.1:1,127.0.0.1:2",
                   masters[0].port);
}

static void redis_unreachable_url(char url[URL_SIZE])
{
    (void)snprintf(url, URL_SIZE, "redis+unix://%s.gone", redis.socket);
}
#endif

const struct strategy strategies[] = {
    {"memory", memory_url, NULL, NULL, NULL, 1},
    {"file", file_url, NULL, file_start, file_stop, 1},
    {"raft", raft_url, raft_unreachable_url, raft_start, raft_stop, 200},
    {"raft1", raft1_url, raft_unreachable_url, raft1_start, raft1_stop, 200},
    {"raft5", raft5_url, raft_unreachable_url, raft5_start, raft5_stop, 400},
    {"quorum", quorum_url, quorum_unreachable_url, quorum_start, quorum_stop,
     200},
    {"quorum5", quorum5_url, quorum_unreachable_url, quorum5_start,
     quorum5_stop, 400},
#ifdef HF_REDIS
    {"redis", redis_url, redis_unreachable_url, redis_start, redis_stop, 4},
    {"redlock", redlock_url, redlock_unreachable_url, redlock_start,
     redlock_stop, 20},
#endif
#ifdef HF_MONGO_MODULE
    {"mongo", mongo_url, mongo_unreachable_url, mongo_start, mongo_stop, 400},
#endif
};

const size_t strategy_count = sizeof(strategies) / sizeof(strategies[0]);
