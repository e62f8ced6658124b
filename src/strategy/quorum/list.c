/* list.c - LIST: the lists of the masters, merged.
 *
 * Each master lists the keys that it knows of. A key counts as held if,
 * together with the masters that have not replied, those that show it with the
 * same token may be a majority. */
#include <stdlib.h>

#include "strategy/quorum/quorum.h"

struct part {
    struct hf_info *infos;
    size_t count;
    size_t capacity;
};

struct hf_voting_list {
    struct hf_dlist link; /* in voting->lists */
    struct hf_voting *voting;
    struct hf_request *request;
    uint64_t id;
    unsigned awaited;  /* bits of masters */
    unsigned complete; /* bits of masters */
    struct part parts[HF_QUORUM_MASTERS_MAX];
};

static void clear_part(struct part *part)
{
    for (size_t i = 0; i < part->count; i++)
        hf_info_fini(&part->infos[i]);
    free(part->infos);
    *part = (struct part){0};
}

static void end_list(struct hf_voting_list *list, enum hf_err err,
                     const char *cause)
{
    struct hf_voting *voting = list->voting;
    struct hf_request *request = list->request;

    for (unsigned i = 0; i < HF_QUORUM_MASTERS_MAX; i++)
        clear_part(&list->parts[i]);
    hf_dlist_remove(&list->link);
    free(list);
    hf_voting_answer(voting, request, err, cause);
}

/* ---- Merging ------------------------------------------------------------*/

/* Move the infos of all parts into one array. */
static struct hf_info *join_parts(struct hf_voting_list *list, size_t *count)
{
    struct hf_info *infos;
    size_t total = 0;

    for (unsigned i = 0; i < HF_QUORUM_MASTERS_MAX; i++)
        total += list->parts[i].count;
    infos = malloc(total > 0 ? total * sizeof(*infos) : 1);
    *count = 0;
    for (unsigned i = 0; infos && i < HF_QUORUM_MASTERS_MAX; i++) {
        struct part *part = &list->parts[i];

        hf_copy(infos + *count, part->infos, part->count * sizeof(*infos));
        *count += part->count;
        part->count = 0;
    }
    return infos;
}

static bool is_same_grant(const struct hf_info *a, const struct hf_info *b)
{
    return a->token == b->token && hf_key_equal(a->key, b->key);
}

/* Keep one copy of each grant that at least `needed` masters show. Returns how
 * many are left. */
static size_t keep_grants(struct hf_info *infos, size_t count, size_t needed)
{
    size_t kept = 0;

    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && is_same_grant(&infos[i], &infos[end]);)
            end++;
        for (size_t j = i + 1; j < end; j++)
            hf_info_fini(&infos[j]);
        if (end - i >= needed)
            infos[kept++] = infos[i];
        else
            hf_info_fini(&infos[i]);
    }
    return kept;
}

