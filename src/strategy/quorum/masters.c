/* masters.c - the connections to the masters. */
#include <string.h>

#include "base/assert.h"
#include "core/quorum/message.h"
#include "strategy/quorum/quorum.h"

#define RETRY_MIN_MS 20 /* pause after a failed attempt; doubled by each */
#define RETRY_MAX_MS 1000
#define PATIENCE_MS 5 /* added to twice the longest round trip */
#define PATIENCE_MAX_MS 250

static struct hf_voting_master *master_of(struct hf_net_link *link)
{
    return HF_CONTAINER(link, struct hf_voting_master, link);
}

static bool is_free_slot(const struct hf_voting_master *master)
{
    return master->address.port == 0;
}

/* While a thread resolves the name of an address, the address must stay. */
static bool is_reusable(const struct hf_voting_master *master)
{
    return is_free_slot(master) && !master->address.is_resolving;
}

/* ---- Usable masters -----------------------------------------------------*/

unsigned hf_voting_masters_usable(const struct hf_voting *voting)
{
    return hf_voting_count(voting->common.usable);
}

bool hf_voting_masters_have_majority(const struct hf_voting *voting)
{
    return voting->set > 0 &&
           hf_voting_masters_usable(voting) >= voting->common.quorum.majority;
}

static bool has_failed(const struct hf_voting_master *master)
{
    return master->failures > 0 || master->quiet_until > 0;
}

bool hf_voting_masters_have_failed(const struct hf_voting *voting)
{
    unsigned hopeful = 0;

    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++)
        hopeful += !is_free_slot(&voting->masters[i]) &&
                   !has_failed(&voting->masters[i]);
    return voting->set > 0 ? hopeful < voting->common.quorum.majority
                           : hopeful == 0;
}

static const struct hf_voting_master *find_quiet(const struct hf_voting *voting)
{
    for (unsigned i = 0; i < voting->common.quorum.masters; i++) {
        if (voting->members[i]->quiet_until > 0)
            return voting->members[i];
    }
    return NULL;
}

static const struct hf_voting_master *find_failed(
    const struct hf_voting *voting)
{
    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        if (voting->masters[i].failures > 0)
            return &voting->masters[i];
    }
    return NULL;
}

void hf_voting_masters_explain(const struct hf_voting *voting,
                               struct hf_error *error)
{
    const struct hf_voting_master *quiet = find_quiet(voting);
    const struct hf_voting_master *failed = find_failed(voting);
    unsigned usable = hf_voting_masters_usable(voting);

    if (quiet)
        (void)hf_error_set(
            error, HF_EUNAVAIL,
            "%s: the master has restarted, and decides nothing for another "
            "%u ms; %u of %u masters are usable, %u are needed",
            quiet->address.name,
            hf_time_left(quiet->quiet_until, hf_net_now(&voting->net)), usable,
            voting->common.quorum.masters, voting->common.quorum.majority);
    else if (failed && voting->set > 0)
        (void)hf_error_set(error, failed->failure.code,
                           "%s; %u of %u masters are usable, %u are needed",
                           failed->failure.text, usable,
                           voting->common.quorum.masters,
                           voting->common.quorum.majority);
    else if (failed)
        *error = failed->failure;
    else
        (void)hf_error_set(error, HF_EUNAVAIL, "%s: no master answers",
                           voting->seeds.list[0].name);
}

static void set_usable(struct hf_voting_master *master, bool is_usable)
{
    struct hf_voting *voting = master->voting;
    unsigned bit = 1U << master->index;
    struct hf_error why;

    if (master->id == 0 || !(voting->common.usable & bit) == !is_usable)
        return;
    voting->common.usable ^= bit;
    hf_voting_claims_on_master(voting, master->index, is_usable);
    hf_voting_rounds_on_master(voting, master->index, is_usable);
    if (is_usable)
        hf_net_wake_at(&voting->net, hf_net_now(&voting->net)); /* pending */
    if (hf_voting_masters_have_majority(voting))
        return;
    hf_voting_masters_explain(voting, &why);
    hf_voting_claims_fail(voting, &why);
    hf_voting_rounds_fail(voting, &why);
}

/* ---- Members ------------------------------------------------------------*/

static struct hf_voting_master *find_slot(struct hf_voting *voting,
                                          const struct hf_mux_member *member)
{
    struct hf_voting_master *found = NULL;

    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        struct hf_voting_master *master = &voting->masters[i];

        if (master->id == member->id)
            return master;
        if (master->id == 0 && !is_free_slot(master) &&
            hf_bytes_equal(hf_bytes_of(master->address.name), member->address))
            found = master;
    }
    for (unsigned i = 0; !found && i < HF_VOTING_SLOTS; i++) {
        if (is_reusable(&voting->masters[i]))
            found = &voting->masters[i];
    }
    return found;
}

