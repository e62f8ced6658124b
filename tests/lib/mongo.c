#include "lib/mongo.h"

#include <fcntl.h>
#include <glob.h>
#include <mongoc/mongoc.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"

#define TRIES 600 /* attempts, up to 100 ms apart, before a wait fails */
#define STARTS                                                                 \
    4 /* attempts to start a set: a port may be taken, an election may fail */
#define PATH_SIZE 4096
#define CACHED "holdfast/mongod-6.0.5"
#define FAKETIMES "/usr/lib/*/faketime/libfaketimeMT.so.1"

/* ---- The program --------------------------------------------------------*/

static bool is_executable(const char *path)
{
    return *path && access(path, X_OK) == 0;
}

static bool find_on_path(char path[PATH_SIZE])
{
    const char *at = getenv("PATH");

    while (at && *at) {
        size_t size = strcspn(at, ":");

        (void)snprintf(path, PATH_SIZE, "%.*s/mongod", (int)size, at);
        if (is_executable(path))
            return true;
        at += size + (at[size] == ':');
    }
    return false;
}

static bool find_program(char path[PATH_SIZE])
{
    const char *given = getenv("MONGOD"), *cache = getenv("XDG_CACHE_HOME");

    (void)snprintf(path, PATH_SIZE, "%s", given ? given : "");
    if (is_executable(path) || find_on_path(path))
        return true;
    if (cache && *cache == '/')
        (void)snprintf(path, PATH_SIZE, "%s/" CACHED, cache);
    else
        (void)snprintf(path, PATH_SIZE, "%s/.cache/" CACHED,
                       getenv("HOME") ? getenv("HOME") : "");
    return is_executable(path);
}

bool hf_test_mongo_is_installed(void)
{
    char path[PATH_SIZE];

    return find_program(path);
}

/* ---- One server ---------------------------------------------------------*/

static bool find_faketime(char path[PATH_SIZE])
{
    glob_t found;
    bool is_there = glob(FAKETIMES, 0, NULL, &found) == 0;

    if (is_there)
        (void)snprintf(path, PATH_SIZE, "%s", found.gl_pathv[0]);
    globfree(&found);
    return is_there;
}

bool hf_test_mongo_has_clocks(void)
{
    char path[PATH_SIZE];

    return find_faketime(path);
}

/* Change the server's time of day, but not its monotonic clock, so that
 * timeouts work. Without FAKETIME_FORCE_MONOTONIC_FIX=0, waits on the monotonic
 * clock would end at once, and the server's threads would spin. */
static void set_clock(const char *offset)
{
    char path[PATH_SIZE];

    if (!*offset || !find_faketime(path))
        return;
    (void)setenv("LD_PRELOAD", path, 1);
    (void)setenv("FAKETIME", offset, 1);
    (void)setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    (void)setenv("FAKETIME_DONT_RESET", "1", 1);
    (void)setenv("FAKETIME_FORCE_MONOTONIC_FIX", "0", 1);
}

/* Each set has a different name, so that a client never mistakes a new server
 * for a dead one that had the same port. */
static const char *set_name(const struct hf_test_mongo *mongo)
{
    return mongo->folder + strlen(mongo->folder) - 6; /* the XXXXXX */
}

static _Noreturn void exec_server(const struct hf_test_mongo *mongo,
                                  const struct hf_test_mongod *member,
                                  const char *program)
{
    char port[16], log[128], key[128], cert[128], pem[128];
    const char *arguments[40] = {
        program,
        "--port",
        port,
        "--bind_ip",
        "127.0.0.1",
        "--nounixsocket",
        "--dbpath",
        member->folder,
        "--logpath",
        log,
        "--wiredTigerCacheSizeGB",
        "0.25",
        "--setParameter",
        "ttlMonitorSleepSecs=1",
        "--setParameter",
        "diagnosticDataCollectionEnabled=false",
        "--setParameter",
        "enableTestCommands=1",
        "--oplogSize",
        "64",
        "--slowms",
        "10000",
    };
    int count = 0, null_fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(port, sizeof(port), "%d", member->port);
    (void)snprintf(log, sizeof(log), "%s/log", member->folder);
    (void)snprintf(key, sizeof(key), "%s/key", mongo->folder);
    while (arguments[count])
        count++;
    if (!mongo->standalone) {
        arguments[count++] = "--replSet";
        arguments[count++] = set_name(mongo);
    }
    if (mongo->short_timeouts) {
        arguments[count++] = "--setParameter";
        arguments[count++] = "oplogNetworkTimeoutBufferSeconds=1";
    }
    if (mongo->auth) {
        arguments[count++] = "--keyFile";
        arguments[count++] = key;
    }
    if (mongo->tls) {
        (void)snprintf(cert, sizeof(cert), "%s/cert", mongo->folder);
        (void)snprintf(pem, sizeof(pem), "%s/pem", mongo->folder);
        arguments[count++] = "--tlsMode";
        arguments[count++] = "preferTLS";
        arguments[count++] = "--tlsCertificateKeyFile";
        arguments[count++] = pem;
        arguments[count++] = "--tlsCAFile";
        arguments[count++] = cert;
        arguments[count++] = "--tlsAllowConnectionsWithoutCertificates";
    }
    null_fd = open("/dev/null", O_RDWR);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(null_fd, STDOUT_FILENO);
    set_clock(member->clock);
    (void)execv(program, (char *const *)arguments);
    _exit(127);
}

