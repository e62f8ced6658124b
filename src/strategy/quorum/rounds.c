/* rounds.c - requests to all masters that belong to no claim of this client:
 * READ, FORCE, and the check of a claim that is adopted.
 *
 * A round counts the reports of the masters (hf_verdict_read()). While these
 * decide nothing, because a change is under way, the masters are asked again. A
 * local READ asks one master only. */
#include <stdlib.h>
#include <string.h>

#include "strategy/quorum/quorum.h"

#define AGAIN_MIN_MS                                                           \
    5 /* until the masters are asked again; doubled each time */
#define AGAIN_MAX_MS 100

struct hf_voting_round {
    struct hf_dlist link; /* in voting->rounds */
    struct hf_voting *voting;
    uint64_t id;                /* of its messages */
    struct hf_request *request; /* NULL: a check */
    struct hf_key key;
    uint64_t token;                 /* FORCE, a check */
    struct hf_claim_id id_of_claim; /* a check */
    void (*on_checked)(void *arg, enum hf_err err);
    void *arg;
    bool is_local;
    unsigned master; /* is_local */
    uint32_t serial;
    unsigned replied; /* bits of masters */
    unsigned forced;  /* bits of masters that have executed a FORCE */
    hf_time sent;     /* when the masters were asked last */
    uint32_t again_ms;
    hf_time again_at;
    struct {
        struct hf_report report;
        struct hf_claim_copy data;
    } replies[HF_QUORUM_MASTERS_MAX];
};

/* ---- New and free -------------------------------------------------------*/

static struct hf_voting_round *add_round(struct hf_voting *voting,
                                         struct hf_key key)
{
    struct hf_voting_round *round = calloc(1, sizeof(*round));

    if (!round)
        return NULL;
    if (hf_dlist_is_empty(&voting->rounds))
        hf_voting_masters_expect(voting);
    round->voting = voting;
    round->id = voting->net.next_id++;
    round->key = key;
    round->again_ms = AGAIN_MIN_MS;
    round->again_at = HF_NEVER;
    hf_dlist_push_back(&voting->rounds, &round->link);
    return round;
}

static void clear_replies(struct hf_voting_round *round)
{
    for (unsigned i = 0; i < HF_QUORUM_MASTERS_MAX; i++)
        hf_claim_copy_fini(&round->replies[i].data);
    round->replied = 0;
}

static void free_round(struct hf_voting_round *round)
{
    clear_replies(round);
    hf_dlist_remove(&round->link);
    free(round);
}

static struct hf_voting_round *find_round(const struct hf_voting *voting,
                                          uint64_t id, bool is_local)
{
    struct hf_dlist *link = voting->rounds.next;

    for (; link != &voting->rounds; link = link->next) {
        struct hf_voting_round *round =
            HF_CONTAINER(link, struct hf_voting_round, link);

        if (round->id == id && round->is_local == is_local)
            return round;
    }
    return NULL;
}

/* End the round: answer its request, or the check. */
static void end_round(struct hf_voting_round *round, enum hf_err err,
                      const char *cause)
{
    struct hf_voting *voting = round->voting;
    struct hf_request *request = round->request;
    void (*on_checked)(void *arg, enum hf_err err) = round->on_checked;
    void *arg = round->arg;

    free_round(round);
    if (request)
        hf_voting_answer(voting, request, err, cause);
    else
        on_checked(arg, err);
}

/* ---- Asking -------------------------------------------------------------*/

static bool is_force(const struct hf_voting_round *round)
{
    return round->request && round->request->kind == HF_REQUEST_COMMAND;
}

static void send_round(struct hf_voting_round *round, unsigned master)
{
    struct hf_quorum_request request = {
        .kind = is_force(round) ? HF_QUORUM_FORCE : HF_QUORUM_READ,
        .key = round->key,
        .serial = round->serial,
    };

    if (is_force(round)) {
        request.token = round->token;
        request.now = round->request->command.now;
    }
    hf_voting_masters_send(round->voting, master, round->id, &request);
}

static void ask_all(struct hf_voting_round *round)
{
    struct hf_voting *voting = round->voting;

    clear_replies(round);
    round->serial++;
    round->sent = hf_net_now(&voting->net);
    round->again_at = HF_NEVER;
    for (unsigned i = 0; i < voting->common.quorum.masters; i++) {
        if (voting->common.usable >> i & 1)
            send_round(round, i);
    }
}

