/* vote.c - one request to all servers: send it, count the replies, decide. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "strategy/redlock/redlock.h"

#define VOTE_TIMEOUT_MS 150 /* time for slow servers, if the others suffice */

static bool is_server_silent(const struct hf_redlock_server *server)
{
    return hf_redis_connection_is_silent(&server->connection,
                                         HF_REDLOCK_SILENCE_MS);
}

/* Returns true if fewer servers than a majority respond. Then requests are sent
 * to silent servers, too, which are otherwise skipped. */
static bool too_few_respond(const struct hf_redlock *redlock)
{
    unsigned count = 0;

    for (unsigned i = 0; i < redlock->count; i++)
        count += redlock->servers[i].connection.state == HF_REDIS_UP &&
                 !is_server_silent(&redlock->servers[i]);
    return count < redlock->majority;
}

bool hf_redlock_vote_can_send(const struct hf_redlock_vote *vote,
                              const struct hf_redlock_server *server)
{
    return server->connection.state == HF_REDIS_UP &&
           (vote->includes_silent || !is_server_silent(server));
}

/* Returns true if the server may execute the vote's command; otherwise records
 * the cause in the vote. A server that has just started may have forgotten its
 * grants, and a server that evicts keys may lose them. */
static bool can_server_vote(struct hf_redlock_vote *vote,
                            struct hf_redlock_server *server)
{
    struct hf_error error;

    if (vote->kind != HF_REQUEST_COMMAND ||
        !hf_redis_handshake_check_command(&server->connection, &vote->command,
                                          &error))
        return true;
    hf_redlock_vote_set_cause(vote, error.text);
    return false;
}

struct hf_redlock_vote *hf_redlock_vote_new(struct hf_redlock *redlock,
                                            struct hf_request *request)
{
    size_t size = sizeof(struct hf_redlock_vote) +
                  redlock->count * sizeof(struct hf_redlock_ballot);
    struct hf_redlock_vote *vote = calloc(1, size + request->command.key.size);
    struct hf_key key = request->command.key;

    if (!vote)
        return NULL;
    for (unsigned i = 0; i < redlock->count; i++) {
        vote->ballots[i].vote = vote;
        vote->ballots[i].server = &redlock->servers[i];
    }
    vote->redlock = redlock;
    vote->request = request;
    vote->command = request->command;
    /* Copy the key, because the last replies may arrive after the request was
     * answered and freed. */
    hf_copy((char *)vote + size, key.data, key.size);
    vote->command.key.data = (char *)vote + size;
    vote->includes_silent = too_few_respond(redlock);
    vote->kind = request->kind;
    vote->sent = redlock->host->ops->now(redlock->host);
    hf_dlist_push_back(&redlock->votes, &vote->link);
    return vote;
}

static void free_vote(struct hf_redlock_vote *vote)
{
    hf_dlist_remove(&vote->link);
    hf_dlist_remove(&vote->undecided);
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        struct hf_redlock_ballot *ballot = &vote->ballots[i];

        hf_info_fini(&ballot->info);
        for (size_t j = 0; j < ballot->listed.count; j++)
            hf_info_fini(&ballot->listed.infos[j]);
        free(ballot->listed.infos);
        free(ballot->listed.cause);
    }
    free(vote->cause);
    free(vote);
}

/* Answer the request. The vote itself stays until its last reply has
 * arrived. */
static void finish_vote(struct hf_redlock_vote *vote)
{
    struct hf_host *host = vote->redlock->host;
    struct hf_request *request = vote->request;

    hf_dlist_remove(&vote->undecided);
    if (hf_dlist_is_empty(&vote->redlock->undecided))
        hf_timer_set(host, &vote->redlock->vote_timer, HF_NEVER);
    vote->request = NULL;
    if (request)
        host->ops->answer(host, request);
}

void hf_redlock_vote_answer(struct hf_redlock_vote *vote, enum hf_err err)
{
    vote->request->answer.result.err = err;
    if (!err && vote->request->keeps)
        hf_redlock_pubsub_open_soon(vote->redlock);
    if (err && vote->cause)
        hf_redis_reply_set_cause(&vote->request->answer, vote->cause);
    finish_vote(vote);
}

