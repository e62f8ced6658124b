#include "lib/mongo_case.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/runner.h"

struct hf_test_mongo mongo;
struct hf_test_network network;

int set_up(void **state)
{
    (void)state;
    network = (struct hf_test_network){.pid = 0};
    mongo = (struct hf_test_mongo){.count = 0};
    return 0;
}

int tear_down(void **state)
{
    (void)state;
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
    if (mongo.network)
        hf_test_network_stop(&network);
    return 0;
}

void require_network(unsigned count)
{
    mongo.network = &network;
    assert_true(hf_test_network_start(&network, count));
    hf_test_mongo_require(&mongo, count);
}

void require_two_clients(unsigned count, struct hf_client **client,
                         struct hf_client **other)
{
    hf_test_mongo_require(&mongo, count);
    *client = hf_test_mongo_open(&mongo, "");
    *other = hf_test_mongo_open(&mongo, "");
}

void set_clocks_apart(void)
{
    static const char *const clocks[] = {"+3600", "-3600"};

    for (unsigned i = 0; i < HF_TEST_COUNT(clocks); i++)
        (void)snprintf(mongo.members[i].clock, sizeof(mongo.members[i].clock),
                       "%s", clocks[i]);
}

int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

unsigned primary(void)
{
    int found = hf_test_mongo_primary(&mongo);

    assert_true(found >= 0);
    return (unsigned)found;
}

void await_queue_length(unsigned size)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"count\":\"locks\",\"query\":{\"queue\":{\"$size\":%u}}}",
                   size);
    while (!strstr(hf_test_mongo_command(&mongo, primary(), "holdfast", json),
                   "\"n\" : 1"))
        (void)poll(NULL, 0, 5);
}

long find_number(const char *reply, const char *name)
{
    const char *at = reply ? strstr(reply, name) : NULL;

    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

long count_commands(const char *name)
{
    const char *status =
        hf_test_mongo_command(&mongo, 0, "admin", "{\"serverStatus\":1}");
    char field[64];

    (void)snprintf(field, sizeof(field), "\"%s\" : {", name);
    status = strstr(status, "\"commands\" : {");
    status = status ? strstr(status, field) : NULL;
    return find_number(status, "\"total\" : ");
}

long fail_commands(unsigned member, const char *commands, const char *mode,
                   const char *data)
{
    const char *reply;
    char json[512];

    (void)snprintf(json, sizeof(json),
                   "{\"configureFailPoint\":\"failCommand\",\"mode\":%s,"
                   "\"data\":{\"failCommands\":[%s],%s}}",
                   mode, commands, data);
    reply = hf_test_mongo_command(&mongo, member, "admin", json);
    assert_null(strstr(reply, "(lost)"));
    return find_number(reply, "\"count\" : ");
}

void expect_refused(const char *url, enum hf_err wanted, const char *word)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_client *client = NULL;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = &error;
    expect_err(hf_open(url, &opts, &client), wanted);
    assert_null(client);
    if (!strstr(error.text, word))
        fail_msg("\"%s\" does not contain '%s'", error.text, word);
    assert_null(strstr(error.text, "hush"));
    assert_null(strstr(error.text, "shout"));
}

void on_release(const struct hf_event *event, void *arg)
{
    if (event->kind == HF_EVENT_RELEASED)
        (void)sem_post(arg);
}

bool is_posted_within(sem_t *posted, unsigned seconds)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    return sem_clockwait(posted, CLOCK_MONOTONIC, &until) == 0;
}

struct hf_lock *acquire_with_retries(struct hf_client *client, const char *key,
                                     const struct hf_lock_opts *opts)
{
    struct hf_lock *lock = NULL;
    enum hf_err err;

    do
        err = hf_acquire(client, hf_key_of(key), opts, &lock);
    while (err == HF_EINDOUBT || err == HF_EUNAVAIL || err == HF_EBUSY ||
           err == HF_ETIMEDOUT);
    expect_ok(err);
    return lock;
}
