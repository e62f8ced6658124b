#include "strategy/file/directory.h"

#include <errno.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

const char *hf_directory_network_name(const struct statfs *fs)
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

/* ---- The default directory ----------------------------------------------*/

/* Create the missing parent directories of `path`. Returns 0, or an errno. */
static int create_parents(char *path)
{
    int failed = 0;

    for (char *slash = strchr(path + 1, '/'); slash && !failed;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        failed = mkdir(path, 0700) && errno != EEXIST ? errno : 0;
        if (failed && access(path, F_OK) == 0)
            failed = 0;
        *slash = '/';
    }
    return failed;
}

/* Set `*home` to a copy of the user's home directory in the password database,
 * or to NULL if the user has none there. If the database cannot be read, return
 * an error, because the user may have a home. */
static enum hf_err find_home(char **home, struct hf_error *error)
{
    struct passwd *found = NULL, entry;
    char strings[16384];
    int failed =
        getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found);

    *home = NULL;
    if (!found && (failed == 0 || failed == ENOENT || failed == ESRCH))
        return HF_OK;
    if (!found)
        return hf_error_set(error, HF_ESYSTEM,
                            "file: cannot read the home directory of user %u "
                            "from the password database: %s%s",
                            (unsigned)geteuid(), strerror(failed),
                            HF_DIRECTORY_ADVICE);
    if (!found->pw_dir)
        return HF_OK;
    *home = strdup(found->pw_dir);
    return *home ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
}

/* `*usable` is false on entry. Set it to true if the default directory can be
 * below `home`. */
static enum hf_err check_home(const char *home, bool *usable,
                              struct hf_error *error)
{
    struct statfs fs;

    if (!home || home[0] != '/')
        return HF_OK;
    if (statfs(home, &fs) == 0) {
        *usable = !hf_directory_network_name(&fs);
        return HF_OK;
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return HF_OK;
    return hf_error_set(error, HF_EUNAVAIL,
                        "file: cannot use the home directory %s: %s%s", home,
                        strerror(errno), HF_DIRECTORY_ADVICE);
}

static enum hf_err path_in_home(const char *home, char **path,
                                struct hf_error *error)
{
    int failed;

    if (asprintf(path, "%s/.local/state/holdfast", home) < 0)
        return hf_error_set_code(error, HF_ENOMEM);
    failed = create_parents(*path);
    if (!failed)
        return HF_OK;
    hf_error_set(error, HF_EUNAVAIL, "file:%s: cannot create it: %s%s", *path,
                 strerror(failed), HF_DIRECTORY_ADVICE);
    free(*path);
    return HF_EUNAVAIL;
}

static enum hf_err default_path(char **path, struct hf_error *error)
{
    char *home;
    bool usable = false;
    enum hf_err err = find_home(&home, error);

    if (!err)
        err = check_home(home, &usable, error);
    if (!err && usable)
        err = path_in_home(home, path, error);
    if (!err && !usable &&
        asprintf(path, "/var/tmp/holdfast-%u", (unsigned)geteuid()) < 0)
        err = hf_error_set_code(error, HF_ENOMEM);
    free(home);
    return err;
}

/* ---- URLs ---------------------------------------------------------------*/

static enum hf_err parse_file_mode(const char *text, mode_t *mode,
                                   struct hf_error *error)
{
    char *end;
    unsigned long value;

    *mode = 0700;
    if (!text)
        return HF_OK;
    errno = 0;
    value = strtoul(text, &end, 8);
    if (end == text || *end || errno || value > 03777 || (value & 0700) != 0700)
        return hf_error_set(error, HF_EINVAL,
                            "url: mode '%s' is not an octal mode from 0700 to "
                            "03777 with all permissions for the owner, as in "
                            "mode=02770",
                            text);
    *mode = (mode_t)value;
    return HF_OK;
}

enum hf_err hf_directory_find(struct hf_url *url, char **path, mode_t *mode,
                              struct hf_error *error)
{
    enum hf_err err = parse_file_mode(hf_url_param(url, "mode"), mode, error);

    if (err)
        return err;
    if (url->hosts && *url->hosts)
        return hf_error_set(error, HF_EINVAL,
                            "url: file: has no host; write file:/path");
    if (!*url->path)
        return default_path(path, error);
    *path = strdup(url->path);
    return *path ? HF_OK : hf_error_set_code(error, HF_ENOMEM);
}