static bool read_address(struct hf_net_address *address,
                         const struct hf_mux_member *member)
{
    return hf_net_address_parse(address, member->address.data,
                                member->address.size);
}

/* Make `member` the master `index`. */
static void add_member(struct hf_voting *voting, unsigned index,
                       const struct hf_mux_member *member)
{
    struct hf_voting_master *master = find_slot(voting, member);

    HF_ASSERT(master);
    if (is_free_slot(master))
        (void)read_address(&master->address, member);
    master->id = member->id;
    master->index = index;
    voting->members[index] = master;
}

/* Read all masters of `members`. Returns how many there are; 0: malformed. */
static unsigned read_members(struct hf_bytes members, uint64_t *set,
                             struct hf_mux_member list[HF_QUORUM_MASTERS_MAX])
{
    struct hf_net_address address;
    struct hf_mux_member member;
    struct hf_bytes rest;
    unsigned count = 0;

    if (!hf_mux_members_set(members, set, &rest) || *set == 0)
        return 0;
    while (hf_mux_members_next(&rest, &member)) {
        if (!member.is_master)
            continue;
        if (count == HF_QUORUM_MASTERS_MAX || member.id == 0 ||
            (count > 0 && member.id <= list[count - 1].id) ||
            !read_address(&address, &member))
            return 0;
        list[count++] = member;
    }
    return rest.size == 0 ? count : 0;
}

/* Free the slots of addresses in the URL that are not those of members: another
 * name of a member, or a node that is not one. */
static void drop_strangers(struct hf_voting *voting)
{
    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        struct hf_voting_master *master = &voting->masters[i];

        if (is_free_slot(master) || master->id > 0)
            continue;
        hf_net_link_close(&master->link);
        master->address.port = 0;
        master->connect_at = HF_NEVER;
        master->failures = 0;
    }
}

static void resolve_members(struct hf_voting *voting)
{
    for (unsigned i = 0; i < voting->common.quorum.masters; i++) {
        struct hf_voting_master *master = voting->members[i];

        if (master->link.state == HF_NET_LINK_DOWN && master->failures == 0)
            master->connect_at = hf_net_now(&voting->net);
    }
}

/* `master` is the first one that has answered: learn all members from it. */
static bool learn_members(struct hf_voting_master *master,
                          const struct hf_mux_hello *hello)
{
    struct hf_mux_member list[HF_QUORUM_MASTERS_MAX];
    struct hf_voting *voting = master->voting;
    uint64_t set;
    unsigned count = read_members(hello->members, &set, list);
    bool is_member = false;

    for (unsigned i = 0; i < count; i++)
        is_member |= list[i].id == hello->node;
    if (!is_member || hello->cluster.size >= sizeof(voting->cluster))
        return false;
    master->id = hello->node;
    /* The addresses of known members are found by name, and the others get the
     * slots of strangers. */
    for (unsigned i = 0; i < count; i++) {
        struct hf_voting_master *known = find_slot(voting, &list[i]);

        if (known && !is_free_slot(known))
            known->id = list[i].id;
    }
    drop_strangers(voting);
    for (unsigned i = 0; i < count; i++)
        add_member(voting, i, &list[i]);
    hf_copy(voting->cluster, hello->cluster.data, hello->cluster.size);
    voting->cluster[hello->cluster.size] = '\0';
    voting->common.quorum = hf_quorum_of(count);
    voting->set = set;
    resolve_members(voting);
    return true;
}

/* Returns why the node is not the master that this connection is for, or
 * NULL. */
static const char *find_mismatch(struct hf_voting_master *master,
                                 const struct hf_mux_hello *hello)
{
    struct hf_voting *voting = master->voting;
    struct hf_mux_member list[HF_QUORUM_MASTERS_MAX];
    uint64_t set;

    if (!hf_bytes_equal(hello->mode, hf_bytes_of("quorum")))
        return "the node does not serve quorum: use the URL that its cluster "
               "was started with";
    if (voting->set == 0)
        return learn_members(master, hello)
                   ? NULL
                   : "the node sent a malformed list of masters";
    if (!hf_bytes_equal(hello->cluster, hf_bytes_of(voting->cluster)))
        return "the node belongs to another cluster than the first one that "
               "answered";
    if (read_members(hello->members, &set, list) == 0 || set != voting->set)
        return "the node has another set of masters than the first one that "
               "answered";
    return hello->node == master->id ? NULL
                                     : "another master answers at this address";
}

