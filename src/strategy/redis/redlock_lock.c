/* redlock_lock.c - a LOCK: which servers are asked, and when it is held.
 *
 * Only a client that the first server grants the key asks the others. If all
 * servers were asked at once, two clients could each get some of them, and
 * neither a majority. A server that does not answer is skipped. A server that says no
 * has the last word only if a majority may be held: an old hold on a minority,
 * left by a client that died or by a lost reply, excludes nobody. */
#include <stdlib.h>

#include "strategy/redis/redlock.h"

#define LOCK_PATIENCE_MS 500  /* before the next server is asked */
#define PROBE_PATIENCE_MS 150 /* for what the servers hold */
#define GHOST_MS 1000     /* a younger hold may be about to be a majority's */
#define LOOK_AGAIN_MS 500 /* a lost announcement is noticed after it */
#define ENDED_MS 8        /* spread of waiters that see a lease end */

void hf_redlock_count_grant(struct hf_redlock_vote *vote, uint64_t token,
                            bool fresh)
{
    struct hf_redlock_poll *poll = vote->poll;

    /* By another token than the first one's it does not count: the server was
     * asked before that was known, or has the nonce from an attempt that
     * failed. */
    if (poll->token == 0)
        poll->token = token;
    vote->sure = token == poll->token;
    poll->yes += vote->sure;
    poll->no += !vote->sure;
    poll->fresh += vote->sure && fresh;
}

/* Not even the replies that are missing can make a majority. */
static bool is_hopeless(const struct hf_redlock_poll *poll)
{
    unsigned open = poll->redlock->count - poll->asked + poll->pending;

    if (poll->asks_all)
        open = poll->pending;
    return poll->yes + open < poll->redlock->majority;
}

/* ---- A minority's hold --------------------------------------------------*/

static void on_probe_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redlock_vote *vote =
        HF_CONTAINER(call, struct hf_redlock_vote, probe);
    struct hf_redlock_poll *poll = vote->poll;
    struct hf_info info = {.storage = NULL};
    bool ours;

    if (reply && !hf_redis_take_read(&vote->server->link, reply,
                                     poll->command.key, &info, &ours)) {
        vote->was_read = true;
        poll->free += !info.held;
        poll->young = poll->young || (ours && info.held_ms < GHOST_MS) ||
                      (vote->asked && !info.held);
        hf_info_fini(&info);
    }
    /* Not before: what a lost connection decides may free the poll. */
    poll->probing--;
    hf_redlock_decide(poll);
}

static void probe(struct hf_redlock_poll *poll, struct hf_redlock_vote *vote)
{
    struct hf_redis_link *link = &vote->server->link;
    struct hf_redis_words words;

    if (!hf_redlock_can_ask(poll, vote->server))
        return;
    vote->probe.reply = on_probe_reply;
    hf_redis_read(&words, link, poll->command.key);
    poll->probing += hf_redis_link_send(link, &vote->probe, &words.args);
}

/* Read the key everywhere. Not by a LOCK: that would get in the way of the
 * client whose LOCK comes there next. */
static void probe_all(struct hf_redlock_poll *poll)
{
    poll->probed = true;
    for (unsigned i = 0; i < poll->redlock->count; i++)
        probe(poll, &poll->votes[i]);
    if (poll->probing > 0)
        hf_redlock_be_patient(poll, PROBE_PATIENCE_MS);
}

static bool is_held_by_a_minority(const struct hf_redlock_poll *poll)
{
    return poll->probed && poll->free >= poll->redlock->majority &&
           !poll->young;
}

static void on_token_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redlock_vote *vote =
        HF_CONTAINER(call, struct hf_redlock_vote, probe);
    struct hf_redlock_poll *poll = vote->poll;

    if (reply && reply->type == REDIS_REPLY_INTEGER &&
        reply->integer >= HF_REDIS_TOKEN_MIN)
        poll->token = (uint64_t)reply->integer;
    poll->probing--;
    hf_redlock_decide(poll);
}

/* Tokens are the first server's as long as it answers, though it is not it
 * that grants. Without one, the next server gives its own. */
