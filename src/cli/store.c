#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "number.h"

#define CLOSE_MS 1000 /* what is not given back by then ends with its lease */

static const char *url_of(const struct args *args)
{
    const char *url = args->url ? args->url : getenv("HOLDFAST_URL");

    /* An empty variable is how a shell unsets one for a single command. */
    return url && (args->url || *url) ? url : "file:";
}

/* What stands between "//user:" and "@" is a password, and everyone can read
 * the command line of a process: it goes from there. */
static void hide_password(char *url)
{
    char *begin = strstr(url, "//");
    char *end = begin ? begin + strcspn(begin + 2, "/?") + 2 : NULL;
    char *colon = begin ? strchr(begin, ':') : NULL;

    while (end && end > begin && *end != '@')
        end--;
    if (end && colon && colon < end)
        memset(colon + 1, '*', (size_t)(end - colon - 1));
}

/* A copy of the URL, to be wiped; NULL: out of memory. */
static char *take_url(const struct args *args)
{
    char *copy = strdup(url_of(args));

    if (args->url)
        hide_password(args->url);
    return copy;
}

static enum hf_err open_url(char *url, const struct hf_client_opts *opts,
                            struct hf_client **client)
{
    enum hf_err err;

    if (!url)
        return HF_ENOMEM;
    err = hf_open(url, opts, client);
    explicit_bzero(url, strlen(url));
    free(url);
    return err;
}

int store_open(const struct args *args, const char *owner,
               struct hf_client **client)
{
    struct hf_client_opts opts;
    struct hf_error error = {0};
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.owner = owner;
    opts.error = &error;
    err = open_url(take_url(args), &opts, client);
    if (!err)
        return 0;
    return failure(args, err, "%s",
                   error.text[0] ? error.text : hf_err_text(err));
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

/* ---- Locks that were taken elsewhere ------------------------------------*/

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;

    if (!at)
        return -1;
    return at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

static bool read_nonce(const char *text, uint8_t nonce[HF_NONCE_SIZE])
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

/* The words are not repeated to the user: one of them is a secret. */
static int read_claim(const struct args *args, uint8_t nonce[HF_NONCE_SIZE],
                      uint64_t *token)
{
    const char *text = args->words[1];
    const char *why = number_parse(args->words[2], UINT64_MAX, token);

    if (!strcmp(text, "-")) {
        text = getenv("HOLDFAST_NONCE");
        if (!text)
            return failure_usage(args, "NONCE is '-', but HOLDFAST_NONCE is "
                                       "not set");
    }
    if (!read_nonce(text, nonce))
        return failure_usage(args, "NONCE is not %d hexadecimal digits",
                             2 * HF_NONCE_SIZE);
    if (why)
        return failure_usage(args, "TOKEN %s", why);
    return 0;
}

static int adopt(const struct args *args, struct hf_client *client,
                 struct hf_lock **lock)
{
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock_opts opts;
    struct hf_error error = {0};
    uint64_t token;
    enum hf_err err;
    int status = read_claim(args, nonce, &token);

    if (status)
        return status;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = args->ttl_ms;
    opts.error = &error;
    err = hf_lock_adopt(client, args_key(args), nonce, token, &opts, lock);
    explicit_bzero(nonce, sizeof(nonce));
    return err ? failure_about(args, args_key(args), err, &error) : 0;
}

int store_act(const struct args *args,
              int (*act)(const struct args *args, struct hf_lock *lock))
{
    struct hf_client *client;
    struct hf_lock *lock;
    int status = store_open(args, NULL, &client);

    if (status)
        return status;
    status = adopt(args, client, &lock);
    if (!status) {
        status = act(args, lock);
        hf_lock_free(lock); /* what was adopted stays held */
    }
    store_close(client);
    return status;
}