/* ---- Messages -----------------------------------------------------------*/

static void note_round_trip(struct hf_voting *voting, uint32_t ms)
{
    uint32_t longest = voting->round_trip_ms;

    longest = ms >= longest ? ms : longest - (longest - ms + 7) / 8;
    voting->round_trip_ms = longest;
    voting->common.patience_ms = PATIENCE_MS + 2 * longest;
    if (voting->common.patience_ms > PATIENCE_MAX_MS)
        voting->common.patience_ms = PATIENCE_MAX_MS;
}

static void set_quiet(struct hf_voting_master *master, uint32_t ms)
{
    struct hf_net *net = &master->voting->net;

    master->quiet_until = hf_time_add(hf_net_now(net), (uint64_t)ms + 1);
    hf_net_wake_at(net, master->quiet_until);
    set_usable(master, false);
}

/* A claim takes a higher number than any that a master has reported. */
static void note_highest(struct hf_voting *voting, uint64_t highest)
{
    if (highest > voting->common.highest && highest <= HF_QUORUM_NUMBER_MAX)
        voting->common.highest = highest;
}

static void on_quorum_reply(struct hf_voting_master *master, uint64_t id,
                            const struct hf_quorum_reply *reply)
{
    struct hf_voting *voting = master->voting;

    note_highest(voting, reply->highest);
    if (reply->kind == HF_QUORUM_QUIET)
        set_quiet(master, reply->quiet_ms);
    else if (!hf_voting_claims_on_reply(voting, master->index, id, reply))
        (void)hf_voting_rounds_on_reply(voting, master->index, id, reply);
}

static void lose_master(struct hf_voting_master *master, const char *text)
{
    hf_net_link_lose(&master->link, HF_EPROTO, text);
}

static void on_push(struct hf_voting_master *master,
                    const struct hf_resp_message *message)
{
    struct hf_quorum_reply reply;
    struct hf_claim_id id;
    struct hf_mux_push push;
    enum hf_err err = hf_mux_push_decode(&push, message);

    if (err == HF_EUNSUPPORTED || (!err && push.kind != HF_MUX_PUSH_VOTE))
        return;
    if (err || hf_message_decode_reply(&reply, push.reply)) {
        lose_master(master, "the master sent a malformed message");
        return;
    }
    memcpy(&id, push.claim.data, sizeof(id));
    hf_voting_claims_on_push(master->voting, master->index, &id, &reply);
}

_Static_assert(sizeof(struct hf_claim_id) == HF_MUX_CLAIM_SIZE, "VOTE");

/* Decode the reply to a message of the quorum protocol. Returns what is wrong
 * with it, or NULL. */
static const char *read_quorum_reply(struct hf_quorum_reply *quorum,
                                     const struct hf_resp_message *message)
{
    struct hf_mux_reply reply;

    if (hf_mux_reply_decode(&reply, HF_VERB_QUORUM, message))
        return "the master sent a malformed reply";
    if (reply.err)
        return "the master refused a message";
    return hf_message_decode_reply(quorum, reply.result)
               ? "the master sent a malformed reply"
               : NULL;
}

/* If the sender has ended, the message may be of any kind: a LIST or a local
 * READ that was given up is still answered. */
static void on_link_message(struct hf_net_link *link, uint64_t id,
                            const struct hf_resp_message *message)
{
    struct hf_voting_master *master = master_of(link);
    struct hf_voting *voting = master->voting;
    struct hf_quorum_reply reply;
    const char *fault;

    if (link->state != HF_NET_LINK_UP)
        return; /* pushed before it has said which master it is */
    if (id == 0) {
        on_push(master, message);
        return;
    }
    if (hf_voting_rounds_on_local(voting, master->index, id, message) ||
        hf_voting_list_on_page(voting, master->index, id, message))
        return;
    fault = read_quorum_reply(&reply, message);
    if (!fault)
        on_quorum_reply(master, id, &reply);
    else if (hf_voting_claims_has(voting, id) ||
             hf_voting_rounds_has(voting, id))
        lose_master(master, fault);
}

void hf_voting_masters_send(struct hf_voting *voting, unsigned index,
                            uint64_t id,
                            const struct hf_quorum_request *request)
{
    struct hf_net_link *link = &voting->members[index]->link;
    struct hf_buf *scratch = &voting->scratch;
    struct hf_mux_request message = {.id = id, .verb = HF_VERB_QUORUM};

    HF_ASSERT(link->state == HF_NET_LINK_UP);
    scratch->size = 0;
    scratch->failed = false;
    hf_message_encode_request(request, scratch);
    link->output.failed |= scratch->failed; /* its flush fails */
    message.command = (struct hf_bytes){scratch->data, scratch->size};
    hf_net_link_send(link, &message);
}

