/* folder.h - a temporary directory in /tmp. */
#ifndef HF_TESTS_LIB_FOLDER_H
#define HF_TESTS_LIB_FOLDER_H

#include <stdbool.h>

#define HF_TEST_FOLDER "/tmp/holdfast-test-XXXXXX"

/* Create a directory. `path` contains HF_TEST_FOLDER, and receives the actual
 * name. */
bool hf_test_folder_make(char path[sizeof(HF_TEST_FOLDER)]);

/* Remove the directory with everything in it. */
bool hf_test_folder_remove(const char *path);

#endif
