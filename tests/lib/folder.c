#include "lib/folder.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DESCRIPTORS 8 /* descriptors that nftw() may use */

/* A killed case leaves its directory behind. A script that expects this sets
 * HF_TEST_FOLDERS to a file, reads the names from it and removes the
 * directories. */
static void record_folder(const char *path)
{
    const char *list = getenv("HF_TEST_FOLDERS");
    int file = list ? open(list, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

    if (file < 0)
        return;
    (void)dprintf(file, "%s\n", path);
    (void)close(file);
}

bool hf_test_folder_make(char path[sizeof(HF_TEST_FOLDER)])
{
    if (!mkdtemp(path))
        return false;
    record_folder(path);
    return true;
}

static int remove_entry(const char *path, const struct stat *st, int kind,
                        struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

bool hf_test_folder_remove(const char *path)
{
    return nftw(path, remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) == 0;
}
