#include "conformance/recorded.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "checker/check.h"
#include "checker/recorder.h"
#include "checker/report.h"

#define CLIENTS_MAX 256
#define HEX_SIZE (2 * HF_NONCE_SIZE + 1)
#define NS_IN_MS 1000000u

/* One claim, from its beginning on. The library may still call back when its
 * handle is gone from the case's sight, so it lives as long as the history. */
struct recorded_claim {
    struct recorded_claim *next;
    struct hf_client *client;
    uint32_t number; /* the client's */
    struct hf_lock *lock;
    struct hf_future *future;
    struct hf_lock_opts opts; /* the user's */
    size_t op;
    uint64_t token; /* of the grant, as is the nonce */
    char hex[HEX_SIZE];
    bool held;     /* granted, and not given back by the case */
    bool answered; /* from here on nothing about the wait is recorded */
    size_t key_size;
    unsigned char key[];
};

static struct recorder recorder;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* what follows */
static struct recorded_claim *claims;
static const struct hf_client *clients[CLIENTS_MAX];

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t deadline_ns(const struct hf_lock *lock)
{
    int64_t deadline = hf_deadline(lock);

    /* 0 would mean that there is none: it is over already. */
    return deadline > 0 ? (uint64_t)deadline * NS_IN_MS : 1;
}

