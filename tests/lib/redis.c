#include "lib/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"

#define START_TRIES 3
#define ANSWER_TRIES 6000 /* attempts, 10 ms apart */
#define ARGUMENTS_MAX 40
#define CACHED "holdfast/redis-server-6.2.14" /* as in scripts/deps */
#define PATH_SIZE 512

/* Defined by the runner. It is weak, because benchmarks are linked without the
 * runner. */
_Noreturn void hf_test_skip(const char *why) __attribute__((weak));

/* The Redis 6.2 that scripts/deps has cached, if HF_TEST_REDIS asks for it;
 * otherwise the installed version. */
static const char *find_server(void)
{
    static char path[PATH_SIZE];
    const char *version = getenv("HF_TEST_REDIS");
    const char *cache = getenv("XDG_CACHE_HOME");

    if (!version)
        return "redis-server";
    if (cache && *cache == '/')
        (void)snprintf(path, sizeof(path), "%s/" CACHED, cache);
    else
        (void)snprintf(path, sizeof(path), "%s/.cache/" CACHED,
                       getenv("HOME") ? getenv("HOME") : "");
    if (hf_test_skip &&
        (strcmp(version, "6.2") != 0 || access(path, X_OK) != 0))
        hf_test_skip("no Redis 6.2: scripts/deps test fetches it");
    return path;
}

/* Versions before 7.0, which HF_TEST_REDIS selects, always allow DEBUG and do
 * not know this option. */
static void allow_debug(const char *arguments[], int *count)
{
    if (getenv("HF_TEST_REDIS"))
        return;
    arguments[(*count)++] = "--enable-debug-command";
    arguments[(*count)++] = "local";
}

static _Noreturn void exec_server(struct hf_test_redis *redis,
                                  const char *program)
{
    char port[16];
    const char *arguments[ARGUMENTS_MAX] = {
        "redis-server", "--port",    port,
        "--bind",       "127.0.0.1", "--unixsocket",
        redis->socket,  "--dir",     redis->folder,
        "--save",       "",          "--databases",
        "16384",        "--logfile", "log",
    };
    int count = 0, null_fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(port, sizeof(port), "%d", redis->port);
    while (arguments[count])
        count++;
    allow_debug(arguments, &count);
    for (int i = 0; i < HF_TEST_REDIS_OPTIONS && redis->options[i][0]; i++)
        arguments[count++] = redis->options[i];
    null_fd = open("/dev/null", O_RDWR);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(null_fd, STDOUT_FILENO);
    (void)execvp(program, (char *const *)arguments);
    _exit(127);
}

/* Wait until the server replies to PING; any error except LOADING counts as a
 * reply. Returns false if the server exits or does not reply. */
static bool await_answer(struct hf_test_redis *redis)
{
    for (int i = 0; i < ANSWER_TRIES; i++) {
        const char *text;

        if (waitpid(redis->pid, NULL, WNOHANG) == redis->pid) {
            redis->pid = 0;
            return false;
        }
        text = hf_test_redis_command(redis, "PING");
        if (*text && strncmp(text, "(lost)", 6) != 0 &&
            strncmp(text, "(error) LOADING", 15) != 0)
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

bool hf_test_redis_restart(struct hf_test_redis *redis, bool wait)
{
    const char *program = find_server();

    redis->pid = fork();
    if (redis->pid == 0)
        exec_server(redis, program);
    return redis->pid > 0 && (!wait || await_answer(redis));
}

bool hf_test_redis_start(struct hf_test_redis *redis,
                         const char *const *options)
{
    *redis = (struct hf_test_redis){.folder = HF_TEST_FOLDER};
    for (int i = 0; options && options[i]; i++)
        (void)snprintf(redis->options[i], sizeof(redis->options[i]), "%s",
                       options[i]);
    if (!hf_test_folder_make(redis->folder))
        return false;
    (void)snprintf(redis->socket, sizeof(redis->socket), "%s/socket",
                   redis->folder);
    for (int i = 0; i < START_TRIES; i++) {
        redis->port = hf_test_free_port();
        if (hf_test_redis_restart(redis, true))
            return true;
    }
    hf_test_redis_stop(redis);
    return false;
}

void hf_test_redis_kill(struct hf_test_redis *redis)
{
    if (redis->pid <= 0)
        return;
    (void)kill(redis->pid, SIGKILL);
    (void)waitpid(redis->pid, NULL, 0);
    redis->pid = 0;
}

void hf_test_redis_stop(struct hf_test_redis *redis)
{
    hf_test_redis_kill(redis);
    (void)hf_test_folder_remove(redis->folder);
}

/* ---- Commands -----------------------------------------------------------*/

static size_t write_reply(char *to, size_t size, const redisReply *reply)
{
    size_t used = 0;

    switch (reply->type) {
    case REDIS_REPLY_INTEGER:
        return (size_t)snprintf(to, size, "%lld", reply->integer);
    case REDIS_REPLY_ERROR:
        return (size_t)snprintf(to, size, "(error) %s", reply->str);
    case REDIS_REPLY_ARRAY:
        for (size_t i = 0; i < reply->elements && used + 2 < size; i++) {
            used += write_reply(to + used, size - used, reply->element[i]);
            if (used + 2 < size && i + 1 < reply->elements)
                to[used++] = '\n';
        }
        return used;
    case REDIS_REPLY_NIL:
        return (size_t)snprintf(to, size, "(nil)");
    default:
        return (size_t)snprintf(to, size, "%s", reply->str);
    }
}

/* Connect to the Unix socket, which works whatever the port options are, and
 * authenticate if the options set a password. Ignore SIGPIPE, because the
 * server may close the connection while hiredis writes, as it does on a command
 * from a sentinel. */
const char *hf_test_redis_command(struct hf_test_redis *redis,
                                  const char *format, ...)
{
    static char text[16384];
    struct timeval timeout = {.tv_sec = 60};
    redisContext *context = redisConnectUnixWithTimeout(redis->socket, timeout);
    void (*on_pipe)(int) = signal(SIGPIPE, SIG_IGN);
    redisReply *reply = NULL;
    va_list args;

    memset(text, 0, sizeof(text));
    (void)snprintf(text, sizeof(text), "(lost)");
    for (int i = 0; i + 1 < HF_TEST_REDIS_OPTIONS; i++) {
        if (context && !context->err &&
            !strcmp(redis->options[i], "--requirepass"))
            freeReplyObject(
                redisCommand(context, "AUTH %s", redis->options[i + 1]));
    }
    va_start(args, format);
    if (context && !context->err)
        reply = redisvCommand(context, format, args);
    va_end(args);
    if (reply) {
        text[0] = '\0';
        (void)write_reply(text, sizeof(text), reply);
        freeReplyObject(reply);
    }
    if (context)
        redisFree(context);
    (void)signal(SIGPIPE, on_pipe);
    return text;
}

bool hf_test_redis_is_awake(struct hf_test_redis *redis)
{
    struct timeval timeout = {.tv_usec = 100000};
    redisContext *context = redisConnectUnixWithTimeout(redis->socket, timeout);
    redisReply *reply = NULL;

    if (context && !context->err && !redisSetTimeout(context, timeout))
        reply = redisCommand(context, "PING");
    if (context)
        redisFree(context);
    if (!reply)
        return false;
    freeReplyObject(reply);
    return true;
}
