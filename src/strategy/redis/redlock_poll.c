/* redlock_poll.c - one request to all servers: asked, counted, decided. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "strategy/redis/redlock.h"

#define PATIENCE_MS 150 /* so long one server may hold up the others */

static bool is_silent(const struct hf_redlock_server *server)
{
    return hf_redis_link_is_silent(&server->link, HF_REDLOCK_SILENCE_MS);
}

/* With a majority of them nobody needs to wait for the others. */
static bool too_few_respond(const struct hf_redlock *redlock)
{
    unsigned count = 0;

    for (unsigned i = 0; i < redlock->count; i++)
        count += redlock->servers[i].link.state == HF_REDIS_UP &&
                 !is_silent(&redlock->servers[i]);
    return count < redlock->majority;
}

bool hf_redlock_can_ask(const struct hf_redlock_poll *poll,
                        const struct hf_redlock_server *server)
{
    return server->link.state == HF_REDIS_UP &&
           (poll->asks_silent || !is_silent(server));
}

/* Return true if the server may grant this. A server that has just started may
 * have forgotten its grants, and one that evicts keys may lose them. */
static bool may_vote(struct hf_redlock_poll *poll,
                     struct hf_redlock_server *server)
{
    struct hf_error error;

    if (poll->kind != HF_REQUEST_COMMAND ||
        !hf_redis_link_check(&server->link, &poll->command, &error))
        return true;
    hf_redlock_note_cause(poll, error.text);
    return false;
}

struct hf_redlock_poll *hf_redlock_poll_new(struct hf_redlock *redlock,
                                            struct hf_request *request)
{
    size_t size = sizeof(struct hf_redlock_poll) +
                  redlock->count * sizeof(struct hf_redlock_vote);
    struct hf_redlock_poll *poll = calloc(1, size + request->command.key.size);
    struct hf_key key = request->command.key;

    if (!poll)
        return NULL;
    for (unsigned i = 0; i < redlock->count; i++) {
        poll->votes[i].poll = poll;
        poll->votes[i].server = &redlock->servers[i];
    }
    poll->redlock = redlock;
    poll->request = request;
    poll->command = request->command;
    /* The last replies may come after the request is gone. */
    hf_copy((char *)poll + size, key.data, key.size);
    poll->command.key.data = (char *)poll + size;
    poll->asks_silent = too_few_respond(redlock);
    poll->kind = request->kind;
    poll->sent = redlock->host->ops->now(redlock->host);
    hf_list_push_back(&redlock->polls, &poll->link);
    return poll;
}

static void free_poll(struct hf_redlock_poll *poll)
{
    hf_list_remove(&poll->link);
    hf_list_remove(&poll->undecided);
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        struct hf_redlock_vote *vote = &poll->votes[i];

        hf_info_fini(&vote->info);
        for (size_t j = 0; j < vote->listed.count; j++)
            hf_info_fini(&vote->listed.infos[j]);
        free(vote->listed.infos);
        free(vote->listed.cause);
    }
    free(poll->cause);
    free(poll);
}

/* It goes when its last reply has come. */
static void settle(struct hf_redlock_poll *poll)
{
    struct hf_host *host = poll->redlock->host;
    struct hf_request *request = poll->request;

    hf_list_remove(&poll->undecided);
    if (hf_list_empty(&poll->redlock->undecided))
        hf_timer_set(host, &poll->redlock->impatience, HF_NEVER);
    poll->request = NULL;
    if (request)
        host->ops->answer(host, request);
}

void hf_redlock_answer(struct hf_redlock_poll *poll, enum hf_err err)
{
    poll->request->answer.result.err = err;
    if (!err && poll->request->keeps)
        hf_redlock_listen_soon(poll->redlock);
    if (err && poll->cause)
        hf_redis_explain(&poll->request->answer, poll->cause);
    settle(poll);
}

void hf_redlock_note_cause(struct hf_redlock_poll *poll, const char *text)
{
    if (!poll->cause)
        poll->cause = strdup(text);
}

/* ---- Votes --------------------------------------------------------------*/

/* Another's hold says more than that nobody holds, and a mark more than that.
 */
static void vote_no(struct hf_redlock_poll *poll, enum hf_err err)
{
    static const enum hf_err strength[] = {HF_ENOTHELD, HF_ENOTOWNER, HF_EBUSY,
                                           HF_EFORCED};
    size_t old = 0, now = 0;

    poll->no++;
    while (old < 4 && strength[old] != poll->why)
        old++;
    while (now < 4 && strength[now] != err)
        now++;
    if (old == 4 || (now < 4 && now > old))
        poll->why = err;
}

static bool send_vote(struct hf_redlock_vote *vote, bool in_full);

static bool ends_a_hold(const struct hf_redlock_poll *poll)
{
    return poll->kind == HF_REQUEST_COMMAND &&
           (poll->command.kind == HF_COMMAND_UNLOCK ||
            poll->command.kind == HF_COMMAND_CANCEL);
}

