/* remote.h - mounts a file system of a kind that other machines may share.
 *
 * It is a FUSE file system, which needs no network. Its server implements the
 * minimum: an empty root directory. */
#ifndef HF_TESTS_LIB_REMOTE_H
#define HF_TESTS_LIB_REMOTE_H

/* Mount the file system at `path`, in a new mount namespace of this process.
 * Skips the case if that is not possible. */
void hf_remote_mount(const char *path);

#endif
