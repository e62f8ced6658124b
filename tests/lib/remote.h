/* remote.h - a mount of a file system that other machines might share.
 *
 * The kernel has one such that needs no network, FUSE. Its owner answers the
 * least that it must: the root, and nothing in it. */
#ifndef HF_TESTS_LIB_REMOTE_H
#define HF_TESTS_LIB_REMOTE_H

/* Mount it at `path`, in a mount namespace of this process's own. Skips the
 * case where that cannot be done. */
void hf_remote_mount(const char *path);

#endif