void hf_redlock_vote_set_cause(struct hf_redlock_vote *vote, const char *text)
{
    if (!vote->cause)
        vote->cause = strdup(text);
}

/* ---- Replies ------------------------------------------------------------*/

/* Count a refusal, and keep the strongest one for the answer. `strength` lists
 * the codes from the weakest to the strongest; all other codes are weaker. */
static void count_refusal(struct hf_redlock_vote *vote, enum hf_err err)
{
    static const enum hf_err strength[] = {HF_ENOTHELD, HF_ENOTOWNER, HF_EBUSY,
                                           HF_EFORCED};
    size_t old = 0, now = 0;

    vote->no++;
    while (old < 4 && strength[old] != vote->refusal)
        old++;
    while (now < 4 && strength[now] != err)
        now++;
    if (old == 4 || (now < 4 && now > old))
        vote->refusal = err;
}

static bool send_ballot(struct hf_redlock_ballot *ballot, bool slow_path);

static bool ends_a_hold(const struct hf_redlock_vote *vote)
{
    return vote->kind == HF_REQUEST_COMMAND &&
           (vote->command.kind == HF_COMMAND_UNLOCK ||
            vote->command.kind == HF_COMMAND_CANCEL);
}

static void count_command(struct hf_redlock_ballot *ballot,
                          const redisReply *reply)
{
    struct hf_redlock_vote *vote = ballot->vote;
    struct hf_answer answer = {0};
    struct hf_redis_lock_reply lock_reply;

    hf_redis_reply_decode(&ballot->server->connection, reply, vote->sent,
                          &vote->command, &answer, &lock_reply);
    if (lock_reply.slow_path && vote->request && send_ballot(ballot, true))
        return;
    if (answer.cause)
        hf_redlock_vote_set_cause(vote, answer.cause);
    if (answer.result.err == HF_EINDOUBT) {
        vote->lost++;
        if (ends_a_hold(vote))
            hf_redlock_cancels_add(ballot->server, vote->command.key,
                                   &vote->command.nonce);
    } else if (answer.result.err == HF_OK &&
               vote->command.kind == HF_COMMAND_LOCK) {
        hf_redlock_lock_count_grant(ballot, answer.result.token,
                                    lock_reply.fresh);
    } else if (answer.result.err == HF_OK) {
        vote->yes++;
        vote->canceled_token = answer.result.token;
    } else {
        if (lock_reply.left_ms > 0)
            vote->left_ms = lock_reply.left_ms;
        ballot->refused = true;
        if (answer.result.err != HF_EUNAVAIL)
            count_refusal(vote, answer.result.err);
    }
    hf_answer_clear(&answer);
}

static void on_ballot_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redlock_ballot *ballot =
        HF_CONTAINER(call, struct hf_redlock_ballot, call);
    struct hf_redlock_vote *vote = ballot->vote;
    struct hf_redis_connection *connection = &ballot->server->connection;
    bool ours = false;

    if (vote->kind == HF_REQUEST_COMMAND) {
        count_command(ballot, reply);
    } else if (!reply || !vote->request ||
               hf_redis_reply_decode_read(connection, reply, vote->command.key,
                                          &ballot->info, &ours)) {
        vote->lost++;
    } else {
        ballot->was_read = true;
        vote->yes++;
    }
    /* Decrement only now: decoding may drop the connection, which completes
     * other calls of this vote, and the last call would free the vote. */
    vote->pending--;
    hf_redlock_vote_decide(vote);
}

