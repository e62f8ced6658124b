/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "recorder.h"

#include "encoder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t clip_len(size_t len)
{
    return len < HF_OP_TEXT_MAX ? len : HF_OP_TEXT_MAX;
}

static uint32_t intern_text(struct hf_recorder *r, const char *text)
{
    return text ? hf_intern_add(&r->history.strings, text,
                                clip_len(strlen(text)))
                : 0;
}

/* Write each line with one write(2): with O_APPEND, the lines of several
 * processes do not mix. */
static int append_line(int file, const char *line, size_t len)
{
    ssize_t written;

    do {
        written = write(file, line, len);
    } while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written < len) {
        errno = ENOSPC; /* a short write sets no errno; the disk is full */
        return -1;
    }
    return written < 0 ? -1 : 0;
}

static void lock_recorder(struct hf_recorder *r)
{
    pthread_mutex_lock(&r->mutex);
}

/* Unlock, then append the line, so that other threads need not wait for the
 * file. */
static void unlock_and_append(struct hf_recorder *r, const char *line,
                              size_t len)
{
    int file = r->file;

    pthread_mutex_unlock(&r->mutex);
    if (file < 0 || append_line(file, line, len) == 0)
        return;
    int error = errno;

    lock_recorder(r);
    if (!r->error)
        r->error = error;
    pthread_mutex_unlock(&r->mutex);
}

void hf_recorder_init(struct hf_recorder *r, bool fifo)
{
    pthread_mutex_init(&r->mutex, NULL);
    hf_check_history_init(&r->history, fifo);
    r->file = -1;
    r->error = 0;
}

void hf_recorder_fini(struct hf_recorder *r)
{
    if (r->file >= 0)
        close(r->file);
    hf_check_history_fini(&r->history);
    pthread_mutex_destroy(&r->mutex);
}

/* Write the header if the file is empty. A file lock ensures that only one
 * process writes it. */
static int write_header_once(const struct hf_recorder *r, int file)
{
    char line[HF_ENCODER_LINE_MAX];
    struct stat status;
    int answer = 0;

    if (flock(file, LOCK_EX) < 0 || fstat(file, &status) < 0)
        return -1;
    if (status.st_size == 0)
        answer =
            append_line(file, line, hf_encoder_put_header(&r->history, line));
    return flock(file, LOCK_UN) < 0 ? -1 : answer;
}

int hf_recorder_open(struct hf_recorder *r, const char *path)
{
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

    if (file < 0)
        return -1;
    if (write_header_once(r, file) < 0) {
        int error = errno;

        close(file);
        errno = error;
        return -1;
    }
    lock_recorder(r);
    if (r->file >= 0)
        close(r->file);
    r->file = file;
    pthread_mutex_unlock(&r->mutex);
    return 0;
}

size_t hf_recorder_begin(struct hf_recorder *r,
                         const struct hf_recorder_call *call)
{
    char line[HF_ENCODER_LINE_MAX];
    struct hf_op op = hf_op_make(call->kind, call->client, call->now);
    size_t len = 0;

    lock_recorder(r);
    op.id = r->history.op_count;
    op.key =
        hf_intern_add(&r->history.strings, call->key, clip_len(call->key_len));
    op.nonce = intern_text(r, call->nonce);
    op.cell = intern_text(r, call->cell);
    op.token = call->token;
    op.lease = call->lease;
    op.value = call->value;
    op.fenced = !call->unfenced;
    assert(!hf_op_fault(&op));
    size_t index = hf_check_history_add(&r->history, &op);

    if (r->file >= 0)
        len = hf_encoder_put_op(&r->history, &op, line);
    unlock_and_append(r, line, len);
    return index;
}

void hf_recorder_queued(struct hf_recorder *r, size_t op, uint64_t now)
{
    lock_recorder(r);
    assert(op < r->history.op_count);
    r->history.ops[op].queued = now;
    pthread_mutex_unlock(&r->mutex);
}

static void fill_answer(struct hf_recorder *r, struct hf_op *op,
                        const struct hf_recorder_answer *answer)
{
    const char *error = answer->error ? answer->error : "";

    op->answered = true;
    op->result = (uint8_t)answer->result;
    op->answer = answer->now;
    hf_op_set_error(op, &r->history.strings, error, clip_len(strlen(error)));
    if (answer->nonce)
        op->nonce = intern_text(r, answer->nonce);
    if (answer->token)
        op->token = answer->token;
    if (answer->deadline)
        op->deadline = answer->deadline;
    if (answer->lease)
        op->lease = answer->lease;
}

void hf_recorder_end(struct hf_recorder *r, size_t op,
                     const struct hf_recorder_answer *answer)
{
    char line[HF_ENCODER_LINE_MAX];
    size_t len = 0;

    lock_recorder(r);
    assert(op < r->history.op_count);
    struct hf_op *ended = &r->history.ops[op];

    assert(!ended->answered);
    fill_answer(r, ended, answer);
    assert(!hf_op_fault(ended));
    if (r->file >= 0)
        len = hf_encoder_put_op(&r->history, ended, line);
    unlock_and_append(r, line, len);
}

void hf_recorder_death(struct hf_recorder *r, uint32_t client, uint64_t now)
{
    char line[HF_ENCODER_LINE_MAX];
    struct hf_op_death death = {.time = now, .client = client};

    lock_recorder(r);
    hf_check_history_add_death(&r->history, death);
    unlock_and_append(r, line, hf_encoder_put_death(&death, line));
}

void hf_recorder_lost(struct hf_recorder *r, uint32_t client, const void *key,
                      size_t key_len, uint64_t token, uint64_t now)
{
    char line[HF_ENCODER_LINE_MAX];
    struct hf_op_lost lost = {.time = now, .token = token, .client = client};

    lock_recorder(r);
    lost.key = hf_intern_add(&r->history.strings, key, clip_len(key_len));
    hf_check_history_add_lost(&r->history, lost);
    unlock_and_append(r, line, hf_encoder_put_lost(&r->history, &lost, line));
}

void hf_recorder_note(struct hf_recorder *r, uint64_t now, const char *text)
{
    char line[HF_ENCODER_LINE_MAX];
    struct hf_op_note note = {.time = now};

    lock_recorder(r);
    note.text = intern_text(r, text);
    hf_check_history_add_note(&r->history, note);
    unlock_and_append(r, line, hf_encoder_put_note(&r->history, &note, line));
}

const struct hf_check_history *hf_recorder_history(const struct hf_recorder *r)
{
    return &r->history;
}

int hf_recorder_write(struct hf_recorder *r, FILE *out)
{
    lock_recorder(r);
    int answer = hf_encoder_write(&r->history, out);

    pthread_mutex_unlock(&r->mutex);
    return answer;
}

int hf_recorder_error(struct hf_recorder *r)
{
    lock_recorder(r);
    int error = r->error;

    pthread_mutex_unlock(&r->mutex);
    return error;
}
