#include "lib/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/runner.h"

struct reply {
    struct fuse_out_header header;
    union {
        struct fuse_init_out init;
        struct fuse_attr_out attr;
        struct fuse_open_out open;
        struct fuse_statfs_out statfs;
    } body;
};

/* Fill in the body of a reply. Returns its size, or a negative errno. */
static int fill_reply(struct reply *reply, const struct fuse_in_header *request)
{
    switch (request->opcode) {
    case FUSE_INIT:
        reply->body.init.major = FUSE_KERNEL_VERSION;
        reply->body.init.minor = FUSE_KERNEL_MINOR_VERSION;
        reply->body.init.max_write = 4096;
        return (int)sizeof(reply->body.init);
    case FUSE_GETATTR:
        reply->body.attr.attr.ino = FUSE_ROOT_ID;
        reply->body.attr.attr.nlink = 2;
        reply->body.attr.attr.mode = S_IFDIR | 0755;
        reply->body.attr.attr.uid = getuid();
        reply->body.attr.attr.gid = getgid();
        return (int)sizeof(reply->body.attr);
    case FUSE_OPENDIR:
        return (int)sizeof(reply->body.open);
    case FUSE_STATFS:
        return (int)sizeof(reply->body.statfs);
    default:
        return -ENOSYS;
    }
}

static void fuse_main(void *arg)
{
    int device = *(const int *)arg;
    _Alignas(8) char bytes[FUSE_MIN_READ_BUFFER];
    const struct fuse_in_header *request = (const void *)bytes;

    while (read(device, bytes, sizeof(bytes)) > 0) {
        struct reply reply = {.header.unique = request->unique};
        int size = fill_reply(&reply, request);

        reply.header.error = size < 0 ? size : 0;
        reply.header.len =
            (uint32_t)sizeof(reply.header) + (uint32_t)(size < 0 ? 0 : size);
        if (write(device, &reply, reply.header.len) < 0)
            continue; /* the request was interrupted */
    }
}

static bool mount_fuse(int device, const char *path)
{
    char options[96];

    (void)snprintf(options, sizeof(options),
                   "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other",
                   device, (unsigned)getuid(), (unsigned)getgid());
    return !unshare(CLONE_NEWNS) &&
           !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("none", path, "fuse", 0, options);
}

/* Nothing is left behind: the runner kills the server after the case, and the
 * mount ends with its namespace. */
void hf_remote_mount(const char *path)
{
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (device < 0 || !mount_fuse(device, path))
        hf_test_skip("mounting by FUSE needs root and /dev/fuse");
    (void)hf_child_start(fuse_main, &device);
    (void)close(device);
}
