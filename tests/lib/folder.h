/* folder.h - a folder of a test's own, in /tmp, that goes with it. */
#ifndef HF_TESTS_LIB_FOLDER_H
#define HF_TESTS_LIB_FOLDER_H

#include <stdbool.h>

#define HF_TEST_FOLDER "/tmp/holdfast-test-XXXXXX"

/* Make it; `path` is HF_TEST_FOLDER, and is named anew. */
bool hf_test_folder_make(char path[sizeof(HF_TEST_FOLDER)]);

/* Remove it with all that is in it. */
bool hf_test_folder_remove(const char *path);

#endif