static void ask_again_later(struct hf_voting_round *round)
{
    struct hf_net *net = &round->voting->net;

    round->again_at = hf_time_add(hf_net_now(net), round->again_ms);
    hf_net_wake_at(net, round->again_at);
    if (round->again_ms < AGAIN_MAX_MS)
        round->again_ms *= 2;
}

static void send_local(struct hf_voting_round *round, unsigned master)
{
    const struct hf_mux_request request = {
        .id = round->id,
        .verb = HF_VERB_READ,
        .key = round->key,
    };

    round->master = master;
    hf_net_link_send(&round->voting->members[master]->link, &request);
}

/* ---- Results ------------------------------------------------------------*/

static enum hf_err answer_info(struct hf_request *request,
                               const struct hf_info *info)
{
    enum hf_err err;

    request->answer.infos = calloc(1, sizeof(*info));
    if (!request->answer.infos)
        return HF_ENOMEM;
    err = hf_info_copy(request->answer.infos, info);
    request->answer.count = err ? 0 : 1;
    return err;
}

/* Copy `bytes`, and end them with a NUL. */
static const char *copy_text(char *text, size_t size, struct hf_bytes bytes)
{
    size_t used = bytes.size < size ? bytes.size : size - 1;

    hf_copy(text, bytes.data, used);
    text[used] = '\0';
    return text;
}

/* A vote of a claim that was granted by votes is its lease. */
static void fill_held(struct hf_info *info, const struct hf_verdict *verdict)
{
    const struct hf_report *source = verdict->source;
    bool is_lease = source->state == HF_REPORT_HELD;

    info->held = true;
    info->token = verdict->token;
    info->forced = source->forced;
    info->held_ms = is_lease ? source->held_ms : source->vote_age_ms;
    info->left_ms = is_lease ? source->left_ms : source->vote_left_ms;
}

static enum hf_err finish_read(struct hf_voting_round *round,
                               const struct hf_verdict *verdict)
{
    char owner[HF_LABEL_MAX + 1], note[HF_NOTE_MAX + 1];
    struct hf_info info = {.key = round->key, .owner = "", .note = ""};

    for (unsigned i = 0; i < round->voting->common.quorum.masters; i++) {
        const struct hf_report *report = &round->replies[i].report;
        struct hf_claim_data data = hf_claim_copy_data(&round->replies[i].data);

        if (!(round->replied >> i & 1))
            continue;
        if (report->waiters > info.waiters)
            info.waiters = report->waiters;
        if (verdict->kind != HF_VERDICT_HELD || verdict->source != report)
            continue;
        fill_held(&info, verdict);
        info.value = data.value;
        info.owner = copy_text(owner, sizeof(owner), data.owner);
        info.note = copy_text(note, sizeof(note), data.note);
    }
    return answer_info(round->request, &info);
}

/* How a FORCE, or a check, is answered if the key is not held as it says. */
static enum hf_err mismatch_error(const struct hf_verdict *verdict)
{
    return verdict->kind == HF_VERDICT_HELD ? HF_ENOTOWNER : HF_ENOTHELD;
}

static enum hf_err check_result(const struct hf_voting_round *round,
                                const struct hf_verdict *verdict)
{
    if (verdict->kind == HF_VERDICT_HELD && verdict->token == round->token &&
        hf_claim_id_equal(&verdict->holder, &round->id_of_claim))
        return HF_OK;
    return mismatch_error(verdict);
}

/* Returns true if a master has a copy of the claim that is checked. If a master
 * is down, the votes of the others do not show whether it was granted the key,
 * but its commands will. */
static bool is_shown(const struct hf_voting_round *round)
{
    for (unsigned i = 0; i < round->voting->common.quorum.masters; i++) {
        const struct hf_report *report = &round->replies[i].report;

        if (!(round->replied >> i & 1))
            continue;
        if ((report->state == HF_REPORT_HELD && report->token == round->token &&
             hf_claim_id_equal(&report->holder, &round->id_of_claim)) ||
            (report->has_vote && report->vote_number == round->token &&
             hf_claim_id_equal(&report->voter, &round->id_of_claim)))
            return true;
    }
    return false;
}

