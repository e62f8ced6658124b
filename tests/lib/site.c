#include "lib/site.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/expect.h"
#include "lib/folder.h"

static char folder[] = HF_TEST_FOLDER;
static pid_t owner;

int hf_site_set_up(void **state)
{
    (void)state;
    owner = getpid();
    hf_test_set_defaults();
    return hf_test_folder_make(folder) ? 0 : -1;
}

/* A child whose assertion failed gets here too. It must not remove the
 * directory, which the case still uses. */
int hf_site_tear_down(void **state)
{
    (void)state;
    if (getpid() != owner)
        return 0;
    return hf_test_folder_remove(folder) ? 0 : -1;
}

const char *hf_site_path(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

enum hf_err hf_site_try(const char *name, const char *options,
                        struct hf_error *error, struct hf_client **client)
{
    struct hf_client_opts opts;
    char url[192];

    hf_client_opts_init(&opts);
    opts.error = error;
    (void)snprintf(url, sizeof(url), "file:%s%s", hf_site_path(name), options);
    return hf_open(url, &opts, client);
}

struct hf_client *hf_site_open_at(const char *name, const char *options)
{
    struct hf_client *client;
    struct hf_error error = {.text = ""};

    if (hf_site_try(name, options, &error, &client))
        fail_msg("%s", error.text);
    return client;
}

void hf_site_refuse(const char *name, const char *options, enum hf_err expected,
                    const char *words)
{
    struct hf_client *client;
    struct hf_error error = {.text = ""};
    enum hf_err err = hf_site_try(name, options, &error, &client);

    if (err != expected || !strstr(error.text, words))
        fail_msg("%s (%s), expected %s and \"%s\"", hf_err_name(err),
                 error.text, hf_err_name(expected), words);
}

struct hf_client *hf_site_open(void)
{
    return hf_site_open_at("locks", "");
}

struct hf_lock_opts hf_site_wait_opts(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    return opts;
}

void hf_site_await_waiters(struct hf_client *client, const char *key,
                           uint32_t count)
{
    const struct timespec delay = {.tv_nsec = 1000000};
    struct hf_info info;
    uint32_t waiters;

    for (;;) {
        assert_int_equal(
            hf_read(client, hf_key_of(key), HF_LINEARIZABLE, &info), HF_OK);
        waiters = info.waiters;
        hf_info_fini(&info);
        if (waiters == count)
            return;
        nanosleep(&delay, NULL);
    }
}