static void count_command(struct hf_redlock_vote *vote, const redisReply *reply)
{
    struct hf_redlock_poll *poll = vote->poll;
    struct hf_answer answer = {0};
    struct hf_redis_taken taken;

    hf_redis_take_command(&vote->server->link, reply, poll->sent,
                          &poll->command, &answer, &taken);
    if (taken.in_full && poll->request && send_vote(vote, true))
        return;
    if (answer.cause)
        hf_redlock_note_cause(poll, answer.cause);
    if (answer.result.err == HF_EINDOUBT) {
        poll->lost++;
        if (ends_a_hold(poll))
            hf_redlock_owe_cancel(vote->server, poll->command.key,
                                  &poll->command.nonce);
    } else if (answer.result.err == HF_OK &&
               poll->command.kind == HF_COMMAND_LOCK) {
        hf_redlock_count_grant(vote, answer.result.token, taken.fresh);
    } else if (answer.result.err == HF_OK) {
        poll->yes++;
        poll->granted = answer.result.token;
    } else {
        if (taken.left_ms > 0)
            poll->left_ms = taken.left_ms;
        vote->refused = true;
        if (answer.result.err != HF_EUNAVAIL)
            vote_no(poll, answer.result.err);
    }
    hf_answer_clear(&answer);
}

static void voted(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redlock_vote *vote =
        HF_CONTAINER(call, struct hf_redlock_vote, call);
    struct hf_redlock_poll *poll = vote->poll;
    struct hf_redis_link *link = &vote->server->link;
    bool ours = false;

    if (poll->kind == HF_REQUEST_COMMAND) {
        count_command(vote, reply);
    } else if (!reply || !poll->request ||
               hf_redis_take_read(link, reply, poll->command.key, &vote->info,
                                  &ours)) {
        poll->lost++;
    } else {
        vote->was_read = true;
        poll->yes++;
    }
    /* Not before: what a lost connection decides may free the poll. */
    poll->pending--;
    hf_redlock_decide(poll);
}

static bool send_vote(struct hf_redlock_vote *vote, bool in_full)
{
    struct hf_redlock_poll *poll = vote->poll;
    struct hf_redlock_server *server = vote->server;
    struct hf_redlock *redlock = poll->redlock;
    struct hf_command command = poll->command;
    struct hf_redis_words words;
    struct hf_redis_lock lock = {
        .in_full = in_full, .sent = poll->sent, .token = poll->token};

    vote->blind = poll->token == 0;
    if (poll->doubted & (1u << (server - redlock->servers)))
        command.kind = HF_COMMAND_CANCEL;
    if (poll->kind == HF_REQUEST_COMMAND && command.kind == HF_COMMAND_LOCK)
        hf_redlock_supersede_owed(server, &command.nonce);
    if (poll->kind == HF_REQUEST_READ)
        hf_redis_read(&words, &server->link, command.key);
    else
        hf_redis_command(&words, &server->link, &redlock->asker, &command,
                         &lock);
    if (!hf_redis_link_send(&server->link, &vote->call, &words.args))
        return false;
    poll->pending++;
    return true;
}

bool hf_redlock_ask(struct hf_redlock_poll *poll,
                    struct hf_redlock_server *server)
{
    struct hf_redlock_vote *vote =
        &poll->votes[server - poll->redlock->servers];

    if (vote->asked || !hf_redlock_can_ask(poll, server) ||
        !may_vote(poll, server))
        return false;
    vote->call.reply = voted;
    vote->asked = send_vote(vote, false);
    poll->asked += vote->asked;
    return vote->asked;
}

void hf_redlock_ask_all(struct hf_redlock_poll *poll)
{
    poll->asks_all = true;
    for (unsigned i = 0; i < poll->redlock->count; i++)
        (void)hf_redlock_ask(poll, &poll->redlock->servers[i]);
}

void hf_redlock_be_patient(struct hf_redlock_poll *poll, uint32_t ms)
{
    struct hf_redlock *redlock = poll->redlock;
    struct hf_host *host = redlock->host;

    poll->impatient = false;
    poll->patient_until = hf_time_add(host->ops->now(host), ms);
    hf_list_remove(&poll->undecided);
    if (hf_list_empty(&redlock->undecided) ||
        poll->patient_until < redlock->impatient_at) {
        redlock->impatient_at = poll->patient_until;
        hf_timer_set(host, &redlock->impatience, poll->patient_until);
    }
    hf_list_push_back(&redlock->undecided, &poll->undecided);
}

/* ---- Other commands -----------------------------------------------------*/

/* A majority is enough; but who is told that a lock is given back, and finds
 * it held by the first server, was told too early. So all are waited for, a
 * moment. */
