#include "master.h"

#include "bounds.h"
#include "mutants.h"

#include <string.h>

void hf_master_init(struct hf_master *master)
{
    memset(master, 0, sizeof *master);
    master->promise.to = NOBODY;
    master->lease.claim = NOBODY;
    master->vote.claim = NOBODY;
}

struct hf_report hf_master_report(const struct hf_master *master)
{
    struct hf_report report = {
        .lease = master->lease,
        .vote = master->vote,
        .ended = master->ended,
    };

    /* Only updates use the deadlines; without them fewer states differ. */
    if (hf_bounds.updaters == 0) {
        report.lease.send = 0;
        report.vote.send = 0;
    }
    return report;
}

/* ---- promises, votes, leases -------------------------------------------- */

static void set_promise(struct hf_master *master, uint8_t number, uint8_t to)
{
    master->promise = (struct hf_promise){number, to};
    /* The mark is synced before an answer leaves. */
    if (number > master->mark && !is_mutant(MARK_NOT_SYNCED))
        master->mark = number;
}

/* A ballot belongs to a client, not to a claim: two processes that know the
 * same nonce may use the same number. */
static uint8_t ballot_owner(const struct hf_message *message)
{
    return is_mutant(UPDATERS_SHARE_BALLOTS) ? message->claim : message->client;
}

static bool is_promised_to(const struct hf_master *master, uint8_t number,
                           uint8_t client)
{
    return master->promise.number == number && master->promise.to == client;
}

/* Returns true if `number` is above all that was promised. An equal number of
 * another client is too low. */
static bool is_above(const struct hf_master *master, uint8_t number)
{
    if (is_mutant(EQUAL_NUMBERS_PASS))
        return number >= master->promise.number;
    return number > master->promise.number;
}

static void drop_vote(struct hf_master *master)
{
    master->vote = (struct hf_vote){.claim = NOBODY};
}

static bool has_lease_of(const struct hf_master *master, uint8_t claim,
                         uint8_t token)
{
    return is_held(master) && master->lease.claim == claim &&
           master->lease.token == token;
}

static bool has_vote_of(const struct hf_master *master, uint8_t claim,
                        uint8_t number)
{
    return master->vote.claim == claim && master->vote.number == number;
}

/* Write the lease layer under `ballot`. A lease is never shortened. */
static void write_lease(struct hf_master *master,
                        const struct hf_message *message, uint8_t ballot,
                        hf_send send)
{
    if (has_lease_of(master, message->claim, message->token) &&
        master->lease.send > send)
        send = master->lease.send;
    master->lease = (struct hf_lease){
        .state = LEASE_HELD,
        .ballot = ballot,
        .claim = message->claim,
        .token = message->token,
        .value = message->value,
        .send = send,
    };
    drop_vote(master);
}

/* ---- requests ------------------------------------------------------------ */

static bool on_ask(struct hf_master *master, const struct hf_message *ask)
{
    if (has_lease_of(master, ask->claim, ask->number))
        return true;
    if (is_held(master))
        return false; /* BUSY */
    if (has_vote_of(master, ask->claim, ask->number))
        return true;
    if (has_vote(master) && master->vote.claim != ask->claim)
        return false; /* BUSY */
    if (!is_above(master, ask->number))
        return false; /* LOW */
    set_promise(master, ask->number, ballot_owner(ask));
    master->vote = (struct hf_vote){
        .claim = ask->claim,
        .number = ask->number,
        .send = ask->send,
        .slow = ask->slow,
    };
    return true;
}

/* A vote or a lease of another claim stays, and the report shows it. */
static bool on_prepare(struct hf_master *master,
                       const struct hf_message *prepare)
{
    if (!is_above(master, prepare->number) &&
        !is_promised_to(master, prepare->number, ballot_owner(prepare)))
        return false; /* LOW */
    set_promise(master, prepare->number, ballot_owner(prepare));
    return true;
}

static bool may_commit(const struct hf_master *master,
                       const struct hf_message *commit)
{
    if (is_mutant(COMMIT_IGNORES_BALLOTS))
        return true;
    if (is_mutant(LATE_COMMIT_APPLIED) &&
        is_promised_to(master, commit->number, NOBODY))
        return true;
    return is_above(master, commit->number) ||
           is_promised_to(master, commit->number, ballot_owner(commit));
}

static bool on_commit(struct hf_master *master, const struct hf_message *commit)
{
    if (has_lease_of(master, commit->claim, commit->token) &&
        master->lease.ballot == commit->number)
        return true;
    if (!may_commit(master, commit))
        return false; /* LOW */
    write_lease(master, commit, commit->number, commit->send);
    if (commit->number > master->promise.number)
        set_promise(master, commit->number, ballot_owner(commit));
    return true;
}

/* RENEW of a lease may ignore promises: the client that was promised a number
 * has seen the lease in the report. RENEW of a vote may not: the report showed
 * a vote, which counts for less than a lease. */
