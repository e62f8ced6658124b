#include "strategy/file/place.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Make the folders above a default directory. */
static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

static char *default_path(void)
{
    struct passwd *found = NULL, entry;
    char strings[4096];
    struct stat st;
    char *path = NULL;

    if (getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) == 0 &&
        found && found->pw_dir[0] == '/' && !stat(found->pw_dir, &st) &&
        asprintf(&path, "%s/.local/state/holdfast", found->pw_dir) > 0) {
        make_parents(path);
        if (mkdir(path, 0700) == 0 || errno == EEXIST)
            return path;
        free(path);
    }
    if (asprintf(&path, "/var/tmp/holdfast-%u", (unsigned)geteuid()) < 0)
        return NULL;
    return path;
}

static enum hf_err parse_mode(const char *text, mode_t *mode,
                              struct hf_error *error)
{
    char *end;
    unsigned long value;

    *mode = 0700;
    if (!text)
        return HF_OK;
    errno = 0;
    value = strtoul(text, &end, 8);
    if (end == text || *end || errno || value > 01777 || (value & 0700) != 0700)
        return hf_error_set(error, HF_EINVAL,
                            "url: mode '%s' is no mode, as in mode=0770", text);
    *mode = (mode_t)value;
    return HF_OK;
}

enum hf_err hf_place_find(struct hf_url *url, char **path, mode_t *mode,
                          struct hf_error *error)
{
    enum hf_err err = parse_mode(hf_url_param(url, "mode"), mode, error);

    if (err)
        return err;
    if (url->hosts && *url->hosts)
        return hf_error_set(error, HF_EINVAL,
                            "url: file: has no host; write file:/path");
    *path = *url->path ? strdup(url->path) : default_path();
    return *path ? HF_OK : hf_error_code(error, HF_ENOMEM);
}

hf_time hf_place_clock_offset(void)
{
    FILE *offsets = fopen("/proc/self/timens_offsets", "re");
    char line[128];
    hf_time offset = 0;

    if (!offsets)
        return 0;
    while (fgets(line, sizeof(line), offsets)) {
        char *end;

        if (strncmp(line, "boottime", 8) != 0)
            continue;
        offset = strtoll(line + 8, &end, 10) * 1000;
        offset += strtoll(end, NULL, 10) / 1000000;
    }
    (void)fclose(offsets);
    return offset;
}