static const char *nonce_of(const struct hf_lock *lock, char hex[HEX_SIZE])
{
    uint8_t nonce[HF_NONCE_SIZE] = {0};

    hf_nonce(lock, nonce);
    for (size_t i = 0; i < HF_NONCE_SIZE; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", nonce[i]);
    return hex;
}

/* Clients are numbered as they come. */
static uint32_t number_of(const struct hf_client *client)
{
    uint32_t number = 0;

    pthread_mutex_lock(&mutex);
    while (number < CLIENTS_MAX && clients[number] && clients[number] != client)
        number++;
    if (number < CLIENTS_MAX)
        clients[number] = client;
    pthread_mutex_unlock(&mutex);
    if (number == CLIENTS_MAX)
        abort();
    return number + 1;
}

void recorded_init(bool fifo)
{
    recorder_init(&recorder, fifo);
}

void recorded_fini(void)
{
    while (claims) {
        struct recorded_claim *claim = claims;

        claims = claim->next;
        free(claim);
    }
    recorder_fini(&recorder);
}

int recorded_check(const char *name)
{
    struct check_report report;

    check_history(recorder_history(&recorder), &report);
    if (report.violation_count == 0)
        return 0;
    report_text(recorder_history(&recorder), &report, name, stderr);
    return -1;
}

/* ---- Taking -------------------------------------------------------------*/

static struct recorded_claim *new_claim(struct hf_client *client,
                                        struct hf_key key,
                                        const struct hf_lock_opts *opts)
{
    struct recorded_claim *claim = calloc(1, sizeof(*claim) + key.size);

    if (!claim)
        abort();
    claim->client = client;
    claim->number = number_of(client);
    if (opts)
        claim->opts = *opts;
    else
        hf_lock_opts_init(&claim->opts);
    claim->key_size = key.size;
    if (key.size)
        memcpy(claim->key, key.data, key.size);
    pthread_mutex_lock(&mutex);
    claim->next = claims;
    claims = claim;
    pthread_mutex_unlock(&mutex);
    return claim;
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    struct recorded_claim *claim = arg;

    pthread_mutex_lock(&mutex);
    if (event == HF_LOCK_EVENT_WAITING && !claim->answered)
        recorder_queued(&recorder, claim->op, now_ns());
    pthread_mutex_unlock(&mutex);
    if (event == HF_LOCK_EVENT_LOST)
        recorder_lost(&recorder, claim->number, claim->key, claim->key_size,
                      hf_token(lock), now_ns());
    claim->opts.on_event(lock, event, claim->opts.arg);
}

/* The user's options; where it listens, so do we. Where it does not, neither:
 * a client that has events to tell may need a thread. */
static struct hf_lock_opts listening(struct recorded_claim *claim)
{
    struct hf_lock_opts opts = claim->opts;

    if (opts.on_event) {
        opts.on_event = on_event;
        opts.arg = claim;
    }
    return opts;
}

static void begin_lock(struct recorded_claim *claim)
{
    uint32_t ttl_ms = claim->opts.ttl_ms ? claim->opts.ttl_ms : 10000;

    claim->op =
        recorder_begin(&recorder, &(struct recorder_call){
                                      .kind = HISTORY_LOCK,
                                      .client = claim->number,
                                      .key = claim->key,
                                      .key_len = claim->key_size,
                                      .lease = (uint64_t)ttl_ms * NS_IN_MS,
                                      .now = now_ns(),
                                  });
}

static enum history_result result_of(enum hf_err err)
{
    if (err == HF_OK)
        return HISTORY_OK;
    return err == HF_EINDOUBT ? HISTORY_UNKNOWN : HISTORY_FAIL;
}

static const char *error_of(enum hf_err err)
{
    return err && err != HF_EINDOUBT ? hf_err_name(err) : NULL;
}

/* A claim that stood in line can have been granted at the last moment, and have
 * held the key until its withdrawal gave it back. */
static enum hf_err claim_result(enum hf_err err)
{
    bool withdrawn =
        err == HF_ETIMEDOUT || err == HF_ECANCELED || err == HF_ECLOSED;

    return withdrawn ? HF_EINDOUBT : err;
}

static void end_lock(struct recorded_claim *claim, enum hf_err err)
{
    struct recorder_answer answer = {
        .result = result_of(claim_result(err)),
        .error = error_of(claim_result(err)),
    };

    if (err == HF_OK) {
        claim->token = hf_token(claim->lock);
        answer.token = claim->token;
        answer.nonce = nonce_of(claim->lock, claim->hex);
        answer.deadline = deadline_ns(claim->lock);
    }
    pthread_mutex_lock(&mutex);
    claim->answered = true;
    claim->held = err == HF_OK;
    pthread_mutex_unlock(&mutex);
    answer.now = now_ns();
    recorder_end(&recorder, claim->op, &answer);
}

enum hf_err recorded_lock(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock)
{
    struct recorded_claim *claim = new_claim(client, key, opts);
    struct hf_lock_opts heard = listening(claim);
    enum hf_err err;

    begin_lock(claim);
    err = hf_lock(client, key, &heard, &claim->lock);
    end_lock(claim, err);
    if (err == HF_OK)
        *lock = claim->lock;
    return err;
}

struct recorded_claim *recorded_lock_start(struct hf_client *client,
                                           struct hf_key key,
                                           const struct hf_lock_opts *opts)
{
    struct recorded_claim *claim = new_claim(client, key, opts);
    struct hf_lock_opts heard = listening(claim);
    enum hf_err err;

    begin_lock(claim);
    err = hf_lock_start(client, key, &heard, &claim->lock, NULL, NULL,
                        &claim->future);
    if (err == HF_OK)
        return claim;
    end_lock(claim, err);
    return NULL;
}

enum hf_err recorded_lock_wait(struct recorded_claim *claim, uint32_t wait_ms,
                               struct hf_lock **lock)
{
    enum hf_err err = HF_OK;
    enum hf_err waited = hf_future_wait(claim->future, wait_ms, &err);

    if (waited)
        return waited;
    end_lock(claim, err);
    hf_future_free(claim->future);
    claim->future = NULL;
    if (err == HF_OK)
        *lock = claim->lock;
    return err;
}

bool recorded_lock_done(const struct recorded_claim *claim)
{
    return hf_future_done(claim->future, NULL);
}

struct hf_future *recorded_lock_future(const struct recorded_claim *claim)
{
    return claim->future;
}

enum hf_err recorded_claim(struct hf_client *client, struct hf_lock *lock)
{
    struct recorded_claim *claim = new_claim(client, hf_lock_key(lock), NULL);
    enum hf_err err;

    begin_lock(claim);
    claim->lock = lock;
    err = hf_claim(lock);
    end_lock(claim, err);
    return err;
}

/* ---- On a handle --------------------------------------------------------*/

static size_t begin_on(enum history_kind kind, uint32_t number,
                       const struct hf_lock *lock)
{
    struct hf_key key = hf_lock_key(lock);
    char hex[HEX_SIZE];

    return recorder_begin(&recorder, &(struct recorder_call){
                                         .kind = kind,
                                         .client = number,
                                         .key = key.data,
                                         .key_len = key.size,
                                         .nonce = nonce_of(lock, hex),
                                         .token = hf_token(lock),
                                         .now = now_ns(),
                                     });
}

static void end_on(size_t op, enum hf_err err, uint64_t deadline)
{
    recorder_end(&recorder, op,
                 &(struct recorder_answer){
                     .result = result_of(err),
                     .error = error_of(err),
                     .deadline = err == HF_OK ? deadline : 0,
                     .now = now_ns(),
                 });
}

/* Without a look at the handle, which may be gone. */
static void begin_release(const struct recorded_claim *claim)
{
    (void)recorder_begin(&recorder, &(struct recorder_call){
                                        .kind = HISTORY_UNLOCK,
                                        .client = claim->number,
                                        .key = claim->key,
                                        .key_len = claim->key_size,
                                        .nonce = claim->hex,
                                        .token = claim->token,
                                        .now = now_ns(),
                                    });
}

/* The case lets go of `lock`; of all locks of `client` where it is NULL. What
 * was held ends, at some time from now on: whether it is confirmed or not, and
 * in whichever way, nobody is told. */
static void let_go(struct hf_client *client, const struct hf_lock *lock,
                   bool record)
{
    pthread_mutex_lock(&mutex);
    for (struct recorded_claim *claim = claims; claim; claim = claim->next) {
        if (!claim->held || claim->client != client ||
            (lock && claim->lock != lock))
            continue;
        claim->held = false;
        if (record)
            begin_release(claim);
    }
    pthread_mutex_unlock(&mutex);
}

enum hf_err recorded_unlock(struct hf_client *client, struct hf_lock *lock)
{
    size_t op = begin_on(HISTORY_UNLOCK, number_of(client), lock);
    enum hf_err err = hf_unlock(lock);

    end_on(op, err, 0);
    let_go(client, lock, false);
    return err;
}

/* A handle whose validity is over is lost, whatever the server knows: that
 * answer tells nothing about the key. */
static enum hf_err as_seen_by_the_server(enum hf_err err, uint64_t deadline)
{
    return err == HF_EEXPIRED && now_ns() >= deadline ? HF_EINDOUBT : err;
}

enum hf_err recorded_renew(struct hf_client *client, struct hf_lock *lock,
                           uint32_t ttl_ms)
{
    uint64_t deadline = deadline_ns(lock);
    size_t op = begin_on(HISTORY_RENEW, number_of(client), lock);
    enum hf_err err = hf_renew(lock, ttl_ms);

    end_on(op, as_seen_by_the_server(err, deadline), deadline_ns(lock));
    return err;
}

enum hf_err recorded_update(struct hf_client *client, struct hf_lock *lock,
                            const struct hf_bytes *expected,
                            struct hf_bytes value)
{
    uint64_t deadline = deadline_ns(lock);
    size_t op = begin_on(HISTORY_UPDATE, number_of(client), lock);
    enum hf_err err = hf_update(lock, expected, value);

    end_on(op, as_seen_by_the_server(err, deadline), 0);
    return err;
}

bool recorded_valid(struct hf_client *client, struct hf_lock *lock)
{
    size_t op = begin_on(HISTORY_RENEW, number_of(client), lock);
    uint64_t deadline = deadline_ns(lock);
    bool valid = hf_valid_for(lock, 0);

    /* Not valid is not an answer of the server's. */
    end_on(op, valid ? HF_OK : HF_EINDOUBT, deadline);
    return valid;
}

/* ---- On a key -----------------------------------------------------------*/

enum hf_err recorded_read(struct hf_client *client, struct hf_key key,
                          struct hf_info *info)
{
    size_t op = recorder_begin(&recorder, &(struct recorder_call){
                                              .kind = HISTORY_READ,
                                              .client = number_of(client),
                                              .key = key.data,
                                              .key_len = key.size,
                                              .now = now_ns(),
                                          });
    enum hf_err err = hf_read(client, key, HF_LINEARIZABLE, info);

    recorder_end(&recorder, op,
                 &(struct recorder_answer){
                     .result = result_of(err),
                     .error = error_of(err),
                     .token = !err && info->held ? info->token : 0,
                     .now = now_ns(),
                 });
    return err;
}

enum hf_err recorded_force_now(struct hf_client *client, struct hf_key key,
                               uint64_t token)
{
    size_t op = recorder_begin(&recorder, &(struct recorder_call){
                                              .kind = HISTORY_FORCE,
                                              .client = number_of(client),
                                              .key = key.data,
                                              .key_len = key.size,
                                              .token = token,
                                              .now = now_ns(),
                                          });
    enum hf_err err = hf_force(client, key, token, true);

    end_on(op, err, 0);
    return err;
}

enum hf_err recorded_close(struct hf_client *client)
{
    let_go(client, NULL, true);
    return hf_close(client, 5000);
}

void recorded_free(struct hf_client *client, struct hf_lock *lock)
{
    if (lock)
        let_go(client, lock, true);
    hf_lock_free(lock);
}
