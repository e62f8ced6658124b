/* redlock_look.c - READ and LIST, of what a majority agrees on. */
#include <stdlib.h>

#include "base/bytes.h"
#include "strategy/redis/redlock.h"

#define LAST_LIST_MS 150 /* for the other servers, after a majority */

/* ---- READ ---------------------------------------------------------------*/

/* Whether a majority says the same, and which of them says it first. */
static const struct hf_info *agreed(const struct hf_redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        const struct hf_info *info = &poll->votes[i].info;
        unsigned same = 0;

        for (unsigned j = 0; j < poll->redlock->count; j++)
            same += poll->votes[j].info.held &&
                    poll->votes[j].info.token == info->token;
        if (info->held && same >= poll->redlock->majority)
            return info;
    }
    return NULL;
}

/* All that answer are waited for, a moment: with a majority alone, what a slow
 * server is asked would pile up. */
void hf_redlock_decide_read(struct hf_redlock_poll *poll)
{
    struct hf_answer *answer_to = &poll->request->answer;
    const struct hf_info free_key = {
        .key = poll->command.key, .owner = "", .note = ""};
    const struct hf_info *info;
    enum hf_err err = HF_ENOMEM;
    bool enough = poll->yes >= poll->redlock->majority;

    if (poll->pending > 0 && !(poll->impatient && enough))
        return;
    if (!enough) {
        hf_redlock_answer(poll, HF_EUNAVAIL);
        return;
    }
    info = agreed(poll);
    answer_to->infos = calloc(1, sizeof(*answer_to->infos));
    if (answer_to->infos)
        err = hf_info_copy(answer_to->infos, info ? info : &free_key);
    answer_to->count = err ? 0 : 1;
    hf_redlock_answer(poll, err);
}

/* ---- LIST ---------------------------------------------------------------*/

static int by_key(const void *a, const void *b)
{
    return hf_key_compare(((const struct hf_info *)a)->key,
                          ((const struct hf_info *)b)->key);
}

/* How many of the servers from `from` to before `until` list the key with this
 * token. Another token is another hold. */
static unsigned listed_by(const struct hf_redlock_poll *poll, unsigned from,
                          unsigned until, const struct hf_info *info)
{
    unsigned count = 0;

    for (unsigned i = from; i < until; i++) {
        const struct hf_redis_listed *listed = &poll->votes[i].listed;
        const struct hf_info *found = NULL;

        if (listed->count > 0)
            found = bsearch(info, listed->infos, listed->count, sizeof(*info),
                            by_key);
        count += found && (found->token == info->token);
    }
    return count;
}

static enum hf_err merge(struct hf_redlock_poll *poll,
                         struct hf_answer *answer_to)
{
    size_t total = 0;

    for (unsigned i = 0; i < poll->redlock->count; i++)
        total += poll->votes[i].listed.count;
    answer_to->infos = calloc(total + 1, sizeof(*answer_to->infos));
    if (!answer_to->infos)
        return HF_ENOMEM;
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        struct hf_redis_listed *listed = &poll->votes[i].listed;

        for (size_t j = 0; j < listed->count; j++) {
            const struct hf_info *info = &listed->infos[j];

            /* Once, and where it is held by a majority. */
            if (listed_by(poll, 0, i, info) > 0 ||
                listed_by(poll, i, poll->redlock->count, info) <
                    poll->redlock->majority)
                continue;
            if (hf_info_copy(&answer_to->infos[answer_to->count], info))
                return HF_ENOMEM;
            answer_to->count++;
        }
    }
    return HF_OK;
}

void hf_redlock_decide_list(struct hf_redlock_poll *poll)
{
    bool enough = poll->yes >= poll->redlock->majority;

    if (poll->pending > 0 && !(poll->impatient && enough))
        return;
    hf_redlock_abandon_lists(poll);
    if (enough)
        hf_redlock_answer(poll, merge(poll, &poll->request->answer));
    else
        hf_redlock_answer(poll, HF_EUNAVAIL);
}

static void listed(void *arg, struct hf_redis_listed *found)
{
    struct hf_redlock_vote *vote = arg;
    struct hf_redlock_poll *poll = vote->poll;

    vote->list = NULL;
    vote->listed = *found;
    poll->pending--;
    poll->yes += !found->err;
    poll->lost += found->err != HF_OK;
    if (poll->yes == poll->redlock->majority)
        hf_redlock_be_patient(poll, LAST_LIST_MS);
    if (found->cause)
        hf_redlock_note_cause(poll, found->cause);
    hf_redlock_decide(poll);
}

void hf_redlock_list_all(struct hf_redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        struct hf_redlock_vote *vote = &poll->votes[i];

        if (hf_redlock_can_ask(poll, vote->server) &&
            !hf_redis_list_start(&vote->server->link, poll->command.key, listed,
                                 vote, &poll->request->progress, &vote->list))
            poll->pending++;
    }
}

void hf_redlock_abandon_lists(struct hf_redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->redlock->count; i++) {
        if (poll->votes[i].list) {
            hf_redis_list_abandon(poll->votes[i].list);
            poll->votes[i].list = NULL;
            poll->pending--;
        }
    }
}