static bool send_ballot(struct hf_redlock_ballot *ballot, bool slow_path)
{
    struct hf_redlock_vote *vote = ballot->vote;
    struct hf_redlock_server *server = ballot->server;
    struct hf_redlock *redlock = vote->redlock;
    struct hf_command command = vote->command;
    struct hf_redis_script_call script_call;
    struct hf_redis_lock_opts lock = {
        .slow_path = slow_path, .sent = vote->sent, .token = vote->token};

    ballot->without_token = vote->token == 0;
    if (vote->in_doubt & (1u << (server - redlock->servers)))
        command.kind = HF_COMMAND_CANCEL;
    if (vote->kind == HF_REQUEST_COMMAND && command.kind == HF_COMMAND_LOCK)
        hf_redlock_cancels_supersede(server, &command.nonce);
    if (vote->kind == HF_REQUEST_READ)
        hf_redis_script_call_read(&script_call, &server->connection,
                                  command.key);
    else
        hf_redis_script_call_command(&script_call, &server->connection,
                                     &redlock->identity, &command, &lock);
    if (!hf_redis_connection_send(&server->connection, &ballot->call,
                                  &script_call.args))
        return false;
    vote->pending++;
    return true;
}

bool hf_redlock_vote_send(struct hf_redlock_vote *vote,
                          struct hf_redlock_server *server)
{
    struct hf_redlock_ballot *ballot =
        &vote->ballots[server - vote->redlock->servers];

    if (ballot->is_sent || !hf_redlock_vote_can_send(vote, server) ||
        !can_server_vote(vote, server))
        return false;
    ballot->call.reply = on_ballot_reply;
    ballot->is_sent = send_ballot(ballot, false);
    vote->sent_count += ballot->is_sent;
    return ballot->is_sent;
}

void hf_redlock_vote_send_all(struct hf_redlock_vote *vote)
{
    vote->sent_to_all = true;
    for (unsigned i = 0; i < vote->redlock->count; i++)
        (void)hf_redlock_vote_send(vote, &vote->redlock->servers[i]);
}

void hf_redlock_vote_set_timeout(struct hf_redlock_vote *vote, uint32_t ms)
{
    struct hf_redlock *redlock = vote->redlock;
    struct hf_host *host = redlock->host;

    vote->timed_out = false;
    vote->deadline = hf_time_add(host->ops->now(host), ms);
    hf_dlist_remove(&vote->undecided);
    if (hf_dlist_is_empty(&redlock->undecided) ||
        vote->deadline < redlock->vote_timer_at) {
        redlock->vote_timer_at = vote->deadline;
        hf_timer_set(host, &redlock->vote_timer, vote->deadline);
    }
    hf_dlist_push_back(&redlock->undecided, &vote->undecided);
}

/* ---- Deciding -----------------------------------------------------------*/

/* Decide any command except LOCK. A majority is enough. But after a release is
 * reported, the caller should find the key free on the first server, too. So
 * wait a moment for the other replies, except for RENEW. */
static void decide_command(struct hf_redlock_vote *vote)
{
    struct hf_redlock *redlock = vote->redlock;
    bool cancel = vote->command.kind == HF_COMMAND_CANCEL;
    unsigned definite = vote->yes + vote->no;

    if (vote->pending > 0 && !vote->timed_out &&
        vote->command.kind != HF_COMMAND_RENEW)
        return;
    if (cancel && definite >= redlock->majority) {
        /* A majority does not hold the lock any more. The lock was held before
         * only if a majority confirms that this CANCEL ended it. */
        vote->request->answer.result.token =
            vote->yes >= redlock->majority ? vote->canceled_token : 0;
        hf_redlock_vote_answer(vote, vote->yes > 0 ? HF_OK : HF_ENOTHELD);
    } else if (!cancel && vote->yes >= redlock->majority) {
        if (vote->command.kind == HF_COMMAND_RENEW)
            vote->request->answer.anchor =
                (struct hf_anchor){.known = true, .sent = vote->sent};
        hf_redlock_vote_answer(vote, HF_OK);
    } else if (!cancel && vote->no > redlock->count - redlock->majority) {
        hf_redlock_vote_answer(vote, vote->refusal);
    } else if (vote->pending > 0) {
        return;
    } else if (vote->yes + vote->lost > 0) {
        hf_redlock_vote_answer(vote, HF_EINDOUBT);
    } else {
        hf_redlock_vote_answer(vote, HF_EUNAVAIL);
    }
}

static bool is_vote_finished(const struct hf_redlock_vote *vote)
{
    return !vote->request && vote->pending == 0 && vote->probes_pending == 0;
}

