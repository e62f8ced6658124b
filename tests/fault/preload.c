/* preload.c - faults of files in holdfastd; see faults.h. Its functions make
 * system calls directly, so they need not look up the functions of libc or of a
 * sanitizer that they replace. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"

#define EXPORT __attribute__((visibility("default")))
#define PATH_SIZE 512

static struct hf_faults *faults; /* NULL in other programs than holdfastd */
static unsigned own_number;      /* of the node */

/* ---- Which node this is -------------------------------------------------*/

/* Find the value of --dir. Returns false if there is none. */
static bool find_directory(char *path)
{
    char arguments[4096];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, arguments, sizeof(arguments) - 1);
    const char *at = arguments;

    if (fd >= 0)
        (void)close(fd);
    if (size <= 0)
        return false;
    arguments[size] = '\0';
    while (at < arguments + size && strcmp(at, "--dir") != 0)
        at += strlen(at) + 1;
    at += sizeof("--dir");
    if (at >= arguments + size || strlen(at) >= PATH_SIZE - 16)
        return false;
    memcpy(path, at, strlen(at) + 1);
    return true;
}

__attribute__((constructor)) static void find_faults(void)
{
    char path[PATH_SIZE];
    size_t length;
    void *mapped = MAP_FAILED;
    int fd;

    if (!find_directory(path))
        return;
    length = strlen(path);
    own_number = (unsigned)strtoul(path + length - 1, NULL, 10);
    memcpy(path + length, HF_FAULTS_SUFFIX, sizeof(HF_FAULTS_SUFFIX));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && !ftruncate(fd, sizeof(*faults)))
        mapped = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED,
                      fd, 0);
    if (mapped == MAP_FAILED)
        abort();
    faults = mapped;
    (void)close(fd);
}

/* ---- Faults -------------------------------------------------------------*/

/* Returns true if the fault occurs in this call. Calls that this kind of fault
 * does not concern are not counted. The exchange is atomic, because several
 * threads write and sync. */
static bool is_due(enum hf_fault fault)
{
    unsigned left;

    if (!faults || atomic_load(&faults->fault) != fault)
        return false;
    left = atomic_load(&faults->after);
    while (left > 0)
        if (atomic_compare_exchange_weak(&faults->after, &left, left - 1))
            return false;
    atomic_fetch_add(&faults->hits, 1);
    return true;
}

static void kill_if_due(enum hf_fault fault)
{
    if (is_due(fault))
        (void)kill(getpid(), SIGKILL);
}

static void hang_if_due(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    if (!is_due(HF_FAULT_HANG_SYNC))
        return;
    while (atomic_load(&faults->fault) == HF_FAULT_HANG_SYNC)
        (void)nanosleep(&pause, NULL);
}

static void slow_down_if_due(void)
{
    const struct timespec pause = {.tv_nsec = HF_FAULTS_SLOW_MS * 1000000L};

    if (is_due(HF_FAULT_SLOW_SYNC))
        (void)nanosleep(&pause, NULL);
}

static int sync_with_faults(long call, int fd)
{
    int rc;

    kill_if_due(HF_FAULT_KILL_BEFORE_SYNC);
    hang_if_due();
    slow_down_if_due();
    if (is_due(HF_FAULT_SYNC_EIO)) {
        errno = EIO;
        return -1;
    }
    rc = (int)syscall(call, fd);
    kill_if_due(HF_FAULT_KILL_AFTER_SYNC);
    return rc;
}

EXPORT int fdatasync(int fildes)
{
    return sync_with_faults(SYS_fdatasync, fildes);
}

EXPORT int fsync(int fd)
{
    return sync_with_faults(SYS_fsync, fd);
}

static ssize_t write_with_faults(int fd, const void *data, size_t size,
                                 off_t offset)
{
    if (size < HF_FAULTS_WRITE_MAX) {
        kill_if_due(HF_FAULT_KILL_BEFORE_WRITE);
        if (is_due(HF_FAULT_TEAR_WRITE)) {
            (void)syscall(SYS_pwrite64, fd, data, size / 2, offset);
            (void)kill(getpid(), SIGKILL);
        }
        if (is_due(HF_FAULT_WRITE_EIO)) {
            errno = EIO;
            return -1;
        }
    }
    return syscall(SYS_pwrite64, fd, data, size, offset);
}

/* Where the headers rename this to pwrite64, they do so in the daemon, too. */
EXPORT ssize_t pwrite(int fd, const void *buf, size_t nbytes, off_t offset)
{
    return write_with_faults(fd, buf, nbytes, offset);
}

/* ---- Addresses ----------------------------------------------------------*/

/* glibc declares the address as a transparent union. */
EXPORT int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    int on = 1;

    if (faults && addr.__sockaddr__->sa_family == AF_INET) {
        from.sin_addr.s_addr =
            htonl(INADDR_LOOPBACK + HF_FAULTS_ADDRESS - 1 + own_number);
        /* The kernel chooses the port in connect(). */
        (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on,
                         sizeof(on));
        (void)bind(fd, (const struct sockaddr *)&from, sizeof(from));
    }
    return (int)syscall(SYS_connect, fd, addr.__sockaddr__, len);
}
