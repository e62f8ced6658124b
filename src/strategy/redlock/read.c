/* read.c - answer READ and LIST with those locks that a majority of servers
 * reports. */
#include <stdlib.h>

#include "base/bytes.h"
#include "strategy/redlock/redlock.h"

#define LAST_LIST_MS 150 /* wait for other servers once a majority has listed */

/* ---- READ ---------------------------------------------------------------*/

/* The info of a lock that a majority reports with the same token, or NULL. */
static const struct hf_info *find_agreed_info(
    const struct hf_redlock_vote *vote)
{
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        const struct hf_info *info = &vote->ballots[i].info;
        unsigned same = 0;

        for (unsigned j = 0; j < vote->redlock->count; j++)
            same += vote->ballots[j].info.held &&
                    vote->ballots[j].info.token == info->token;
        if (info->held && same >= vote->redlock->majority)
            return info;
    }
    return NULL;
}

/* Wait a moment for all servers, not only for a majority: otherwise READs would
 * pile up on a slow server. */
void hf_redlock_read_decide(struct hf_redlock_vote *vote)
{
    struct hf_answer *answer = &vote->request->answer;
    const struct hf_info free_key = {
        .key = vote->command.key, .owner = "", .note = ""};
    const struct hf_info *info;
    enum hf_err err = HF_ENOMEM;
    bool enough = vote->yes >= vote->redlock->majority;

    if (vote->pending > 0 && !(vote->timed_out && enough))
        return;
    if (!enough) {
        hf_redlock_vote_answer(vote, HF_EUNAVAIL);
        return;
    }
    info = find_agreed_info(vote);
    answer->infos = calloc(1, sizeof(*answer->infos));
    if (answer->infos)
        err = hf_info_copy(answer->infos, info ? info : &free_key);
    answer->count = err ? 0 : 1;
    hf_redlock_vote_answer(vote, err);
}

/* ---- LIST ---------------------------------------------------------------*/

static int compare_listed_keys(const void *a, const void *b)
{
    return hf_key_compare(((const struct hf_info *)a)->key,
                          ((const struct hf_info *)b)->key);
}

/* Count the servers that list the same key and token as `info`, among the
 * servers from `from` up to, but not including, `until`. */
static unsigned count_listing_servers(const struct hf_redlock_vote *vote,
                                      unsigned from, unsigned until,
                                      const struct hf_info *info)
{
    unsigned count = 0;

    for (unsigned i = from; i < until; i++) {
        const struct hf_redis_list_result *listed = &vote->ballots[i].listed;
        const struct hf_info *found = NULL;

        if (listed->count > 0)
            found = bsearch(info, listed->infos, listed->count, sizeof(*info),
                            compare_listed_keys);
        count += found && (found->token == info->token);
    }
    return count;
}

static enum hf_err merge_lists(struct hf_redlock_vote *vote,
                               struct hf_answer *answer)
{
    size_t total = 0;

    for (unsigned i = 0; i < vote->redlock->count; i++)
        total += vote->ballots[i].listed.count;
    answer->infos = calloc(total + 1, sizeof(*answer->infos));
    if (!answer->infos)
        return HF_ENOMEM;
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        struct hf_redis_list_result *listed = &vote->ballots[i].listed;

        for (size_t j = 0; j < listed->count; j++) {
            const struct hf_info *info = &listed->infos[j];

            /* Skip locks that an earlier server listed, and those without a
             * majority. */
            if (count_listing_servers(vote, 0, i, info) > 0 ||
                count_listing_servers(vote, i, vote->redlock->count, info) <
                    vote->redlock->majority)
                continue;
            if (hf_info_copy(&answer->infos[answer->count], info))
                return HF_ENOMEM;
            answer->count++;
        }
    }
    return HF_OK;
}

void hf_redlock_read_decide_list(struct hf_redlock_vote *vote)
{
    bool enough = vote->yes >= vote->redlock->majority;

    if (vote->pending > 0 && !(vote->timed_out && enough))
        return;
    hf_redlock_read_abandon_lists(vote);
    if (enough)
        hf_redlock_vote_answer(vote, merge_lists(vote, &vote->request->answer));
    else
        hf_redlock_vote_answer(vote, HF_EUNAVAIL);
}

static void on_server_listed(void *arg, struct hf_redis_list_result *found)
{
    struct hf_redlock_ballot *ballot = arg;
    struct hf_redlock_vote *vote = ballot->vote;

    ballot->list = NULL;
    ballot->listed = *found;
    vote->pending--;
    vote->yes += !found->err;
    vote->lost += found->err != HF_OK;
    if (vote->yes == vote->redlock->majority)
        hf_redlock_vote_set_timeout(vote, LAST_LIST_MS);
    if (found->cause)
        hf_redlock_vote_set_cause(vote, found->cause);
    hf_redlock_vote_decide(vote);
}

void hf_redlock_read_list_all(struct hf_redlock_vote *vote)
{
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        struct hf_redlock_ballot *ballot = &vote->ballots[i];

        if (hf_redlock_vote_can_send(vote, ballot->server) &&
            !hf_redis_list_start(&ballot->server->connection, vote->command.key,
                                 on_server_listed, ballot,
                                 &vote->request->progress, &ballot->list))
            vote->pending++;
    }
}

void hf_redlock_read_abandon_lists(struct hf_redlock_vote *vote)
{
    for (unsigned i = 0; i < vote->redlock->count; i++) {
        if (vote->ballots[i].list) {
            hf_redis_list_abandon(vote->ballots[i].list);
            vote->ballots[i].list = NULL;
            vote->pending--;
        }
    }
}
