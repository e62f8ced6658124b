#include "url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "text.h"

#define VARIABLE "HOLDFAST_URL"

const char *url_source(const struct args *args)
{
    if (args->url)
        return "--url";
    return getenv(VARIABLE) ? VARIABLE : "the default";
}

const char *url_find(const struct args *args)
{
    const char *url = args->url ? args->url : getenv(VARIABLE);

    return url ? url : "file:";
}

static void mask_password(char *from, const char *end)
{
    memset(from, '*', (size_t)(end - from));
}

/* Mask the password, from the colon before it to the last '@'. A URL whose
 * password has an unescaped '/' or '?' is refused, but the error message must
 * not show that password either. */
static void hide_user_password(char *url)
{
    char *end = strrchr(url, '@');
    char *begin = strchr(url, ':');
    char *colon = begin ? strchr(begin + 1, ':') : NULL;

    if (end && colon && colon < end)
        mask_password(colon + 1, end);
}

/* Mask options such as MongoDB's tlsCertificateKeyFilePassword=. */
static void hide_password_options(char *url)
{
    static const char name[] = "password=";
    char *at = strchr(url, '?');

    if (!at)
        return;
    while ((at = strcasestr(at, name))) {
        at += strlen(name);
        mask_password(at, at + strcspn(at, "&"));
    }
}

void url_hide_password(char *url)
{
    if (!strncmp(url, "file:", 5))
        return;
    hide_user_password(url);
    hide_password_options(url);
}

/* Refuse an empty URL, and a store whose locks would exclude no other
 * process. */
static int check_url(const struct args *args, const char *url)
{
    if (*url == '\0')
        return failure_usage(args,
                             "%s is empty; name a store, or remove it to use "
                             "the locks of this user on this machine",
                             url_source(args));
    if (!strncmp(url, "memory:", 7))
        return failure_usage(args,
                             "memory: is for the threads of one program; no "
                             "other command would see this lock. Use file: on "
                             "one machine, or a server");
    return 0;
}

char *url_take(const struct args *args, int *status)
{
    const char *url = url_find(args);
    char *copy;

    *status = check_url(args, url);
    if (*status)
        return NULL;
    copy = text_copy(url);
    if (args->url)
        url_hide_password(args->url);
    return copy;
}

void url_free(char *url)
{
    if (url)
        explicit_bzero(url, strlen(url));
    free(url);
}

/* Returns true if `url` is a file: URL with a relative path. */
static bool is_relative(const char *url)
{
    return !strncmp(url, "file:", 5) && !strchr("/?", url[5]);
}

/* Write `path`, percent-encoding bytes that may not be in the path of a URL. */
static void write_path(char *to, const char *path)
{
    for (; *path; path++) {
        unsigned char byte = (unsigned char)*path;

        if (byte <= ' ' || byte >= 0x7f || strchr("%?#", byte))
            to += sprintf(to, "%%%02X", (unsigned)byte);
        else
            *to++ = *path;
    }
    *to = '\0';
}

static char *absolute_url(const char *url)
{
    char *here = getcwd(NULL, 0);
    char *escaped = here ? malloc(3 * strlen(here) + 1) : NULL;
    char *absolute = NULL;

    if (escaped) {
        write_path(escaped, here);
        if (asprintf(&absolute, "file:%s/%s", escaped, url + 5) < 0)
            absolute = NULL;
    }
    free(escaped);
    free(here);
    return absolute;
}

bool url_export(const char *url)
{
    char *absolute = is_relative(url) ? absolute_url(url) : NULL;
    bool set = !setenv(VARIABLE, absolute ? absolute : url, 1);

    free(absolute);
    return set;
}
