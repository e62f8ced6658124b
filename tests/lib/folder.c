#include "lib/folder.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#define DESCRIPTORS 8 /* that the walk may use */

bool hf_test_folder_make(char path[sizeof(HF_TEST_FOLDER)])
{
    return mkdtemp(path) != NULL;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

bool hf_test_folder_remove(const char *path)
{
    return nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) == 0;
}
