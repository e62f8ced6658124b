/* handle.c - one handle: its states, its life, what it tells. */
#include "client/handle.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "client/hold.h"
#include "client/keeper.h"
#include "client/release.h"

/* ---- States -------------------------------------------------------------*/

#define MOVE(state) (1u << HF_LOCK_##state)

static const unsigned moves[] = {
    [HF_LOCK_IDLE] = MOVE(CLAIMING) | MOVE(HELD), /* HELD: adopted */
    [HF_LOCK_CLAIMING] = MOVE(HELD) | MOVE(IDLE),
    [HF_LOCK_HELD] = MOVE(RELEASING) | MOVE(LOST) | MOVE(IDLE),
    [HF_LOCK_LOST] = MOVE(RELEASING) | MOVE(CLAIMING) | MOVE(IDLE),
    [HF_LOCK_RELEASING] = MOVE(IDLE),
};

void hf_lock_move(struct hf_lock *lock, enum hf_lock_state state)
{
    HF_ASSERT(moves[lock->state] & (1u << state));
    lock->state = state;
    lock->phase = HF_CLAIM_NONE;
}

void hf_lock_set_failure(struct hf_lock *lock, enum hf_err err,
                         const char *text)
{
    free(lock->failure_text);
    lock->failure = err;
    lock->renewal_failure = false;
    lock->failure_text = text ? strdup(text) : NULL;
}

/* ---- Telling ------------------------------------------------------------*/

void hf_lock_tell(struct hf_lock *lock, enum hf_lock_event event)
{
    if (lock->told & (1u << event))
        return;
    lock->told |= 1u << event; /* also where nobody listens */
    if (lock->freed || !lock->on_event)
        return;
    /* Once it is lost, nothing else matters. */
    if (event == HF_LOCK_EVENT_LOST)
        lock->to_tell = 0;
    lock->to_tell |= 1u << event;
    hf_loop_callback(lock->client, &lock->callback,
                     event == HF_LOCK_EVENT_LOST);
}

static void run_event(struct hf_callback *callback)
{
    struct hf_lock *lock = HF_CONTAINER(callback, struct hf_lock, callback);
    struct hf_client *client = lock->client;
    hf_lock_event_fn *on_event = lock->on_event;
    enum hf_lock_event event = HF_LOCK_EVENT_WAITING;
    void *arg = lock->arg;

    if (lock->to_tell == 0)
        return;
    while (!(lock->to_tell & (1u << event)))
        event++;
    lock->to_tell &= ~(1u << event);
    if (lock->to_tell)
        hf_loop_callback(client, callback, false);
    hf_lock_ref(lock);
    pthread_mutex_unlock(&client->mutex);
    on_event(lock, event, arg);
    hf_client_relock(client);
    if (event == HF_LOCK_EVENT_LOST && !hf_client_is_forked(client))
        hf_claim_resume(lock);
    hf_lock_unref(lock);
}

/* ---- Life ---------------------------------------------------------------*/

/* What was asked is answered, for whatever the handle does now. */
static void settled(struct hf_call *call)
{
    struct hf_lock *lock = HF_CONTAINER(call, struct hf_lock, call);

    hf_lock_ref(lock); /* telling may free it */
    if (lock->state == HF_LOCK_RELEASING)
        hf_release_settled(lock);
    else
        hf_claim_settled(lock);
    hf_lock_unref(lock);
}

static void on_timer(struct hf_timer *timer)
{
    struct hf_lock *lock = HF_CONTAINER(timer, struct hf_lock, timer);

    if (lock->state == HF_LOCK_HELD)
        hf_keeper_tick(lock);
    else
        hf_claim_tick(lock);
}

bool hf_lock_is_kept(const struct hf_lock *lock)
{
    return lock->renewal || lock->on_event;
}

void hf_lock_ref(struct hf_lock *lock)
{
    lock->references++;
}

static void destroy(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    client->kept -= hf_lock_is_kept(lock);
    hf_keeper_fini(lock);
    hf_call_fini(&lock->call);
    client->host.ops->timer_remove(&client->host, &lock->timer);
    hf_list_remove(&lock->callback.link);
    hf_list_remove(&lock->link);
    free(lock->failure_text);
    explicit_bzero(&lock->nonce, sizeof(lock->nonce));
    free(lock);
    hf_client_unref(client);
}