bool hf_test_mongo_restart(struct hf_test_mongo *mongo, unsigned member)
{
    struct hf_test_mongod *server = &mongo->members[member];
    char program[PATH_SIZE];

    if (!find_program(program))
        return false;
    server->pid = fork();
    if (server->pid == 0)
        exec_server(mongo, server, program);
    if (mongo->network)
        hf_test_network_set(mongo->network, member, server->port, server->pid);
    return server->pid > 0;
}

/* A killed server leaves the shared memory of libfaketime behind, so remove
 * it. */
static void clean_up_clock(pid_t pid)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "/faketime_shm_%d", (int)pid);
    (void)shm_unlink(name);
    (void)snprintf(name, sizeof(name), "/faketime_sem_%d", (int)pid);
    (void)sem_unlink(name);
}

void hf_test_mongo_kill(struct hf_test_mongo *mongo, unsigned member)
{
    struct hf_test_mongod *server = &mongo->members[member];

    if (server->pid <= 0)
        return;
    (void)kill(server->pid, SIGKILL);
    (void)waitpid(server->pid, NULL, 0);
    if (*server->clock)
        clean_up_clock(server->pid);
    server->pid = 0;
}

void hf_test_mongo_signal(struct hf_test_mongo *mongo, unsigned member,
                          int number)
{
    pid_t pid = mongo->members[member].pid;

    if (pid <= 0)
        return;
    (void)kill(pid, number);
    if (number == SIGSTOP) /* a thread may run for a moment after kill() */
        (void)waitpid(pid, NULL, WUNTRACED);
}

/* ---- Commands -----------------------------------------------------------*/

static void log_nothing(mongoc_log_level_t level, const char *domain,
                        const char *message, void *arg)
{
    (void)level;
    (void)domain;
    (void)message;
    (void)arg;
}

static mongoc_client_t *connect_to(const struct hf_test_mongo *mongo,
                                   const struct hf_test_mongod *member)
{
    char url[256];

    mongoc_init();
    mongoc_log_set_handler(log_nothing, NULL);
    (void)snprintf(url, sizeof(url),
                   "mongodb://%s127.0.0.1:%d/?directConnection=true"
                   "&serverSelectionTimeoutMS=10000&connectTimeoutMS=3000"
                   "&socketTimeoutMS=120000&retryWrites=false&authSource=admin",
                   mongo->auth && mongo->has_user ? "keeper:secret@" : "",
                   member->port);
    return mongoc_client_new(url);
}

const char *hf_test_mongo_command(struct hf_test_mongo *mongo, unsigned member,
                                  const char *database, const char *json)
{
    static char *text;
    mongoc_client_t *client = connect_to(mongo, &mongo->members[member]);
    bson_error_t error;
    bson_t *command = bson_new_from_json((const uint8_t *)json, -1, &error);
    bson_t reply;

    bson_free(text);
    text = NULL;
    if (command && mongoc_client_command_simple(client, database, command, NULL,
                                                &reply, &error)) {
        text = bson_as_relaxed_extended_json(&reply, NULL);
        bson_destroy(&reply);
    } else {
        text = bson_strdup_printf("(lost) %s", error.message);
        if (command)
            bson_destroy(&reply);
    }
    bson_destroy(command);
    mongoc_client_destroy(client);
    return text;
}

static bool is_lost(const char *reply)
{
    return strncmp(reply, "(lost)", 6) == 0;
}

