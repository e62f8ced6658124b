/* mark.c - tokens that outlive everything else: the file `token` names one
 * that none in use is above, and is never lowered. The arena has the same
 * number: either file is enough to go on from. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/step.h"
#include "strategy/file/guard.h"
#include "strategy/file/layout.h"

#define TOKENS_AHEAD (UINT64_C(1) << 20)

static bool write_all(int file, const char *text)
{
    size_t size = strlen(text);

    return write(file, text, size) == (ssize_t)size && !fsync(file);
}

static bool replace_mark(int directory, const char *text)
{
    char name[HF_SHARE_NAME];
    bool written;
    int file;

    hf_share_temporary(name, "token");
    (void)unlinkat(directory, name, 0);
    file = hf_share_create(directory, name);
    if (file < 0)
        return false;
    HF_STEP(15);
    written = write_all(file, text);
    (void)close(file);
    HF_STEP(16);
    return written && !renameat(directory, name, directory, "token") &&
           !fsync(directory);
}

/* One short write, and never a shorter one: marks rise. */
static bool overwrite_mark(int file, const char *text)
{
    return hf_share_is_plain(file) && write_all(file, text) &&
           !ftruncate(file, (off_t)strlen(text));
}

static enum hf_err write_mark(int directory, uint64_t token)
{
    int file = hf_share_open(directory, "token", O_WRONLY);
    char text[32];
    bool written;

    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)token);
    if (file >= 0 && !hf_share_can_replace(directory, file))
        written = overwrite_mark(file, text);
    else
        written = replace_mark(directory, text);
    if (file >= 0)
        (void)close(file);
    return written ? HF_OK : HF_ESYSTEM;
}

enum hf_err hf_mark_read(int directory, uint64_t *token)
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
    if (end == text || *end != '\n' || errno || *token > HF_MARK_MAX)
        return HF_EPROTO;
    return HF_OK;
}

bool hf_mark_is_missing(int directory)
{
    return faccessat(directory, "token", F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}

enum hf_err hf_mark_raise(int directory, uint64_t token, uint64_t *mark)
{
    enum hf_err err;
    sigset_t before;

    if (token > HF_MARK_MAX - TOKENS_AHEAD) {
        errno = ERANGE;
        return HF_ELIMIT;
    }
    *mark = token + TOKENS_AHEAD;
    hf_guard_begin_growing(&before);
    err = write_mark(directory, *mark);
    hf_guard_end_growing(&before);
    HF_STEP(17);
    return err;
}

/* A directory that was removed, or swept, takes its mark along. By the wall
 * clock, in microseconds, tokens go on above those of the directory that was
 * there before: it granted less than one in a microsecond. The clock may be
 * wrong, so it is asked only where there is nothing better. */
uint64_t hf_mark_from_clock(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) || now.tv_sec < 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- The reserve ----------------------------------------------------------
 *
 * One client at a time raises it: a lower mark must never replace a higher one.
 * It locks a byte of the arena, which the kernel unlocks if it dies. */

static struct flock lock_of_reserve(short type)
{
    return (struct flock){
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = HF_ARENA_SLOTS + 1,
        .l_len = 1,
    };
}

static bool claim_reserve(const struct hf_arena *arena)
{
    struct flock lock = lock_of_reserve(F_WRLCK);

    return fcntl(arena->file, F_OFD_SETLK, &lock) == 0;
}

static void release_reserve(const struct hf_arena *arena)
{
    struct flock lock = lock_of_reserve(F_UNLCK);
    int saved = errno;

    (void)fcntl(arena->file, F_OFD_SETLK, &lock);
    errno = saved;
}

/* The mark is on the disk before a token above the old one is used. The arena
 * follows: it is for the day when the mark is lost. */
static enum hf_err write_reserve(struct hf_arena *arena, uint64_t token)
{
    struct hf_arena_header *header = arena->header;
    uint64_t reserve = atomic_load(&header->token_reserve);
    uint64_t mark;
    enum hf_err err = hf_mark_read(arena->directory, &mark);

    if (err && err != HF_EPROTO)
        return err;
    if (err || mark < reserve)
        mark = reserve; /* missing, or overwritten: the arena knows as well */
    if (mark < token)
        mark = token;
    err = hf_mark_raise(arena->directory, mark, &mark);
    if (err)
        return err;
    atomic_store(&header->token_reserve, mark);
    (void)msync(header, offsetof(struct hf_arena_header, slot), MS_SYNC);
    arena->mark_missing = false;
    return HF_OK;
}

bool hf_arena_has_token(const struct hf_arena *arena, uint64_t token)
{
    return token <= atomic_load(&arena->header->token_reserve);
}

/* Another client may have done it before we had the lock. */
enum hf_err hf_arena_raise_tokens(struct hf_arena *arena, uint64_t token)
{
    enum hf_err err = HF_OK;

    if (!claim_reserve(arena))
        return HF_EBUSY;
    if (!hf_arena_has_token(arena, token) ||
        hf_mark_is_missing(arena->directory))
        err = write_reserve(arena, token);
    release_reserve(arena);
    return err;
}

enum hf_err hf_arena_refill_tokens(struct hf_arena *arena, uint64_t token)
{
    uint64_t wanted = token + TOKENS_AHEAD / 2;

    if (hf_arena_has_token(arena, wanted) && !arena->mark_missing)
        return HF_OK;
    return hf_arena_raise_tokens(arena, wanted);
}
