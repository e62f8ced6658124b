/* lock.c - a LOCK: to which servers it is sent, and when it succeeds.
 *
 * A LOCK is sent to the first server, and to the other servers only after the
 * first has granted it. If it were sent to all at once, two clients could each
 * get some of the servers, and neither a majority. A server that does not
 * answer is skipped. If a server refuses, the client reads the key on all
 * servers: a lock that only a minority holds, left by a dead client or a lost
 * reply, does not block the LOCK. */
#include <stdlib.h>

#include "strategy/redlock/redlock.h"

#define LOCK_TIMEOUT_MS 500 /* wait for a reply before trying the next server */
#define PROBE_TIMEOUT_MS 150 /* how long to wait for replies to probes */
#define YOUNG_MS 1000        /* a younger hold may still get a majority */
#define RETRY_MS 500      /* longest poll interval; announcements may be lost */
#define RETRY_SPREAD_MS 8 /* jitter between waiters for the same lease */

void hf_redlock_lock_count_grant(struct hf_redlock_ballot *ballot,
                                 uint64_t token, bool fresh)
{
    struct hf_redlock_vote *vote = ballot->vote;

    /* A grant with another token does not count. That happens if this LOCK was
     * sent before the token was known, or if the grant is from an earlier
     * attempt that failed. */
    if (vote->token == 0)
        vote->token = token;
    ballot->has_granted = token == vote->token;
    vote->yes += ballot->has_granted;
    vote->no += !ballot->has_granted;
    vote->fresh += ballot->has_granted && fresh;
}

/* Returns true if the LOCK cannot get a majority any more, even if every server
 * that may still reply grants it. */
static bool is_majority_impossible(const struct hf_redlock_vote *vote)
{
    unsigned open = vote->redlock->count - vote->sent_count + vote->pending;

    if (vote->sent_to_all)
        open = vote->pending;
    return vote->yes + open < vote->redlock->majority;
}

/* ---- Probes -------------------------------------------------------------*/

static void on_probe_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redlock_ballot *ballot =
        HF_CONTAINER(call, struct hf_redlock_ballot, probe);
    struct hf_redlock_vote *vote = ballot->vote;
    struct hf_info info = {.storage = NULL};
    bool ours;

    if (reply && !hf_redis_reply_decode_read(&ballot->server->connection, reply,
                                             vote->command.key, &info, &ours)) {
        ballot->was_read = true;
        vote->free += !info.held;
        vote->young = vote->young || (ours && info.held_ms < YOUNG_MS) ||
                      (ballot->is_sent && !info.held);
        hf_info_fini(&info);
    }
    /* Decrement only now: decoding may drop the connection, which completes
     * other calls of this vote, and the last call would free the vote. */
    vote->probes_pending--;
    hf_redlock_vote_decide(vote);
}

static void send_probe(struct hf_redlock_vote *vote,
                       struct hf_redlock_ballot *ballot)
{
    struct hf_redis_connection *connection = &ballot->server->connection;
    struct hf_redis_script_call script_call;

    if (!hf_redlock_vote_can_send(vote, ballot->server))
        return;
    ballot->probe.reply = on_probe_reply;
    hf_redis_script_call_read(&script_call, connection, vote->command.key);
    vote->probes_pending +=
        hf_redis_connection_send(connection, &ballot->probe, &script_call.args);
}

/* Read the key on all servers that respond. Sending them the LOCK would compete
 * with the client to which the first server has granted the key, and whose LOCK
 * is on its way to the others. */
static void send_probes(struct hf_redlock_vote *vote)
{
    vote->probed = true;
    for (unsigned i = 0; i < vote->redlock->count; i++)
        send_probe(vote, &vote->ballots[i]);
    if (vote->probes_pending > 0)
        hf_redlock_vote_set_timeout(vote, PROBE_TIMEOUT_MS);
}

static bool is_held_by_a_minority(const struct hf_redlock_vote *vote)
{
    return vote->probed && vote->free >= vote->redlock->majority &&
           !vote->young;
}

static void on_token_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redlock_ballot *ballot =
        HF_CONTAINER(call, struct hf_redlock_ballot, probe);
    struct hf_redlock_vote *vote = ballot->vote;

    if (reply && reply->type == REDIS_REPLY_INTEGER &&
        reply->integer >= HF_REDIS_TOKEN_MIN)
        vote->token = (uint64_t)reply->integer;
    vote->probes_pending--;
    hf_redlock_vote_decide(vote);
}

/* Get a token from the first server that has answered a probe, even if that
 * server refused the LOCK: tokens rise as long as they come from the same
 * server. If no server supplies a token, the next server that grants the LOCK
 * uses a token of its own. */