/* ---- A replica set ------------------------------------------------------*/

/* The port that the other members and the clients use. */
static int front_port(const struct hf_test_mongo *mongo, unsigned member)
{
    return mongo->network ? mongo->network->fronts[member]
                          : mongo->members[member].port;
}

static bool is_primary(struct hf_test_mongo *mongo, unsigned member)
{
    return mongo->members[member].pid > 0 &&
           strstr(
               hf_test_mongo_command(mongo, member, "admin", "{\"hello\":1}"),
               "\"isWritablePrimary\" : true");
}

int hf_test_mongo_primary(struct hf_test_mongo *mongo)
{
    for (int i = 0; i < TRIES; i++) {
        for (unsigned member = 0; member < mongo->count; member++)
            if (is_primary(mongo, member))
                return (int)member;
        (void)poll(NULL, 0, 100);
    }
    return -1;
}

/* Make another member stand for election. The candidate wins unless it lags
 * behind the primary, for example after a restart. In that case try the next
 * member. */
int hf_test_mongo_step_down(struct hf_test_mongo *mongo)
{
    int old = hf_test_mongo_primary(mongo), next = old;

    for (int i = 0; i < TRIES && next == old && old >= 0; i++) {
        unsigned candidate = ((unsigned)old + 1 + (unsigned)i) % mongo->count;

        if (candidate == (unsigned)old)
            continue;
        (void)hf_test_mongo_command(mongo, candidate, "admin",
                                    "{\"replSetStepUp\":1}");
        next = hf_test_mongo_primary(mongo);
    }
    return next;
}

/* Wait until a member answers. Returns false if it exits, or does not
 * answer. */
static bool await_answer(struct hf_test_mongo *mongo, unsigned member)
{
    for (int i = 0; i < TRIES; i++) {
        if (waitpid(mongo->members[member].pid, NULL, WNOHANG) != 0) {
            mongo->members[member].pid = 0;
            return false;
        }
        if (!is_lost(
                hf_test_mongo_command(mongo, member, "admin", "{\"ping\":1}")))
            return true;
        (void)poll(NULL, 0, 20);
    }
    return false;
}

static bool start_member(struct hf_test_mongo *mongo, unsigned number)
{
    struct hf_test_mongod *member = &mongo->members[number];

    (void)snprintf(member->folder, sizeof(member->folder), "%s/%u",
                   mongo->folder, number);
    (void)mkdir(member->folder, 0700);
    member->port = hf_test_free_port();
    return hf_test_mongo_restart(mongo, number);
}

/* Disable chaining. A new member may find that the secondary from which it
 * wants to sync has a shorter oplog than itself. It would then not sync from
 * that secondary for a minute, even if that became the primary. */
static bool initiate_set(struct hf_test_mongo *mongo)
{
    const char *reply;
    char json[1024];
    int used = snprintf(json, sizeof(json),
                        "{\"replSetInitiate\":{\"_id\":\"%s\",\"settings\":"
                        "{\"electionTimeoutMillis\":%u,"
                        "\"heartbeatTimeoutSecs\":%d,"
                        "\"chainingAllowed\":false,"
                        "\"heartbeatIntervalMillis\":300},\"members\":[",
                        set_name(mongo),
                        mongo->election_ms ? mongo->election_ms : 1000,
                        mongo->short_timeouts ? 2 : 10);

    for (unsigned i = 0; i < mongo->count; i++)
        used += snprintf(json + used, sizeof(json) - (size_t)used,
                         "%s{\"_id\":%u,\"host\":\"127.0.0.1:%d\"}",
                         i > 0 ? "," : "", i, front_port(mongo, i));
    (void)snprintf(json + used, sizeof(json) - (size_t)used, "]}}");
    reply = hf_test_mongo_command(mongo, 0, "admin", json);
    if (is_lost(reply)) /* the runner shows the reply if the case fails */
        (void)fprintf(stderr, "mongod: initiate: %s\n", reply);
    return !is_lost(reply);
}

/* Returns true if all members are primary or secondary, so that a majority can
 * acknowledge writes. */
static bool is_complete(struct hf_test_mongo *mongo)
{
    for (unsigned member = 0; member < mongo->count; member++) {
        const char *hello =
            hf_test_mongo_command(mongo, member, "admin", "{\"hello\":1}");

        if (!strstr(hello, "\"isWritablePrimary\" : true") &&
            !strstr(hello, "\"secondary\" : true"))
            return false;
    }
    return true;
}

