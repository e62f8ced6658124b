#include "strategy/file/place.h"

#include <errno.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

const char *hf_place_network(const struct statfs *fs)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } networks[] = {
        {NFS_SUPER_MAGIC, "NFS"},   {SMB_SUPER_MAGIC, "SMB"},
        {0xff534d42, "CIFS"},       {0xfe534d42, "SMB2"},
        {CODA_SUPER_MAGIC, "Coda"}, {AFS_SUPER_MAGIC, "AFS"},
        {V9FS_MAGIC, "9p"},         {OCFS2_SUPER_MAGIC, "OCFS2"},
        {CEPH_SUPER_MAGIC, "Ceph"}, {0x01161970, "GFS2"},
        {0x0bd00bd0, "Lustre"},     {0x65735546, "FUSE"},
    };

    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
        if ((unsigned long)fs->f_type == networks[i].magic)
            return networks[i].name;
    }
    return NULL;
}

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

/* Whether locks can be kept below that home. */
static bool is_home(const char *path)
{
    struct statfs fs;

    return path[0] == '/' && !statfs(path, &fs) && !hf_place_network(&fs);
}

static char *default_path(void)
{
    struct passwd *found = NULL, entry;
    char strings[4096];
    char *path = NULL;

    if (getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) == 0 &&
        found && is_home(found->pw_dir) &&
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