void hf_lock_unref(struct hf_lock *lock)
{
    if (--lock->references == 0)
        destroy(lock);
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
    lock->from_claim = opts->from_claim;
    lock->on_event = opts->on_event;
    lock->arg = opts->arg;
    hf_copy(value, opts->value.data, opts->value.size);
    lock->value = (struct hf_bytes){value, opts->value.size};
    lock->note = (struct hf_bytes){note, opts->note ? strlen(opts->note) : 0};
    hf_copy(note, opts->note, lock->note.size);
}

enum hf_err hf_handle_new(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **made)
{
    size_t note_size = opts->note ? strlen(opts->note) : 0;
    /* malloc: glibc's calloc passes its thread cache by, and is slower. */
    struct hf_lock *lock =
        malloc(sizeof(*lock) + key.size + opts->value.size + note_size);
    enum hf_err err;

    if (!lock)
        return HF_ENOMEM;
    *lock = (struct hf_lock){
        .client = client,
        .references = 1,
        .timer.fire = on_timer,
        .callback.run = run_event,
        .limit = HF_NEVER,
        .key_size = key.size,
    };
    hf_copy(lock->bytes, key.data, key.size);
    copy_options(lock, opts);
    hf_list_init(&lock->claim_waiters);
    err = hf_call_init(&lock->call, client, settled);
    if (err)
        goto fail;
    err = client->host.ops->timer_add(&client->host, &lock->timer);
    if (err)
        goto fail_call;
    err = hf_keeper_init(lock);
    if (err)
        goto fail_timer;
    hf_list_push_back(&client->locks, &lock->link);
    hf_client_ref(client);
    client->kept += hf_lock_is_kept(lock);
    *made = lock;
    return HF_OK;

fail_timer:
    client->host.ops->timer_remove(&client->host, &lock->timer);
fail_call:
    hf_call_fini(&lock->call);
fail:
    free(lock);
    return err;
}

/* ---- Sending ------------------------------------------------------------*/

void hf_lock_command(struct hf_lock *lock, struct hf_call *call,
                     enum hf_command_kind kind)
{
    call->request.kind = HF_REQUEST_COMMAND;
    call->request.command = (struct hf_command){
        .kind = kind,
        .key = hf_lock_bytes(lock),
        .nonce = lock->nonce,
        .token = atomic_load_explicit(&lock->token, memory_order_relaxed),
    };
}

hf_time hf_lock_answer_by(const struct hf_lock *lock)
{
    return hf_time_add(hf_client_now(lock->client), lock->timeout_ms);
}

/* ---- Asking -------------------------------------------------------------*/

uint64_t hf_token(const struct hf_lock *lock)
{
    return lock ? atomic_load_explicit(&lock->token, memory_order_relaxed) : 0;
}

void hf_nonce(const struct hf_lock *lock, uint8_t nonce[HF_NONCE_SIZE])
{
    if (nonce)
        memset(nonce, 0, HF_NONCE_SIZE);
    if (!lock || !nonce || hf_client_enter_closed(lock->client))
        return;
    memcpy(nonce, lock->nonce.bytes, HF_NONCE_SIZE);
    hf_client_leave(lock->client);
}

struct hf_key hf_lock_key(const struct hf_lock *lock)
{
    return lock ? hf_lock_bytes(lock) : (struct hf_key){0};
}

enum hf_lock_state hf_lock_state(const struct hf_lock *lock)
{
    enum hf_lock_state state;

    if (!lock || hf_client_enter_closed(lock->client))
        return HF_LOCK_IDLE;
    state = hf_lock_state_now(lock);
    hf_client_leave(lock->client);
    return state;
}

uint32_t hf_lock_place(const struct hf_lock *lock)
{
    uint32_t place;

    if (!lock || hf_client_enter_closed(lock->client))
        return 0;
    place = lock->place;
    hf_client_leave(lock->client);
    return place;
}

void hf_lock_error(const struct hf_lock *lock, struct hf_error *error)
{
    if (!error)
        return;
    hf_error_code(error, HF_OK);
    if (!lock || hf_client_enter_closed(lock->client))
        return;
    hf_error_set(error, lock->failure, "%s",
                 lock->failure_text ? lock->failure_text
                                    : hf_err_text(lock->failure));
    hf_client_leave(lock->client);
}