void hf_redlock_vote_decide(struct hf_redlock_vote *vote)
{
    if (vote->request && vote->kind == HF_REQUEST_READ)
        hf_redlock_read_decide(vote);
    else if (vote->request && vote->kind == HF_REQUEST_LIST)
        hf_redlock_read_decide_list(vote);
    else if (vote->request && vote->command.kind == HF_COMMAND_LOCK)
        hf_redlock_lock_decide(vote);
    else if (vote->request)
        decide_command(vote);
    if (is_vote_finished(vote))
        free_vote(vote);
}

/* Return a vote whose deadline has passed. If there is none, return NULL and
 * store the next deadline in `*next`. */
static struct hf_redlock_vote *next_timed_out(struct hf_redlock *redlock,
                                              hf_time *next)
{
    hf_time now = redlock->host->ops->now(redlock->host);

    *next = HF_NEVER;
    for (struct hf_dlist *link = redlock->undecided.next;
         link != &redlock->undecided; link = link->next) {
        struct hf_redlock_vote *vote =
            HF_CONTAINER(link, struct hf_redlock_vote, undecided);

        if (vote->deadline <= now)
            return vote;
        if (vote->deadline < *next)
            *next = vote->deadline;
    }
    return NULL;
}

/* Decide the votes that are due, without waiting for slow or dead servers. */
void hf_redlock_vote_on_timeout(struct hf_timer *timer)
{
    struct hf_redlock *redlock =
        HF_CONTAINER(timer, struct hf_redlock, vote_timer);
    struct hf_redlock_vote *vote;
    hf_time next;

    while ((vote = next_timed_out(redlock, &next))) {
        hf_dlist_remove(&vote->undecided);
        vote->timed_out = true;
        hf_redlock_vote_decide(vote);
    }
    redlock->vote_timer_at = next;
    hf_timer_set(redlock->host, timer, next);
}

/* Servers that could not be reached may still hold the lock. Add a CANCEL for
 * each, which is sent as soon as the server is reachable. */
static void cancel_unsent(struct hf_redlock_vote *vote)
{
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        if (!vote->ballots[i].is_sent)
            hf_redlock_cancels_add(vote->ballots[i].server, vote->command.key,
                                   &vote->command.nonce);
    }
}

void hf_redlock_vote_start(struct hf_redlock_vote *vote)
{
    struct hf_redlock *redlock = vote->redlock;
    bool command = vote->kind == HF_REQUEST_COMMAND;
    bool lock = command && vote->command.kind == HF_COMMAND_LOCK;

    for (unsigned i = 0; i < redlock->count; i++) {
        if (redlock->servers[i].connection.state != HF_REDIS_UP)
            hf_redlock_vote_set_cause(
                vote, redlock->servers[i].connection.failure.text);
    }
    if (command && !lock)
        hf_redlock_waiters_remove(redlock, &vote->command.nonce);
    if (ends_a_hold(vote))
        vote->in_doubt =
            hf_redlock_in_doubt_take(redlock, &vote->command.nonce);
    if (vote->kind == HF_REQUEST_LIST)
        hf_redlock_read_list_all(vote);
    else if (!lock)
        hf_redlock_vote_send_all(vote);
    if (ends_a_hold(vote))
        cancel_unsent(vote);
    if (!lock)
        hf_redlock_vote_set_timeout(vote, VOTE_TIMEOUT_MS);
    hf_redlock_vote_decide(vote);
}

/* The servers still execute the commands that were sent. A later LOCK of the
 * same nonce may get a token that differs from the token that some servers have
 * granted, so record these servers as in doubt. */
void hf_redlock_vote_cancel(struct hf_redlock_vote *vote)
{
    if (vote->kind == HF_REQUEST_COMMAND &&
        vote->command.kind == HF_COMMAND_LOCK)
        hf_redlock_in_doubt_add(vote);
    hf_redlock_read_abandon_lists(vote);
    /* Only commands change anything, so only they can be in doubt. */
    hf_redlock_vote_answer(
        vote, vote->kind == HF_REQUEST_COMMAND ? HF_EINDOUBT : HF_EUNAVAIL);
    if (is_vote_finished(vote))
        free_vote(vote);
}