void hf_voting_masters_expect(struct hf_voting *voting)
{
    for (unsigned i = 0; i < voting->common.quorum.masters; i++) {
        if (voting->members[i]->link.state == HF_NET_LINK_UP)
            hf_net_link_expect(&voting->members[i]->link);
    }
}

/* ---- Connections --------------------------------------------------------*/

static void on_link_ready(struct hf_net_link *link,
                          const struct hf_mux_hello *hello)
{
    struct hf_voting_master *master = master_of(link);
    bool is_first = master->voting->set == 0;
    const char *mismatch = find_mismatch(master, hello);

    if (mismatch) {
        hf_net_link_lose(link, HF_EUNSUPPORTED, mismatch);
        return;
    }
    note_round_trip(master->voting, link->hello_ms);
    note_highest(master->voting, hello->highest);
    hf_net_link_set_up(link);
    master->failures = 0;
    master->quiet_until = 0;
    set_usable(master, true);
    if (is_first)
        hf_net_wake_at(link->net, hf_net_now(link->net)); /* others connect */
}

static void on_link_lost(struct hf_net_link *link, bool was_up,
                         const struct hf_error *failure)
{
    struct hf_voting_master *master = master_of(link);
    struct hf_random *random = link->net->host->ops->random(link->net->host);
    uint32_t pause = RETRY_MIN_MS;

    (void)was_up;
    for (unsigned i = 0; i < master->failures && pause < RETRY_MAX_MS; i++)
        pause *= 2;
    master->failures++;
    master->failure = *failure;
    master->quiet_until = 0;
    master->connect_at = hf_time_add(
        hf_net_now(link->net), pause + hf_random_below(random, pause / 2 + 1));
    hf_net_wake_at(link->net, master->connect_at);
    if (master->id > 0) {
        hf_voting_list_on_lost(master->voting, master->index);
        set_usable(master, false);
    }
}

static bool is_link_awaiting(const struct hf_net_link *link)
{
    const struct hf_voting *voting =
        HF_CONTAINER(link, const struct hf_voting_master, link)->voting;

    return voting->active_claims > 0 || !hf_dlist_is_empty(&voting->rounds) ||
           !hf_dlist_is_empty(&voting->lists);
}

static const struct hf_net_link_ops link_ops = {
    .ready = on_link_ready,
    .message = on_link_message,
    .lost = on_link_lost,
    .is_awaiting = is_link_awaiting,
};

static void connect_master(struct hf_voting_master *master)
{
    master->connect_at = HF_NEVER;
    hf_net_link_open(&master->link, &master->address);
}

void hf_voting_masters_start(struct hf_voting *voting)
{
    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        struct hf_voting_master *master = &voting->masters[i];

        master->voting = voting;
        master->connect_at = HF_NEVER;
        hf_net_link_init(&master->link, &voting->net, &link_ops);
        if (i < voting->seeds.count)
            master->address = voting->seeds.list[i];
    }
    for (unsigned i = 0; i < voting->seeds.count; i++)
        connect_master(&voting->masters[i]);
}

void hf_voting_masters_close(struct hf_voting *voting)
{
    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        if (voting->masters[i].voting)
            hf_net_link_close(&voting->masters[i].link);
    }
}

/* ---- Time ---------------------------------------------------------------*/

static void tick_master(struct hf_voting_master *master, hf_time now)
{
    if (master->quiet_until > 0 && now >= master->quiet_until) {
        master->quiet_until = 0;
        set_usable(master, master->link.state == HF_NET_LINK_UP);
    }
    if (now >= master->connect_at)
        connect_master(master);
    hf_net_link_tick(&master->link);
}

void hf_voting_masters_tick(struct hf_voting *voting)
{
    hf_time now = hf_net_now(&voting->net);

    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        if (!is_free_slot(&voting->masters[i]))
            tick_master(&voting->masters[i], now);
    }
}

hf_time hf_voting_masters_deadline(const struct hf_voting *voting)
{
    hf_time at = HF_NEVER;

    for (unsigned i = 0; i < HF_VOTING_SLOTS; i++) {
        const struct hf_voting_master *master = &voting->masters[i];

        if (is_free_slot(master))
            continue;
        at = hf_time_min(at, master->connect_at);
        at = hf_time_min(at, hf_net_link_deadline(&master->link));
        if (master->quiet_until > 0)
            at = hf_time_min(at, master->quiet_until);
    }
    return at;
}
