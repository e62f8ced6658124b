/* mark.c - tokens that outlive everything else: the file `token` names one
 * that none in use is above, and is never lowered. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mutant.h"
#include "base/step.h"
#include "strategy/file/layout.h"

#define TOKENS_AHEAD (UINT64_C(1) << 20)
#define TOKENS_MAX (UINT64_MAX / 2) /* more were never used */

static bool write_all(int file, const char *text)
{
    size_t size = strlen(text);

    return write(file, text, size) == (ssize_t)size && !fsync(file);
}

enum hf_err hf_mark_write(int directory, uint64_t token)
{
    char text[32];
    bool written;
    int file;

    (void)unlinkat(directory, "token.new", 0);
    file = openat(directory, "token.new",
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);

    if (file < 0)
        return HF_ESYSTEM;
    HF_STEP(15);
    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)token);
    written = write_all(file, text);
    (void)close(file);
    HF_STEP(16);
    if (!written || renameat(directory, "token.new", directory, "token") ||
        fsync(directory))
        return HF_ESYSTEM;
    return HF_OK;
}

enum hf_err hf_mark_read(int directory, uint64_t *token)
{
    int file = openat(directory, "token",
                      O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    char text[32] = "";
    char *end = text;
    ssize_t size;

    *token = 0;
    if (file < 0)
        return errno == ENOENT ? HF_OK : HF_ESYSTEM;
    size = read(file, text, sizeof(text) - 1);
    (void)close(file);
    errno = 0;
    if (size > 0 && text[0] >= '0' && text[0] <= '9')
        *token = strtoull(text, &end, 10);
    if (end == text || *end != '\n' || errno || *token > TOKENS_MAX)
        return HF_EPROTO;
    return HF_OK;
}

enum hf_err hf_arena_reserve_tokens(struct hf_arena *arena, uint64_t token)
{
    struct hf_arena_header *header = arena->header;
    uint64_t mark;
    enum hf_err err;

    if (token <= atomic_load(&header->token_reserve))
        return HF_OK;
    err = hf_mark_read(arena->directory, &mark);
    if (err && err != HF_EPROTO)
        return err;
    if (err || mark < token)
        mark = token; /* scribbled: what the arena knows is at least right */
    mark += TOKENS_AHEAD;
    err = HF_MUTANT(64) ? HF_OK : hf_mark_write(arena->directory, mark);
    HF_STEP(17);
    if (!err)
        atomic_store(&header->token_reserve, mark);
    return err;
}

uint64_t hf_arena_first_token(const struct hf_arena *arena)
{
    return arena->header->label.first_token;
}
