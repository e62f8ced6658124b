/* handle.c - state, lifetime and events of one handle. */
#include "client/handle.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "client/keeper.h"
#include "client/release.h"
#include "client/validity.h"

/* ---- States -------------------------------------------------------------*/

#define TO(state) (1u << HF_LOCK_##state)

static const unsigned transitions[] = {
    [HF_LOCK_IDLE] = TO(CLAIMING) | TO(HELD), /* HELD by hf_lock_adopt() */
    [HF_LOCK_CLAIMING] = TO(HELD) | TO(IDLE),
    [HF_LOCK_HELD] = TO(RELEASING) | TO(LOST) | TO(IDLE),
    [HF_LOCK_LOST] = TO(RELEASING) | TO(CLAIMING) | TO(IDLE),
    [HF_LOCK_RELEASING] = TO(IDLE),
};

void hf_handle_set_state(struct hf_lock *lock, enum hf_state state)
{
    HF_ASSERT(transitions[lock->state] & (1u << state));
    lock->state = state;
    lock->phase = HF_ACQUIRE_NONE;
}

void hf_handle_set_failure(struct hf_lock *lock, enum hf_err err,
                           const char *text)
{
    free(lock->failure_text);
    lock->failure = err;
    lock->renewal_failure = false;
    lock->failure_text = text ? strdup(text) : NULL;
}

/* ---- Events -------------------------------------------------------------*/

void hf_handle_report(struct hf_lock *lock, enum hf_lock_event event)
{
    if (lock->reported_events & (1u << event))
        return;
    /* Record the event even if there is no callback: the keeper checks it. */
    lock->reported_events |= 1u << event;
    if (lock->freed || !lock->on_event)
        return;
    if (event == HF_LOCK_EVENT_LOST)
        lock->pending_events = 0; /* LOST supersedes the others */
    lock->pending_events |= 1u << event;
    hf_loop_queue_callback(lock->client, &lock->callback,
                           event == HF_LOCK_EVENT_LOST);
}

static void run_event_callback(struct hf_callback *callback)
{
    struct hf_lock *lock = HF_CONTAINER(callback, struct hf_lock, callback);
    struct hf_client *client = lock->client;
    hf_lock_event_fn *on_event = lock->on_event;
    enum hf_lock_event event = HF_LOCK_EVENT_WAITING;
    void *arg = lock->arg;

    if (lock->pending_events == 0)
        return;
    while (!(lock->pending_events & (1u << event)))
        event++;
    lock->pending_events &= ~(1u << event);
    if (lock->pending_events)
        hf_loop_queue_callback(client, callback, false);
    hf_handle_ref(lock);
    pthread_mutex_unlock(&client->mutex);
    on_event(lock, event, arg);
    hf_client_relock(client);
    if (event == HF_LOCK_EVENT_LOST && !hf_client_is_forked(client))
        hf_acquire_resume(lock);
    hf_handle_unref(lock);
}

/* ---- Lifetime -----------------------------------------------------------*/

static void on_handle_settled(struct hf_call *call)
{
    struct hf_lock *lock = HF_CONTAINER(call, struct hf_lock, call);

    hf_handle_ref(lock); /* completing a claim or release may free the lock */
    if (lock->state == HF_LOCK_RELEASING)
        hf_release_on_settled(lock);
    else
        hf_acquire_on_settled(lock);
    hf_handle_unref(lock);
}

static void on_handle_timer(struct hf_timer *timer)
{
    struct hf_lock *lock = HF_CONTAINER(timer, struct hf_lock, timer);

    if (lock->state == HF_LOCK_HELD)
        hf_keeper_on_timer(lock);
    else
        hf_acquire_on_timer(lock);
}

bool hf_handle_needs_driver(const struct hf_lock *lock)
{
    return lock->renewal || lock->on_event;
}

void hf_handle_ref(struct hf_lock *lock)
{
    lock->references++;
}

static void destroy_handle(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    client->driven_locks -= hf_handle_needs_driver(lock);
    hf_keeper_fini(lock);
    hf_call_fini(&lock->call);
    client->host.ops->timer_remove(&client->host, &lock->timer);
    hf_dlist_remove(&lock->callback.link);
    hf_dlist_remove(&lock->link);
    free(lock->refusal_text);
    free(lock->failure_text);
    explicit_bzero(&lock->nonce, sizeof(lock->nonce));
    free(lock);
    hf_client_unref(client);
}

void hf_handle_unref(struct hf_lock *lock)
{
    if (--lock->references == 0)
        destroy_handle(lock);
}