static void decide_command(struct hf_redlock_poll *poll)
{
    struct hf_redlock *redlock = poll->redlock;
    bool cancel = poll->command.kind == HF_COMMAND_CANCEL;
    unsigned definite = poll->yes + poll->no;

    if (poll->pending > 0 && !poll->impatient &&
        poll->command.kind != HF_COMMAND_RENEW)
        return;
    if (cancel && definite >= redlock->majority) {
        /* Where a majority is free of it, no majority has it. */
        poll->request->answer.result.token =
            poll->yes >= redlock->majority ? poll->granted : 0;
        hf_redlock_answer(poll, poll->yes > 0 ? HF_OK : HF_ENOTHELD);
    } else if (!cancel && poll->yes >= redlock->majority) {
        if (poll->command.kind == HF_COMMAND_RENEW)
            poll->request->answer.anchor =
                (struct hf_anchor){.known = true, .sent = poll->sent};
        hf_redlock_answer(poll, HF_OK);
    } else if (!cancel && poll->no > redlock->count - redlock->majority) {
        hf_redlock_answer(poll, poll->why);
    } else if (poll->pending > 0) {
        return;
    } else if (poll->yes + poll->lost > 0) {
        hf_redlock_answer(poll, HF_EINDOUBT);
    } else {
        hf_redlock_answer(poll, HF_EUNAVAIL);
    }
}

/* ---- All of them --------------------------------------------------------*/

static bool is_over(const struct hf_redlock_poll *poll)
{
    return !poll->request && poll->pending == 0 && poll->probing == 0;
}

void hf_redlock_decide(struct hf_redlock_poll *poll)
{
    if (poll->request && poll->kind == HF_REQUEST_READ)
        hf_redlock_decide_read(poll);
    else if (poll->request && poll->kind == HF_REQUEST_LIST)
        hf_redlock_decide_list(poll);
    else if (poll->request && poll->command.kind == HF_COMMAND_LOCK)
        hf_redlock_decide_lock(poll);
    else if (poll->request)
        decide_command(poll);
    if (is_over(poll))
        free_poll(poll);
}

/* The first of those whose patience has ended, or NULL; the next instant at
 * which one does. */
static struct hf_redlock_poll *next_impatient(struct hf_redlock *redlock,
                                              hf_time *next)
{
    hf_time now = redlock->host->ops->now(redlock->host);

    *next = HF_NEVER;
    for (struct hf_list *link = redlock->undecided.next;
         link != &redlock->undecided; link = link->next) {
        struct hf_redlock_poll *poll =
            HF_CONTAINER(link, struct hf_redlock_poll, undecided);

        if (poll->patient_until <= now)
            return poll;
        if (poll->patient_until < *next)
            *next = poll->patient_until;
    }
    return NULL;
}

/* One server takes its time, or is no more. */
void hf_redlock_on_impatience(struct hf_timer *timer)
{
    struct hf_redlock *redlock =
        HF_CONTAINER(timer, struct hf_redlock, impatience);
    struct hf_redlock_poll *poll;
    hf_time next;

    while ((poll = next_impatient(redlock, &next))) {
        hf_list_remove(&poll->undecided);
        poll->impatient = true;
        hf_redlock_decide(poll);
    }
    redlock->impatient_at = next;
    hf_timer_set(redlock->host, timer, next);
}

/* A server that could not be asked may hold it until its lease ends. */
static void owe_to_the_rest(struct hf_redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        if (!poll->votes[i].asked)
            hf_redlock_owe_cancel(poll->votes[i].server, poll->command.key,
                                  &poll->command.nonce);
    }
}

void hf_redlock_poll_begin(struct hf_redlock_poll *poll)
{
    struct hf_redlock *redlock = poll->redlock;
    bool command = poll->kind == HF_REQUEST_COMMAND;
    bool lock = command && poll->command.kind == HF_COMMAND_LOCK;

    for (unsigned i = 0; i < redlock->count; i++) {
        if (redlock->servers[i].link.state != HF_REDIS_UP)
            hf_redlock_note_cause(poll, redlock->servers[i].link.failure.text);
    }
    if (command && !lock)
        hf_redlock_forget_waiter(redlock, &poll->command.nonce);
    if (ends_a_hold(poll))
        poll->doubted = hf_redlock_take_doubts(redlock, &poll->command.nonce);
    if (poll->kind == HF_REQUEST_LIST)
        hf_redlock_list_all(poll);
    else if (!lock)
        hf_redlock_ask_all(poll);
    if (ends_a_hold(poll))
        owe_to_the_rest(poll);
    if (!lock)
        hf_redlock_be_patient(poll, PATIENCE_MS);
    hf_redlock_decide(poll);
}

/* What it has asked comes true all the same, and the next attempt may be
 * granted by another token. */
void hf_redlock_poll_cancel(struct hf_redlock_poll *poll)
{
    if (poll->kind == HF_REQUEST_COMMAND &&
        poll->command.kind == HF_COMMAND_LOCK)
        hf_redlock_note_doubts(poll);
    hf_redlock_abandon_lists(poll);
    /* Nothing is done by reading. */
    hf_redlock_answer(poll, poll->kind == HF_REQUEST_COMMAND ? HF_EINDOUBT
                                                             : HF_EUNAVAIL);
    if (is_over(poll))
        free_poll(poll);
}