static bool has_all(const struct hf_voting_round *round)
{
    return !(round->voting->common.usable & ~round->replied);
}

/* A FORCE is done if a majority has executed it. Otherwise the reports, which
 * the masters made after they had executed it, say why. If the lock is gone, and
 * some masters have executed the FORCE, it is in doubt what has ended the
 * lock. */
static void decide_force(struct hf_voting_round *round,
                         const struct hf_verdict *verdict)
{
    bool is_gone =
        verdict->kind == HF_VERDICT_FREE ||
        (verdict->kind == HF_VERDICT_HELD && verdict->token != round->token);

    if (hf_voting_count(round->forced) >= round->voting->common.quorum.majority)
        end_round(round, HF_OK, NULL);
    else if (is_gone && round->forced == 0)
        end_round(round, mismatch_error(verdict), NULL);
    else if (is_gone && has_all(round))
        end_round(round, HF_EINDOUBT, NULL);
    else if (has_all(round))
        ask_again_later(round);
}

static void decide_round(struct hf_voting_round *round)
{
    struct hf_reports reports = {.quorum = round->voting->common.quorum};
    struct hf_verdict verdict;

    for (unsigned i = 0; i < reports.quorum.masters; i++) {
        if (round->replied >> i & 1)
            reports.list[i] = &round->replies[i].report;
    }
    reports.is_mixed =
        !is_force(round) &&
        hf_reports_may_mix(
            &reports,
            hf_time_left(hf_net_now(&round->voting->net), round->sent));
    verdict = hf_verdict_read(&reports);
    if (is_force(round)) {
        decide_force(round, &verdict);
    } else if (verdict.kind == HF_VERDICT_UNDECIDED && !round->request &&
               is_shown(round) &&
               hf_reports_count(&reports) >= reports.quorum.majority) {
        end_round(round, HF_OK, NULL);
    } else if (verdict.kind == HF_VERDICT_UNDECIDED ||
               (verdict.kind == HF_VERDICT_HELD && !verdict.source)) {
        if (has_all(round))
            ask_again_later(round);
    } else if (round->request) {
        end_round(round, finish_read(round, &verdict), NULL);
    } else {
        end_round(round, check_result(round, &verdict), NULL);
    }
}

/* ---- Members of the strategy --------------------------------------------*/

void hf_voting_rounds_submit(struct hf_voting *voting,
                             struct hf_request *request)
{
    struct hf_voting_round *round = add_round(voting, request->command.key);