static void finish_list(struct hf_voting_list *list)
{
    const struct hf_quorum *quorum = &list->voting->common.quorum;
    unsigned silent = quorum->masters - hf_voting_count(list->complete);
    struct hf_answer *answer = &list->request->answer;
    struct hf_info *infos;
    size_t count;

    if (silent >= quorum->majority) {
        end_list(list, HF_EUNAVAIL,
                 "fewer than a majority of the masters "
                 "have sent their lists");
        return;
    }
    infos = join_parts(list, &count);
    if (!infos) {
        end_list(list, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    hf_info_sort(infos, count);
    count = keep_grants(infos, count, quorum->majority - silent);
    answer->infos = infos;
    answer->count = hf_info_sort_unique(infos, count);
    end_list(list, HF_OK, NULL);
}

/* ---- Pages --------------------------------------------------------------*/

static enum hf_err reserve_infos(struct part *part, size_t more)
{
    size_t capacity = part->capacity > 0 ? part->capacity : 16;
    struct hf_info *infos;

    if (part->count + more > HF_LIST_MAX)
        return HF_ELIMIT;
    if (part->count + more <= part->capacity)
        return HF_OK;
    while (capacity < part->count + more)
        capacity *= 2;
    infos = realloc(part->infos, capacity * sizeof(*infos));
    if (!infos)
        return HF_ENOMEM;
    part->infos = infos;
    part->capacity = capacity;
    return HF_OK;
}

static enum hf_err add_page(struct part *part, const struct hf_mux_reply *reply)
{
    enum hf_err err = reply->err;

    if (!err)
        err = reserve_infos(part, reply->info_count);
    for (size_t i = 0; !err && i < reply->info_count; i++) {
        struct hf_info info;

        err = hf_protocol_decode_info(&info, hf_resp_bytes(&reply->infos[i]));
        if (!err)
            err = hf_info_copy(&part->infos[part->count], &info);
        part->count += !err;
    }
    return err;
}

static struct hf_voting_list *find_list(const struct hf_voting *voting,
                                        uint64_t id)
{
    struct hf_dlist *link = voting->lists.next;

    for (; link != &voting->lists; link = link->next) {
        struct hf_voting_list *list =
            HF_CONTAINER(link, struct hf_voting_list, link);

        if (list->id == id)
            return list;
    }
    return NULL;
}

bool hf_voting_list_on_page(struct hf_voting *voting, unsigned master,
                            uint64_t id, const struct hf_resp_message *message)
{
    struct hf_voting_list *list = find_list(voting, id);
    struct hf_mux_reply reply;
    enum hf_err err;

    if (!list)
        return false;
    if (!(list->awaited >> master & 1))
        return true; /* its list is complete */
    err = hf_mux_reply_decode(&reply, HF_VERB_LIST, message);
    if (!err)
        err = add_page(&list->parts[master], &reply);
    list->request->progress = hf_net_now(&voting->net);
    if (err) {
        end_list(list, err, hf_err_text(err));
        return true;
    }
    if (reply.more)
        return true;
    list->awaited &= ~(1U << master);
    list->complete |= 1U << master;
    if (!list->awaited)
        finish_list(list);
    return true;
}

/* ---- Members of the strategy --------------------------------------------*/

void hf_voting_list_submit(struct hf_voting *voting, struct hf_request *request)
{
    struct hf_voting_list *list = calloc(1, sizeof(*list));
    struct hf_mux_request message = {
        .verb = HF_VERB_LIST,
        .key = request->command.key,
    };

    if (!list) {
        hf_voting_answer(voting, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    if (hf_dlist_is_empty(&voting->lists))
        hf_voting_masters_expect(voting);
    list->voting = voting;
    list->request = request;
    list->id = voting->net.next_id++;
    message.id = list->id;
    hf_dlist_push_back(&voting->lists, &list->link);
    for (unsigned i = 0; i < voting->common.quorum.masters; i++) {
        if (!(voting->common.usable >> i & 1))
            continue;
        list->awaited |= 1U << i;
        hf_net_link_send(&voting->members[i]->link, &message);
    }
    if (!list->awaited)
        finish_list(list);
}

bool hf_voting_list_cancel(struct hf_voting *voting, struct hf_request *request)
{
    struct hf_dlist *link = voting->lists.next;

    for (; link != &voting->lists; link = link->next) {
        struct hf_voting_list *list =
            HF_CONTAINER(link, struct hf_voting_list, link);

        if (list->request != request)
            continue;
        end_list(list, HF_EUNAVAIL, NULL);
        return true;
    }
    return false;
}

void hf_voting_list_on_lost(struct hf_voting *voting, unsigned master)
{
    struct hf_dlist *link = voting->lists.next, *next;

    for (; link != &voting->lists; link = next) {
        struct hf_voting_list *list =
            HF_CONTAINER(link, struct hf_voting_list, link);

        next = link->next;
        if (!(list->awaited >> master & 1))
            continue;
        clear_part(&list->parts[master]);
        list->awaited &= ~(1U << master);
        if (!list->awaited)
            finish_list(list);
    }
}
