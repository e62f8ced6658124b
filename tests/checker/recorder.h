/* recorder.h - write down a history while it happens.
 *
 * Any thread may call at any time. Every instant comes from the caller, who
 * reads one clock for all: before the call for an invocation, after it for a
 * return. A call here costs a lock, a hash and a copy; with a file, also one
 * write(2).
 *
 * In memory the history can be checked as it is. In a file it can be shared by
 * many processes: each line is appended by one write(2), and an operation is
 * written when it begins and again when it ends, so that a process that is
 * killed leaves all that it began. Client numbers must be unique in the file,
 * and a client must belong to one recorder; a client that died does not return.
 *
 *     recorder_init(&r, true);
 *     op = recorder_begin(&r, &(struct recorder_call){
 *         .kind = HISTORY_LOCK, .client = 1, .key = "k", .key_len = 1,
 *         .lease = lease_ns, .now = clock_ns()});
 *     err = hf_lock(...);
 *     recorder_end(&r, op, &(struct recorder_answer){
 *         .result = HISTORY_OK, .token = hf_token(lock), .nonce = nonce,
 *         .deadline = deadline_ns, .now = clock_ns()});
 *     check_history(recorder_history(&r), &report); */
#ifndef CHECKER_RECORDER_H
#define CHECKER_RECORDER_H

#include "history.h"

#include <pthread.h>

struct recorder {
    pthread_mutex_t mutex;
    struct history history;
    int file;  /* -1 without one */
    int error; /* errno of the first write that failed */
};

/* What is known when an operation begins. */
struct recorder_call {
    enum history_kind kind;
    uint32_t client;
    const void *key;
    size_t key_len;    /* 1 to HISTORY_TEXT_MAX */
    const char *nonce; /* hexadecimal; NULL if not known yet */
    uint64_t token;    /* of the grant; 0 for a lock or a read */
    uint64_t lease;    /* of a lock or renewal; 0 if not known */
    const char *cell;  /* of a write, else NULL */
    uint64_t value;    /* of a write */
    bool unfenced;     /* a write to a cell that does not compare tokens */
    uint64_t now;
};

/* What is known when it ends. */
struct recorder_answer {
    enum history_result result;
    const char *error; /* "HF_EBUSY"; NULL if none */
    const char *nonce; /* as above, if it is known only now */
    uint64_t token;    /* granted, or seen by a read; 0 if none */
    uint64_t deadline; /* 0 if none: valid until it is given back */
    uint64_t lease;    /* as above, if it is known only now */
    uint64_t now;
};

/* Record into memory. */
void recorder_init(struct recorder *r, bool fifo);
void recorder_fini(struct recorder *r);

/* Append to the file `path` too from now on. It is made if it is not there, and
 * whoever finds it empty writes the header. 0, or -1 with errno. */
int recorder_open(struct recorder *r, const char *path);

/* An operation begins; the answer is its handle, for the next two. */
size_t recorder_begin(struct recorder *r, const struct recorder_call *call);

/* The caller of a lock was told that it waits in line. */
void recorder_queued(struct recorder *r, size_t op, uint64_t now);

/* It ends, once. One that never does is unknown. Asserts that the record makes
 * sense: a granted lock has a token, a return follows its invocation, ... */
void recorder_end(struct recorder *r, size_t op,
                  const struct recorder_answer *answer);

/* `client` was killed: `now` is an instant just before the kill was sent. If it
 * acts after that all the same, it counts as dead from its last act on. */
void recorder_death(struct recorder *r, uint32_t client, uint64_t now);

/* `client` was told that its lock is lost, or saw that it is not valid. */
void recorder_lost(struct recorder *r, uint32_t client, const void *key,
                   size_t key_len, uint64_t token, uint64_t now);

/* What the nemesis did. */
void recorder_note(struct recorder *r, uint64_t now, const char *text);

/* What was recorded, borrowed. Nobody may record while it is used. */
const struct history *recorder_history(const struct recorder *r);

/* Write all that was recorded. 0, or -1 with errno. */
int recorder_write(struct recorder *r, FILE *out);

/* 0, or the errno of the first line that could not be appended: the file is
 * then no history. */
int recorder_error(struct recorder *r);

#endif
