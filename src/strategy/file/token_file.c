/* token_file.c - the file "token", which makes tokens increase even after the
 * arena is lost. No granted token is above the number in the file, and the
 * number never decreases. The arena has a copy of the number, the reserve, so
 * either file is enough to continue from. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/crash_point.h"
#include "strategy/file/guard.h"
#include "strategy/file/layout.h"

#define TOKENS_AHEAD (UINT64_C(1) << 20)

static bool write_all(int file, const char *text)
{
    size_t size = strlen(text);

    return write(file, text, size) == (ssize_t)size && !fsync(file);
}

static bool replace_token_file(int directory, const char *text)
{
    char name[HF_SHARE_NAME];
    bool written;
    int file;

    hf_share_temporary_name(name, "token");
    (void)unlinkat(directory, name, 0);
    file = hf_share_create(directory, name);
    if (file < 0)
        return false;
    HF_CRASH_POINT(15);
    written = write_all(file, text);
    (void)close(file);
    HF_CRASH_POINT(16);
    return written && !renameat(directory, name, directory, "token") &&
           !fsync(directory);
}

/* Overwrite a file that we may not replace. One write() replaces all digits of
 * the old number, because the new one is never smaller. */
static bool overwrite_token_file(int file, const char *text)
{
    return hf_share_is_plain(file) && write_all(file, text) &&
           !ftruncate(file, (off_t)strlen(text));
}

static enum hf_err write_token_file(int directory, uint64_t token)
{
    int file = hf_share_open(directory, "token", O_WRONLY);
    char text[32];
    bool written;

    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)token);
    if (file >= 0 && !hf_share_can_replace(directory, file))
        written = overwrite_token_file(file, text);
    else
        written = replace_token_file(directory, text);
    if (file >= 0)
        (void)close(file);
    return written ? HF_OK : HF_ESYSTEM;
}

enum hf_err hf_token_file_read(int directory, uint64_t *token)
{
    int file = hf_share_open(directory, "token", O_RDONLY);
    char text[32] = "";
    char *end = text;
    ssize_t size;

    *token = 0;
    if (file < 0)
        return errno == ENOENT ? HF_OK : HF_ESYSTEM;
    size = hf_share_is_plain(file) ? read(file, text, sizeof(text) - 1) : -1;
    (void)close(file);
    errno = 0;
    if (size > 0 && text[0] >= '0' && text[0] <= '9')
        *token = strtoull(text, &end, 10);
    if (end == text || *end != '\n' || errno || *token > HF_TOKEN_FILE_MAX)
        return HF_EPROTO;
    return HF_OK;
}

bool hf_token_file_is_missing(int directory)
{
    return faccessat(directory, "token", F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}

enum hf_err hf_token_file_raise(int directory, uint64_t token,
                                uint64_t *saved_token)
{
    enum hf_err err;
    sigset_t before;

    if (token > HF_TOKEN_FILE_MAX - TOKENS_AHEAD) {
        errno = ERANGE;
        return HF_ELIMIT;
    }
    *saved_token = token + TOKENS_AHEAD;
    hf_guard_block_sigxfsz(&before);
    err = write_token_file(directory, *saved_token);
    hf_guard_restore_sigxfsz(&before);
    HF_CRASH_POINT(17);
    return err;
}

/* If the directory was removed, its file "token" is lost too. Tokens then start
 * at the wall clock in microseconds, which is above those of the old directory
 * because it granted less than one token per microsecond. The clock may be
 * wrong, so it is used only if there is nothing better. */
uint64_t hf_token_file_from_clock(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) || now.tv_sec < 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- The reserve ----------------------------------------------------------
 *
 * One client at a time raises the reserve, because a lower number must never
 * replace a higher one. That client locks a byte of the arena, which the kernel
 * unlocks if the client dies. */

static struct flock reserve_lock(short type)
{
    return (struct flock){
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = HF_ARENA_SLOTS + 1,
        .l_len = 1,
    };
}

static bool lock_reserve(const struct hf_arena *arena)
{
    struct flock lock = reserve_lock(F_WRLCK);

    return fcntl(arena->file, F_OFD_SETLK, &lock) == 0;
}

static void unlock_reserve(const struct hf_arena *arena)
{
    struct flock lock = reserve_lock(F_UNLCK);
    int saved = errno;

    (void)fcntl(arena->file, F_OFD_SETLK, &lock);
    errno = saved;
}

/* Write the file "token" to the disk before raising the reserve in the arena,
 * which lets clients grant larger tokens. Then sync the arena too, in case the
 * file is lost. */
static enum hf_err write_reserve(struct hf_arena *arena, uint64_t token)
{
    struct hf_arena_header *header = arena->header;
    uint64_t reserve = atomic_load(&header->token_reserve);
    uint64_t saved_token;
    enum hf_err err = hf_token_file_read(arena->directory, &saved_token);

    if (err && err != HF_EPROTO)
        return err;
    /* The file may be missing or overwritten, so the copy in the arena counts
     * too. */
    if (err || saved_token < reserve)
        saved_token = reserve;
    if (saved_token < token)
        saved_token = token;
    err = hf_token_file_raise(arena->directory, saved_token, &saved_token);
    if (err)
        return err;
    atomic_store(&header->token_reserve, saved_token);
    (void)msync(header, offsetof(struct hf_arena_header, slot), MS_SYNC);
    arena->token_file_missing = false;
    return HF_OK;
}

bool hf_token_file_covers(const struct hf_arena *arena, uint64_t token)
{
    return token <= atomic_load(&arena->header->token_reserve);
}

/* Another client may have raised the reserve before we got the lock, so check
 * again whether that is needed. */
enum hf_err hf_token_file_reserve(struct hf_arena *arena, uint64_t token)
{
    enum hf_err err = HF_OK;

    if (!lock_reserve(arena))
        return HF_OK;
    if (!hf_token_file_covers(arena, token) ||
        hf_token_file_is_missing(arena->directory))
        err = write_reserve(arena, token);
    unlock_reserve(arena);
    return err;
}

enum hf_err hf_token_file_refill(struct hf_arena *arena, uint64_t token)
{
    uint64_t wanted = token + TOKENS_AHEAD / 2;

    if (hf_token_file_covers(arena, wanted) && !arena->token_file_missing)
        return HF_OK;
    return hf_token_file_reserve(arena, wanted);
}