static void draw_token(struct hf_redlock_poll *poll)
{
    struct hf_redis_args args = {.count = 0};
    unsigned i = 0;

    poll->drawn = true;
    while (i < poll->redlock->count && !poll->votes[i].was_read)
        i++;
    if (i == poll->redlock->count)
        return;
    hf_redis_add_text(&args, "INCR");
    hf_redis_add_text(
        &args, poll->votes[i].server->address.space.shared[HF_REDIS_KEY_TOKEN]);
    poll->votes[i].probe.reply = on_token_reply;
    if (hf_redis_link_send(&poll->votes[i].server->link, &poll->votes[i].probe,
                           &args)) {
        poll->probing++;
        hf_redlock_be_patient(poll, PROBE_PATIENCE_MS);
    }
}

/* ---- Failing ------------------------------------------------------------*/

/* Give back what a minority has granted, or may have. */
static void undo(struct hf_redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        struct hf_redlock_vote *vote = &poll->votes[i];

        if (vote->asked && !vote->refused)
            hf_redlock_owe_cancel(vote->server, poll->command.key,
                                  &poll->command.nonce);
    }
}

/* When to ask again: soon after the holder's lease ends, or after a while. */
static uint32_t look_again(const struct hf_redlock_poll *poll)
{
    struct hf_host *host = poll->redlock->host;
    struct hf_random *random = host->ops->random(host);
    uint32_t span =
        LOOK_AGAIN_MS / 2 + hf_random_below(random, LOOK_AGAIN_MS / 2);

    if (poll->left_ms > 0 && poll->left_ms < span)
        span = poll->left_ms + 1 + hf_random_below(random, ENDED_MS);
    return span;
}

static void lock_failed(struct hf_redlock_poll *poll)
{
    struct hf_redlock *redlock = poll->redlock;
    struct hf_answer *answer_to = &poll->request->answer;

    /* A majority may have granted it, and nobody would know. */
    if (poll->yes + poll->lost >= redlock->majority) {
        hf_redlock_answer(poll, HF_EINDOUBT);
        return;
    }
    undo(poll);
    /* No server says that another holds it. Those that were asked one after
     * the other, and all answered late, gave a token each: asked again, they
     * agree. */
    if (poll->why == HF_OK) {
        if (poll->no > 0)
            hf_redlock_note_cause(poll, "its servers are too slow to agree");
        hf_redlock_answer(poll, HF_EUNAVAIL);
        return;
    }
    if (poll->why == HF_EBUSY && poll->command.queue) {
        hf_redlock_add_waiter(redlock, &poll->command);
        answer_to->result.place = 1;
        answer_to->look_again_ms = look_again(poll);
    }
    hf_redlock_answer(poll, poll->why);
}

/* ---- Deciding -----------------------------------------------------------*/

static void ask_next(struct hf_redlock_poll *poll)
{
    struct hf_redlock *redlock = poll->redlock;
    unsigned i = 0;

    while (i < redlock->count && !hf_redlock_ask(poll, &redlock->servers[i]))
        i++;
    poll->asks_all = i == redlock->count;
    if (!poll->asks_all)
        hf_redlock_be_patient(poll, LOCK_PATIENCE_MS);
}

static void lock_held(struct hf_redlock_poll *poll)
{
    struct hf_redlock *redlock = poll->redlock;
    struct hf_answer *answer_to = &poll->request->answer;

    hf_redlock_forget_waiter(redlock, &poll->command.nonce);
    hf_redlock_note_doubts(poll);
    answer_to->result.token = poll->token;
    if (poll->fresh >= redlock->majority)
        answer_to->anchor =
            (struct hf_anchor){.known = true, .sent = poll->sent};
    hf_redlock_answer(poll, HF_OK);
}

/* While no server has granted it: whether to go on, and with which. */
static bool is_refused_by_one(struct hf_redlock_poll *poll)
{
    if (poll->no > 0 && !poll->probed)
        probe_all(poll);
    if (poll->probing > 0 && !poll->impatient)
        return false;
    if (poll->no > 0 && !is_held_by_a_minority(poll))
        return true;
    if (poll->no > 0 && !poll->drawn)
        draw_token(poll);
    if (poll->probing > 0 && !poll->impatient)
        return false;
    if ((poll->pending == 0 || poll->impatient) && !is_hopeless(poll))
        ask_next(poll);
    return false;
}

void hf_redlock_decide_lock(struct hf_redlock_poll *poll)
{
    bool refused = false;

    if (!poll->asks_all && poll->yes > 0)
        hf_redlock_ask_all(poll);
    else if (!poll->asks_all)
        refused = is_refused_by_one(poll);
    if (poll->yes >= poll->redlock->majority)
        lock_held(poll);
    else if (refused || is_hopeless(poll))
        lock_failed(poll);
}
