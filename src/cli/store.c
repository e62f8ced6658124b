#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "number.h"
#include "reach.h"
#include "url.h"

/* How long to wait for the release of locks. Locks that are not released by
 * then end when their leases expire. */
#define CLOSE_MS 1000

int store_open(const struct args *args, const char *owner,
               struct hf_client **client)
{
    struct reach reach = {.args = args, .owner = owner};
    int status;

    if (!reach_store(&reach, &status))
        return status;
    url_free(reach.url);
    *client = reach.client;
    return 0;
}

void store_close(struct hf_client *client)
{
    (void)hf_close(client, CLOSE_MS);
}

void store_label(char label[HF_NOTE_MAX + 1], const char *name, long pid)
{
    const char *slash = strrchr(name, '/');
    char host[65] = "";

    if (slash && slash[1] != '\0')
        name = slash + 1;
    if (gethostname(host, sizeof(host) - 1))
        host[0] = '\0';
    (void)snprintf(label, HF_NOTE_MAX + 1, "%.128s[%ld]@%s", name, pid, host);
}

/* ---- Locks that another process took ------------------------------------*/

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;

    if (!at)
        return -1;
    return at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

static bool parse_nonce(const char *text, uint8_t nonce[HF_NONCE_SIZE])
{
    size_t i;

    for (i = 0; i < HF_NONCE_SIZE; i++) {
        int high = digit_of(text[2 * i]);
        int low = high < 0 ? -1 : digit_of(text[2 * i + 1]);

        if (low < 0)
            return false;
        nonce[i] = (uint8_t)(high * 16 + low);
    }
    return text[2 * i] == '\0';
}

/* The messages do not quote the words, because the nonce is a secret. */
static int parse_nonce_and_token(const struct args *args,
                                 uint8_t nonce[HF_NONCE_SIZE], uint64_t *token)
{
    const char *text = args->words[1];
    const char *why = number_parse(args->words[2], UINT64_MAX, token);

    if (!strcmp(text, "-")) {
        text = getenv("HOLDFAST_NONCE");
        if (!text)
            return failure_usage(args, "NONCE is '-', but HOLDFAST_NONCE is "
                                       "not set");
    }
    if (!parse_nonce(text, nonce))
        return failure_usage(args, "NONCE must have %d hexadecimal digits",
                             2 * HF_NONCE_SIZE);
    if (why)
        return failure_usage(args, "TOKEN %s", why);
    return 0;
}

static int adopt_lock(const struct args *args, struct hf_client *client,
                      struct hf_lock **lock)
{
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock_opts opts;
    struct hf_error error = {0};
    uint64_t token;
    enum hf_err err;
    int status = parse_nonce_and_token(args, nonce, &token);

    if (status)
        return status;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = args->ttl_ms;
    opts.error = &error;
    err = hf_lock_adopt(client, args_key(args), nonce, token, &opts, lock);
    explicit_bzero(nonce, sizeof(nonce));
    return err ? failure_on_key(args, args_key(args), err, &error) : 0;
}

int store_with_lock(const struct args *args,
                    int (*act)(const struct args *args,
                               struct hf_client *client, struct hf_lock *lock))
{
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;
    int status = store_open(args, NULL, &client);

    if (status)
        return status;
    status = adopt_lock(args, client, &lock);
    if (!status) {
        status = act(args, client, lock);
        hf_lock_free(lock); /* does not release a lock that was adopted */
    }
    store_close(client);
    return status;
}