    if (!round) {
        hf_voting_answer(voting, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    round->request = request;
    round->token = request->command.token;
    round->is_local =
        request->kind == HF_REQUEST_READ && request->how == HF_LOCAL;
    if (!round->is_local)
        ask_all(round);
    for (unsigned i = 0; round->is_local && i < voting->common.quorum.masters;
         i++) {
        if (voting->common.usable >> i & 1) {
            send_local(round, i);
            return;
        }
    }
}

void hf_voting_rounds_check(struct hf_voting *voting, struct hf_key key,
                            const struct hf_claim_id *id, uint64_t token,
                            void (*on_checked)(void *arg, enum hf_err err),
                            void *arg)
{
    struct hf_voting_round *round = add_round(voting, key);

    if (!round) {
        on_checked(arg, HF_ENOMEM);
        return;
    }
    round->id_of_claim = *id;
    round->token = token;
    round->on_checked = on_checked;
    round->arg = arg;
    ask_all(round);
}

void hf_voting_rounds_cancel_check(struct hf_voting *voting, const void *arg)
{
    struct hf_dlist *link = voting->rounds.next, *next;

    for (; link != &voting->rounds; link = next) {
        struct hf_voting_round *round =
            HF_CONTAINER(link, struct hf_voting_round, link);

        next = link->next;
        if (round->arg == arg)
            free_round(round);
    }
}

bool hf_voting_rounds_cancel(struct hf_voting *voting,
                             struct hf_request *request)
{
    struct hf_dlist *link = voting->rounds.next;

    for (; link != &voting->rounds; link = link->next) {
        struct hf_voting_round *round =
            HF_CONTAINER(link, struct hf_voting_round, link);

        if (round->request != request)
            continue;
        end_round(round, is_force(round) ? HF_EINDOUBT : HF_EUNAVAIL, NULL);
        return true;
    }
    return false;
}

/* ---- Input --------------------------------------------------------------*/

bool hf_voting_rounds_has(const struct hf_voting *voting, uint64_t id)
{
    return find_round(voting, id, false) != NULL;
}

bool hf_voting_rounds_on_reply(struct hf_voting *voting, unsigned master,
                               uint64_t id, const struct hf_quorum_reply *reply)
{
    struct hf_voting_round *round = find_round(voting, id, false);

    if (!round)
        return false;
    if (reply->serial != round->serial || round->again_at != HF_NEVER)
        return true;
    hf_claim_copy_fini(&round->replies[master].data);
    if (!hf_claim_copy_init(&round->replies[master].data,
                            &reply->report.data)) {
        end_round(round, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return true;
    }
    round->replies[master].report = reply->report;
    round->replied |= 1U << master;
    if (reply->kind == HF_QUORUM_OK)
        round->forced |= 1U << master;
    decide_round(round);
    return true;
}

bool hf_voting_rounds_on_local(struct hf_voting *voting, unsigned master,
                               uint64_t id,
                               const struct hf_resp_message *message)
{
    struct hf_voting_round *round = find_round(voting, id, true);
    struct hf_mux_reply reply;
    struct hf_info info;

    if (!round)
        return false;
    if (round->master != master)
        return true;
    if (hf_mux_reply_decode(&reply, HF_VERB_READ, message) ||
        (!reply.err &&
         hf_protocol_decode_info(&info, hf_resp_bytes(&reply.infos[0]))))
        end_round(round, HF_EPROTO, "the master sent a malformed reply");
    else if (reply.err)
        end_round(round, reply.err, hf_err_text(reply.err));
    else
        end_round(round, answer_info(round->request, &info), NULL);
    return true;
}

/* A master that becomes usable is asked, too. When one is lost, those that have
 * replied may be all. */
void hf_voting_rounds_on_master(struct hf_voting *voting, unsigned master,
                                bool is_usable)
{
    struct hf_dlist *link = voting->rounds.next, *next;

    for (; link != &voting->rounds; link = next) {
        struct hf_voting_round *round =
            HF_CONTAINER(link, struct hf_voting_round, link);

        next = link->next;
        if (round->is_local && !is_usable && round->master == master)
            end_round(round, HF_EUNAVAIL, "the master was lost");
        else if (round->is_local)
            continue;
        else if (is_usable)
            send_round(round, master);
        else if (round->again_at == HF_NEVER)
            decide_round(round);
    }
}

/* A local READ needs no majority. */
void hf_voting_rounds_fail(struct hf_voting *voting, const struct hf_error *why)
{
    struct hf_dlist *link = voting->rounds.next, *next;

    for (; link != &voting->rounds; link = next) {
        struct hf_voting_round *round =
            HF_CONTAINER(link, struct hf_voting_round, link);

        next = link->next;
        if (!round->is_local && round->request)
            end_round(round, is_force(round) ? HF_EINDOUBT : HF_EUNAVAIL,
                      why->text);
    }
}

/* ---- Time ---------------------------------------------------------------*/

void hf_voting_rounds_tick(struct hf_voting *voting)
{
    hf_time now = hf_net_now(&voting->net);

    for (struct hf_dlist *link = voting->rounds.next; link != &voting->rounds;
         link = link->next) {
        struct hf_voting_round *round =
            HF_CONTAINER(link, struct hf_voting_round, link);

        if (now >= round->again_at)
            ask_all(round);
    }
}

hf_time hf_voting_rounds_deadline(const struct hf_voting *voting)
{
    hf_time at = HF_NEVER;

    for (struct hf_dlist *link = voting->rounds.next; link != &voting->rounds;
         link = link->next)
        at = hf_time_min(
            at, HF_CONTAINER(link, struct hf_voting_round, link)->again_at);
    return at;
}

void hf_voting_rounds_fini(struct hf_voting *voting)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_first(&voting->rounds)))
        free_round(HF_CONTAINER(link, struct hf_voting_round, link));
}
