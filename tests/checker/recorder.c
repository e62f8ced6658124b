/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "recorder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t shorter(size_t len)
{
    return len < HISTORY_TEXT_MAX ? len : HISTORY_TEXT_MAX;
}

static uint32_t word(struct recorder *r, const char *text)
{
    return text ? words_add(&r->history.words, text, shorter(strlen(text))) : 0;
}

/* One write(2) for a line: the kernel puts it behind those of others whole. */
static int append(int file, const char *line, size_t len)
{
    ssize_t written;

    do {
        written = write(file, line, len);
    } while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written < len) {
        errno = ENOSPC; /* the file has a torn line now */
        return -1;
    }
    return written < 0 ? -1 : 0;
}

static void lock(struct recorder *r)
{
    pthread_mutex_lock(&r->mutex);
}

/* Unlock, and append what was written meanwhile, outside of the mutex: other
 * threads need not wait for the file. */
static void unlock_and_append(struct recorder *r, const char *line, size_t len)
{
    int file = r->file;

    pthread_mutex_unlock(&r->mutex);
    if (file < 0 || append(file, line, len) == 0)
        return;
    int error = errno;

    lock(r);
    if (!r->error)
        r->error = error;
    pthread_mutex_unlock(&r->mutex);
}

void recorder_init(struct recorder *r, bool fifo)
{
    pthread_mutex_init(&r->mutex, NULL);
    history_init(&r->history, fifo);
    r->file = -1;
    r->error = 0;
}

void recorder_fini(struct recorder *r)
{
    if (r->file >= 0)
        close(r->file);
    history_fini(&r->history);
    pthread_mutex_destroy(&r->mutex);
}

/* Under a lock on the file, so that of two that find it empty one writes. */
static int begin_file(const struct recorder *r, int file)
{
    char line[HISTORY_LINE_MAX];
    struct stat status;
    int answer = 0;

    if (flock(file, LOCK_EX) < 0 || fstat(file, &status) < 0)
        return -1;
    if (status.st_size == 0)
        answer = append(file, line, history_write_header(&r->history, line));
    return flock(file, LOCK_UN) < 0 ? -1 : answer;
}

int recorder_open(struct recorder *r, const char *path)
{
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

    if (file < 0)
        return -1;
    if (begin_file(r, file) < 0) {
        int error = errno;

        close(file);
        errno = error;
        return -1;
    }
    lock(r);
    if (r->file >= 0)
        close(r->file);
    r->file = file;
    pthread_mutex_unlock(&r->mutex);
    return 0;
}

size_t recorder_begin(struct recorder *r, const struct recorder_call *call)
{
    char line[HISTORY_LINE_MAX];
    struct history_op op = history_op(call->kind, call->client, call->now);
    size_t len = 0;

    lock(r);
    op.id = r->history.op_count;
    op.key = words_add(&r->history.words, call->key, shorter(call->key_len));
    op.nonce = word(r, call->nonce);
    op.cell = word(r, call->cell);
    op.token = call->token;
    op.lease = call->lease;
    op.value = call->value;
    op.fenced = !call->unfenced;
    assert(!history_op_fault(&op));
    size_t index = history_add(&r->history, &op);

    if (r->file >= 0)
        len = history_write_op(&r->history, &op, line);
    unlock_and_append(r, line, len);
    return index;
}

void recorder_queued(struct recorder *r, size_t op, uint64_t now)
{
    lock(r);
    assert(op < r->history.op_count);
    r->history.ops[op].queued = now;
    pthread_mutex_unlock(&r->mutex);
}

static void fill_answer(struct recorder *r, struct history_op *op,
                        const struct recorder_answer *answer)
{
    const char *error = answer->error ? answer->error : "";

    op->answered = true;
    op->result = (uint8_t)answer->result;
    op->answer = answer->now;
    history_set_error(&r->history, op, error, shorter(strlen(error)));
    if (answer->nonce)
        op->nonce = word(r, answer->nonce);
    if (answer->token)
        op->token = answer->token;
    if (answer->deadline)
        op->deadline = answer->deadline;
    if (answer->lease)
        op->lease = answer->lease;
}

void recorder_end(struct recorder *r, size_t op,
                  const struct recorder_answer *answer)
{
    char line[HISTORY_LINE_MAX];
    size_t len = 0;

    lock(r);
    assert(op < r->history.op_count);
    struct history_op *ended = &r->history.ops[op];

    assert(!ended->answered);
    fill_answer(r, ended, answer);
    assert(!history_op_fault(ended));
    if (r->file >= 0)
        len = history_write_op(&r->history, ended, line);
    unlock_and_append(r, line, len);
}

void recorder_death(struct recorder *r, uint32_t client, uint64_t now)
{
    char line[HISTORY_LINE_MAX];
    struct history_death death = {.time = now, .client = client};

    lock(r);
    history_add_death(&r->history, death);
    unlock_and_append(r, line, history_write_death(&death, line));
}

void recorder_lost(struct recorder *r, uint32_t client, const void *key,
                   size_t key_len, uint64_t token, uint64_t now)
{
    char line[HISTORY_LINE_MAX];
    struct history_lost lost = {.time = now, .token = token, .client = client};

    lock(r);
    lost.key = words_add(&r->history.words, key, shorter(key_len));
    history_add_lost(&r->history, lost);
    unlock_and_append(r, line, history_write_lost(&r->history, &lost, line));
}

void recorder_note(struct recorder *r, uint64_t now, const char *text)
{
    char line[HISTORY_LINE_MAX];
    struct history_note note = {.time = now};

    lock(r);
    note.text = word(r, text);
    history_add_note(&r->history, note);
    unlock_and_append(r, line, history_write_note(&r->history, &note, line));
}

const struct history *recorder_history(const struct recorder *r)
{
    return &r->history;
}

int recorder_write(struct recorder *r, FILE *out)
{
    lock(r);
    int answer = history_write(&r->history, out);

    pthread_mutex_unlock(&r->mutex);
    return answer;
}

int recorder_error(struct recorder *r)
{
    lock(r);
    int error = r->error;

    pthread_mutex_unlock(&r->mutex);
    return error;
}