/* Make the first member stand for election, instead of waiting for the election
 * timeout. Retry, because it cannot win before it has contacted the other
 * members. */
static bool elect_first_member(struct hf_test_mongo *mongo)
{
    for (int i = 0; i < TRIES; i++) {
        if (is_primary(mongo, 0) && is_complete(mongo))
            return true;
        if (!is_primary(mongo, 0))
            (void)hf_test_mongo_command(mongo, 0, "admin",
                                        "{\"replSetStepUp\":1}");
        (void)poll(NULL, 0, 50);
    }
    return false;
}

/* A connection from localhost may create the first user without a login. */
static bool add_user(struct hf_test_mongo *mongo, int primary)
{
    const char *json = "{\"createUser\":\"keeper\",\"pwd\":\"secret\","
                       "\"roles\":[\"root\"]}";

    if (!mongo->auth)
        return true;
    mongo->has_user = !is_lost(
        hf_test_mongo_command(mongo, (unsigned)primary, "admin", json));
    return mongo->has_user;
}

/* Write the key file by which the members of a set authenticate to each
 * other. */
static bool write_key(const struct hf_test_mongo *mongo)
{
    char path[128];
    int fd;
    bool written;

    (void)snprintf(path, sizeof(path), "%s/key", mongo->folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    written = fd >= 0 && write(fd, "holdfasttest", 12) == 12;
    if (fd >= 0)
        (void)close(fd);
    return written;
}

/* Create a self-signed certificate for 127.0.0.1. */
static bool create_certificate(const struct hf_test_mongo *mongo)
{
    char command[600];

    if (!mongo->tls)
        return true;
    (void)snprintf(command, sizeof(command),
                   "cd %s && openssl req -x509 -newkey rsa:2048 -nodes -days 2 "
                   "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 "
                   "-keyout tls-key -out cert 2>/dev/null && "
                   "cat tls-key cert >pem",
                   mongo->folder);
    return system(command) == 0;
}

static bool start_all(struct hf_test_mongo *mongo)
{
    for (unsigned i = 0; i < mongo->count; i++)
        if (!start_member(mongo, i))
            return false;
    for (unsigned i = 0; i < mongo->count; i++)
        if (!await_answer(mongo, i))
            return false;
    if (mongo->standalone)
        return true;
    return initiate_set(mongo) && elect_first_member(mongo) &&
           add_user(mongo, hf_test_mongo_primary(mongo));
}

static bool start_set(struct hf_test_mongo *mongo)
{
    mongo->has_user = false;
    memcpy(mongo->folder, HF_TEST_FOLDER, sizeof(mongo->folder));
    if (!hf_test_folder_make(mongo->folder))
        return false;
    if (write_key(mongo) && create_certificate(mongo) && start_all(mongo))
        return true;
    hf_test_mongo_stop(mongo);
    return false;
}

bool hf_test_mongo_start(struct hf_test_mongo *mongo, unsigned count)
{
    mongo->count = count;
    for (int i = 0; i < STARTS; i++) {
        if (start_set(mongo))
            return true;
        (void)fprintf(stderr, "mongod: a set of %u did not start\n", count);
    }
    return false;
}

void hf_test_mongo_stop(struct hf_test_mongo *mongo)
{
    for (unsigned i = 0; i < mongo->count; i++)
        hf_test_mongo_kill(mongo, i);
    (void)hf_test_folder_remove(mongo->folder);
}

void hf_test_mongo_url(const struct hf_test_mongo *mongo, char *url,
                       const char *options)
{
    size_t used = (size_t)snprintf(url, HF_TEST_MONGO_URL_SIZE, "mongodb://%s",
                                   mongo->auth ? "keeper:secret@" : "");

    for (unsigned i = 0; i < mongo->count; i++)
        used += (size_t)snprintf(url + used, HF_TEST_MONGO_URL_SIZE - used,
                                 "%s127.0.0.1:%d", i > 0 ? "," : "",
                                 front_port(mongo, i));
    (void)snprintf(url + used, HF_TEST_MONGO_URL_SIZE - used,
                   "/holdfast?%s%s%s%s",
                   mongo->standalone ? "unsafe=1" : "replicaSet=",
                   mongo->standalone ? "" : set_name(mongo),
                   mongo->auth ? "&authSource=admin" : "", options);
}
