#include "lib/mongo_case.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/runner.h"

struct hf_test_mongo mongo;

int set_up(void **state)
{
    (void)state;
    mongo = (struct hf_test_mongo){.count = 0};
    return 0;
}

int tear_down(void **state)
{
    (void)state;
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
    return 0;
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

void await_line(unsigned size)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"count\":\"locks\",\"query\":{\"line\":{\"$size\":%u}}}",
                   size);
    while (!strstr(hf_test_mongo_say(&mongo, primary(), "holdfast", json),
                   "\"n\" : 1"))
        (void)poll(NULL, 0, 5);
}

long begun(void)
{
    const char *status =
        hf_test_mongo_say(&mongo, 0, "admin", "{\"serverStatus\":1}");
    const char *at = strstr(status, "\"findAndModify\" :");

    at = at ? strstr(at, "\"total\" : ") : NULL;
    return at ? strtol(at + strlen("\"total\" : "), NULL, 10) : -1;
}