static void copy_options(struct hf_lock *lock, const struct hf_lock_opts *opts)
{
    uint8_t *value = lock->bytes + lock->key_size;
    uint8_t *note = value + opts->value.size;

    lock->ttl_ms = opts->ttl_ms;
    lock->wait_ms = opts->wait_ms;
    lock->timeout_ms = opts->timeout_ms;
    lock->renew_ms = opts->renew_ms;
    lock->renew = opts->renew;
    lock->ttl_includes_wait = opts->ttl_includes_wait;
    lock->on_event = opts->on_event;
    lock->arg = opts->arg;
    hf_copy(value, opts->value.data, opts->value.size);
    lock->value = (struct hf_bytes){value, opts->value.size};
    lock->note = (struct hf_bytes){note, opts->note ? strlen(opts->note) : 0};
    hf_copy(note, opts->note, lock->note.size);
}

enum hf_err hf_handle_new(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **new_lock)
{
    size_t note_size = opts->note ? strlen(opts->note) : 0;
    /* malloc, because calloc bypasses the thread cache of glibc and is
     * slower. */
    struct hf_lock *lock =
        malloc(sizeof(*lock) + key.size + opts->value.size + note_size);
    enum hf_err err;

    if (!lock)
        return HF_ENOMEM;
    *lock = (struct hf_lock){
        .client = client,
        .references = 1,
        .timer.fire = on_handle_timer,
        .callback.run = run_event_callback,
        .limit = HF_NEVER,
        .key_size = key.size,
    };
    hf_copy(lock->bytes, key.data, key.size);
    copy_options(lock, opts);
    hf_dlist_init(&lock->claim_waiters);
    err = hf_call_init(&lock->call, client, on_handle_settled);
    if (err)
        goto fail;
    err = client->host.ops->timer_add(&client->host, &lock->timer);
    if (err)
        goto fail_call;
    err = hf_keeper_init(lock);
    if (err)
        goto fail_timer;
    hf_dlist_push_back(&client->locks, &lock->link);
    hf_client_ref(client);
    client->driven_locks += hf_handle_needs_driver(lock);
    *new_lock = lock;
    return HF_OK;

fail_timer:
    client->host.ops->timer_remove(&client->host, &lock->timer);
fail_call:
    hf_call_fini(&lock->call);
fail:
    free(lock);
    return err;
}

/* ---- Commands -----------------------------------------------------------*/

void hf_handle_fill_command(struct hf_lock *lock, struct hf_call *call,
                            enum hf_command_kind kind)
{
    call->request.kind = HF_REQUEST_COMMAND;
    call->request.command = (struct hf_command){
        .kind = kind,
        .key = hf_handle_key(lock),
        .nonce = lock->nonce,
        .token = atomic_load_explicit(&lock->token, memory_order_relaxed),
    };
}

void hf_handle_fill_lookup(struct hf_lock *lock, struct hf_call *call,
                           enum hf_consistency how)
{
    call->request.kind = HF_REQUEST_LOOKUP;
    call->request.how = how;
    call->request.command = (struct hf_command){
        .key = hf_handle_key(lock),
        .nonce = lock->nonce,
    };
}

hf_time hf_handle_call_deadline(const struct hf_lock *lock)
{
    return hf_time_add(hf_client_now(lock->client), lock->timeout_ms);
}

/* ---- Getters ------------------------------------------------------------*/

uint64_t hf_lock_token(const struct hf_lock *lock)
{
    return lock ? atomic_load_explicit(&lock->token, memory_order_relaxed) : 0;
}

void hf_lock_nonce(const struct hf_lock *lock, uint8_t nonce[HF_NONCE_SIZE])
{
    if (nonce)
        memset(nonce, 0, HF_NONCE_SIZE);
    if (!lock || !nonce || hf_client_enter_any(lock->client))
        return;
    memcpy(nonce, lock->nonce.bytes, HF_NONCE_SIZE);
    hf_client_leave(lock->client);
}

struct hf_key hf_lock_key(const struct hf_lock *lock)
{
    return lock ? hf_handle_key(lock) : (struct hf_key){0};
}

enum hf_state hf_lock_state(const struct hf_lock *lock)
{
    enum hf_state state;

    if (!lock || hf_client_enter_any(lock->client))
        return HF_LOCK_IDLE;
    state = hf_validity_state(lock);
    hf_client_leave(lock->client);
    return state;
}

uint32_t hf_lock_position(const struct hf_lock *lock)
{
    uint32_t position;

    if (!lock || hf_client_enter_any(lock->client))
        return 0;
    position = lock->position;
    hf_client_leave(lock->client);
    return position;
}

void hf_lock_error(const struct hf_lock *lock, struct hf_error *error)
{
    if (!error)
        return;
    hf_error_set_code(error, HF_OK);
    if (!lock || hf_client_enter_any(lock->client))
        return;
    hf_error_set(error, lock->failure, "%s",
                 lock->failure_text ? lock->failure_text
                                    : hf_err_text(lock->failure));
    hf_client_leave(lock->client);
}
