/* recorder.h - record a history while a program runs.
 *
 * Any thread may call at any time. The caller provides every instant, from one
 * clock: read before the call for an invocation, after it for a return. Each
 * call locks a mutex, makes a hash lookup and copies the data; with a file, it
 * also makes one write(2).
 *
 * A history in memory can be checked directly. A file can be shared by several
 * processes: each line is appended by one write(2), and an operation is written
 * when it begins and again when it ends, so that the calls of a killed process
 * are not lost. Client numbers must be unique in the file, a client belongs to
 * one recorder, and the number of a dead client is not used again.
 *
 *     hf_recorder_init(&r, true);
 *     op = hf_recorder_begin(&r, &(struct hf_recorder_call){
 *         .kind = HF_OP_LOCK, .client = 1, .key = "k", .key_len = 1,
 *         .lease = lease_ns, .now = clock_ns()});
 *     err = hf_acquire(...);
 *     hf_recorder_end(&r, op, &(struct hf_recorder_answer){
 *         .result = HF_OP_OK, .token = hf_lock_token(lock), .nonce = nonce,
 *         .deadline = deadline_ns, .now = clock_ns()});
 *     hf_check_run(hf_recorder_history(&r), &report); */
#ifndef HF_CHECK_TOOL_RECORDER_H
#define HF_CHECK_TOOL_RECORDER_H

#include "history.h"

#include <pthread.h>
#include <stdio.h>

struct hf_recorder {
    pthread_mutex_t mutex;
    struct hf_check_history history;
    int file;  /* -1 if there is no file */
    int error; /* errno of the first write that failed */
};

/* The fields known when an operation begins. */
struct hf_recorder_call {
    enum hf_op_kind kind;
    uint32_t client;
    const void *key;
    size_t key_len;    /* 1 to HF_OP_TEXT_MAX */
    const char *nonce; /* hexadecimal; NULL if not known yet */
    uint64_t token;    /* of the grant; 0 for a lock or a read */
    uint64_t lease;    /* of a lock or renewal; 0 if not known */
    const char *cell;  /* of a write, else NULL */
    uint64_t value;    /* of a write */
    bool unfenced;     /* a write to a cell that does not compare tokens */
    uint64_t now;
};

/* The fields known when an operation ends. */
struct hf_recorder_answer {
    enum hf_op_result result;
    const char *error; /* "HF_EBUSY"; NULL if none */
    const char *nonce; /* as in the call, if known only now */
    uint64_t token;    /* granted, or seen by a read; 0 if none */
    uint64_t deadline; /* 0: the lock is valid until it is released */
    uint64_t lease;    /* as in the call, if known only now */
    uint64_t now;
};

/* Record into memory. `fifo` is true if the service promises to grant in order
 * of arrival. */
void hf_recorder_init(struct hf_recorder *r, bool fifo);
void hf_recorder_fini(struct hf_recorder *r);

/* Append to the file `path` as well from now on. It is created if necessary,
 * and gets a header if it is empty. Returns 0, or -1 with errno. */
int hf_recorder_open(struct hf_recorder *r, const char *path);

/* Begin an operation. Returns its handle for hf_recorder_queued() and
 * hf_recorder_end(). */
size_t hf_recorder_begin(struct hf_recorder *r,
                         const struct hf_recorder_call *call);

/* Record that the caller of a lock learned that it is queued. */
void hf_recorder_queued(struct hf_recorder *r, size_t op, uint64_t now);

/* End an operation. Call this once for each operation. An operation that does
 * not end is unknown. Asserts that the record is consistent: a granted lock has
 * a token, the return is after the invocation, ... */
void hf_recorder_end(struct hf_recorder *r, size_t op,
                     const struct hf_recorder_answer *answer);

/* Record that `client` was killed. `now` is just before the kill was sent. If
 * the client acts after that, it counts as dead from its last act on. */
void hf_recorder_death(struct hf_recorder *r, uint32_t client, uint64_t now);

/* Record that `client` was notified that its lock is lost, or found that it is
 * not valid. */
void hf_recorder_lost(struct hf_recorder *r, uint32_t client, const void *key,
                      size_t key_len, uint64_t token, uint64_t now);

/* Add a note about an action of the nemesis. */
void hf_recorder_note(struct hf_recorder *r, uint64_t now, const char *text);

/* Return the recorded history, borrowed. No thread may record while it is in
 * use. */
const struct hf_check_history *hf_recorder_history(const struct hf_recorder *r);

/* Write the recorded history. Returns 0, or -1 with errno. */
int hf_recorder_write(struct hf_recorder *r, FILE *out);

/* Returns 0, or the errno of the first failed append: the file is then not a
 * complete history. */
int hf_recorder_error(struct hf_recorder *r);

#endif