static bool may_renew_vote(const struct hf_master *master,
                           const struct hf_message *renew)
{
    if (is_held(master) || !has_vote_of(master, renew->claim, renew->token))
        return false;
    return is_promised_to(master, renew->token, ballot_owner(renew)) ||
           is_mutant(RENEW_OF_VOTE_AFTER_PROMISE);
}

static bool on_renew(struct hf_master *master, const struct hf_message *renew)
{
    hf_send vote_send = master->vote.send;

    if (has_lease_of(master, renew->claim, renew->token)) {
        if (renew->send > master->lease.send)
            master->lease.send = renew->send;
        return true;
    }
    if (may_renew_vote(master, renew)) {
        write_lease(master, renew, renew->token,
                    renew->send > vote_send ? renew->send : vote_send);
        return true;
    }
    if (is_mutant(RENEW_CREATES) && !is_held(master) && !has_vote(master)) {
        write_lease(master, renew, renew->token, renew->send);
        return true;
    }
    return false; /* MISSING */
}

static bool may_end(uint8_t claim, const struct hf_message *end)
{
    return claim == end->claim ||
           (is_mutant(END_FREES_OTHERS) && claim != NOBODY);
}

/* The claim was entitled to write under `end->ballot`. So that ballot is
 * released on every master, also where its COMMIT has not arrived, and older
 * votes have lost against it. */
static void release_ballot(struct hf_master *master,
                           const struct hf_message *end)
{
    if (end->ballot == 0 || end->ballot < master->lease.ballot ||
        is_mutant(END_LEAVES_NO_TRACE))
        return;
    if (has_vote(master) && master->vote.number < end->ballot)
        drop_vote(master);
    master->lease.state = LEASE_RELEASED;
    master->lease.ballot = end->ballot;
    master->lease.claim = end->claim;
    master->lease.token = end->ballot;
}

/* A withdrawn vote leaves no trace in the lease layer: "released" would hide an
 * older holder that this master has missed. */
static void withdraw_vote(struct hf_master *master,
                          const struct hf_message *end)
{
    if (is_mutant(VOTE_WITHDRAWN_AS_RELEASED)) {
        master->lease.state = LEASE_RELEASED;
        master->lease.ballot = master->vote.number;
        master->lease.claim = end->claim;
        master->lease.token = master->vote.number;
    }
    drop_vote(master);
}

/* Late requests for the claim must find their number closed. A promise to
 * another claim stays, even under an equal number. */
static void close_promise(struct hf_master *master,
                          const struct hf_message *end)
{
    if (is_mutant(END_DOES_NOT_CLOSE))
        return;
    if (claim_of(master->promise.to) == end->claim)
        master->promise.to = NOBODY;
    if (end->number > master->promise.number)
        set_promise(master, end->number, NOBODY);
}

static bool on_end(struct hf_master *master, const struct hf_message *end)
{
    if (is_held(master) && may_end(master->lease.claim, end))
        master->lease.state = LEASE_RELEASED;
    if (may_end(master->vote.claim, end))
        withdraw_vote(master, end);
    release_ballot(master, end);
    close_promise(master, end);
    master->ended |= (uint8_t)(1u << end->claim);
    return true;
}

/* END closes the numbers that its client has used, and the model checks that
 * this stops all of its late requests. It does not know the numbers of an
 * updater; these are refused by the list of ended claims. */
static bool is_refused(const struct hf_master *master,
                       const struct hf_message *message)
{
    return is_updater(message->client) && master->ended >> message->claim & 1;
}

static bool execute(struct hf_master *master, const struct hf_message *message)
{
    if (is_refused(master, message))
        return false;
    switch ((enum hf_message_type)message->type) {
    case ASK:
        return on_ask(master, message);
    case PREPARE:
        return on_prepare(master, message);
    case COMMIT:
        return on_commit(master, message);
    case RENEW:
        return on_renew(master, message);
    case END:
        return on_end(master, message);
    }
    return false;
}

bool hf_master_receive(struct hf_master *master,
                       const struct hf_message *message)
{
    struct hf_master before = *master;
    bool positive = execute(master, message);

    if (master->idle && memcmp(master, &before, sizeof before) != 0) {
        master->idle = false;
        memset(master->since, 0, sizeof master->since);
    }
    return positive;
}

/* ---- time and failures -------------------------------------------------- */

void hf_master_expire_lease(struct hf_master *master)
{
    master->lease.state = LEASE_EXPIRED;
}

void hf_master_expire_vote(struct hf_master *master)
{
    drop_vote(master);
}

void hf_master_drop_record(struct hf_master *master)
{
    master->lease = (struct hf_lease){.claim = NOBODY};
    master->ended = 0;
    master->promise.to = NOBODY;
    master->idle = false;
    memset(master->since, 0, sizeof master->since);
    if (is_mutant(DROP_FORGETS_PROMISE))
        master->promise.number = 0;
}

void hf_master_restart(struct hf_master *master)
{
    uint8_t mark = master->mark;

    hf_master_init(master);
    master->mark = mark;
    master->promise.number = mark;
    master->quiet = true;
}

void hf_master_wake(struct hf_master *master)
{
    master->quiet = false;
    memset(master->since, 0, sizeof master->since);
}