static void draw_token(struct hf_redlock_vote *vote)
{
    struct hf_redis_resp_args args = {.count = 0};
    unsigned i = 0;

    vote->token_drawn = true;
    while (i < vote->redlock->count && !vote->ballots[i].was_read)
        i++;
    if (i == vote->redlock->count)
        return;
    hf_redis_resp_add_text(&args, "INCR");
    hf_redis_resp_add_text(
        &args,
        vote->ballots[i].server->address.space.shared[HF_REDIS_KEY_TOKEN]);
    vote->ballots[i].probe.reply = on_token_reply;
    if (hf_redis_connection_send(&vote->ballots[i].server->connection,
                                 &vote->ballots[i].probe, &args)) {
        vote->probes_pending++;
        hf_redlock_vote_set_timeout(vote, PROBE_TIMEOUT_MS);
    }
}

/* ---- Failing ------------------------------------------------------------*/

/* Cancel the LOCK on the servers that have granted it or may have granted
 * it. */
static void cancel_grants(struct hf_redlock_vote *vote)
{
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        struct hf_redlock_ballot *ballot = &vote->ballots[i];

        if (ballot->is_sent && !ballot->refused)
            hf_redlock_cancels_add(ballot->server, vote->command.key,
                                   &vote->command.nonce);
    }
}

/* The time until the next poll: a random time of at most RETRY_MS, or just
 * after the holder's lease ends if that is sooner. */
static uint32_t retry_span_ms(const struct hf_redlock_vote *vote)
{
    struct hf_host *host = vote->redlock->host;
    struct hf_random *random = host->ops->random(host);
    uint32_t span = RETRY_MS / 2 + hf_random_below(random, RETRY_MS / 2);

    if (vote->left_ms > 0 && vote->left_ms < span)
        span = vote->left_ms + 1 + hf_random_below(random, RETRY_SPREAD_MS);
    return span;
}

static void fail_lock(struct hf_redlock_vote *vote)
{
    struct hf_redlock *redlock = vote->redlock;
    struct hf_answer *answer = &vote->request->answer;

    /* If the lost replies were grants, there may be a majority, so the LOCK is
     * in doubt. */
    if (vote->yes + vote->lost >= redlock->majority) {
        hf_redlock_vote_answer(vote, HF_EINDOUBT);
        return;
    }
    cancel_grants(vote);
    /* No server reports another holder. Grants that do not count came from
     * servers that answered so late that each granted a token of its own. A
     * retry has the same nonce, so it can succeed. */
    if (vote->refusal == HF_OK) {
        if (vote->no > 0)
            hf_redlock_vote_set_cause(
                vote, "the servers are too slow to agree on a token");
        hf_redlock_vote_answer(vote, HF_EUNAVAIL);
        return;
    }
    if (vote->refusal == HF_EBUSY && vote->command.queue) {
        hf_redlock_waiters_add(redlock, &vote->command);
        answer->result.position = 1;
        answer->poll_after_ms = retry_span_ms(vote);
    }
    hf_redlock_vote_answer(vote, vote->refusal);
}

/* ---- Deciding -----------------------------------------------------------*/

static void send_to_next(struct hf_redlock_vote *vote)
{
    struct hf_redlock *redlock = vote->redlock;
    unsigned i = 0;

    while (i < redlock->count &&
           !hf_redlock_vote_send(vote, &redlock->servers[i]))
        i++;
    vote->sent_to_all = i == redlock->count;
    if (!vote->sent_to_all)
        hf_redlock_vote_set_timeout(vote, LOCK_TIMEOUT_MS);
}

static void complete_lock(struct hf_redlock_vote *vote)
{
    struct hf_redlock *redlock = vote->redlock;
    struct hf_answer *answer = &vote->request->answer;

    hf_redlock_waiters_remove(redlock, &vote->command.nonce);
    hf_redlock_in_doubt_add(vote);
    answer->result.token = vote->token;
    if (vote->fresh >= redlock->majority)
        answer->anchor = (struct hf_anchor){.known = true, .sent = vote->sent};
    hf_redlock_vote_answer(vote, HF_OK);
}

/* Proceed with a LOCK that no server has granted yet. After a refusal, send
 * probes; if they show that only a minority holds the key, request a token.
 * Then send the LOCK to the next server. Each step waits for the replies to the
 * previous one, or for the timeout. Returns true if the LOCK is refused. */
static bool proceed_or_refuse(struct hf_redlock_vote *vote)
{
    if (vote->no > 0 && !vote->probed)
        send_probes(vote);
    if (vote->probes_pending > 0 && !vote->timed_out)
        return false;
    if (vote->no > 0 && !is_held_by_a_minority(vote))
        return true;
    if (vote->no > 0 && !vote->token_drawn)
        draw_token(vote);
    if (vote->probes_pending > 0 && !vote->timed_out)
        return false;
    if ((vote->pending == 0 || vote->timed_out) &&
        !is_majority_impossible(vote))
        send_to_next(vote);
    return false;
}

void hf_redlock_lock_decide(struct hf_redlock_vote *vote)
{
    bool refused = false;

    if (!vote->sent_to_all && vote->yes > 0)
        hf_redlock_vote_send_all(vote);
    else if (!vote->sent_to_all)
        refused = proceed_or_refuse(vote);
    if (vote->yes >= vote->redlock->majority)
        complete_lock(vote);
    else if (refused || is_majority_impossible(vote))
        fail_lock(vote);
}
