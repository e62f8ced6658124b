/* Which claim may hold a key, by the reports of some masters. A digit names a
 * claim. Most cases are mistakes that drafts of the protocol had. */
#include "core/quorum/verdict.h"

#include "base/random.h"
#include "lib/runner.h"

static struct hf_claim_id claim(unsigned number)
{
    return (struct hf_claim_id){{(uint8_t)number}};
}

/* ---- Reports ------------------------------------------------------------*/

static struct hf_report empty(void)
{
    return (struct hf_report){0};
}

static struct hf_report lease(enum hf_report_state state, unsigned holder,
                              uint64_t token, uint64_t ballot)
{
    return (struct hf_report){
        .promised = ballot,
        .state = state,
        .holder = claim(holder),
        .token = token,
        .ballot = ballot,
    };
}

/* Granted and never repaired: the ballot is the token. */
static struct hf_report held(unsigned holder, uint64_t token)
{
    return lease(HF_REPORT_HELD, holder, token, token);
}

static struct hf_report released(unsigned holder, uint64_t ballot)
{
    return lease(HF_REPORT_RELEASED, holder, ballot, ballot);
}

static struct hf_report with_vote(struct hf_report report, unsigned voter,
                                  uint64_t number, bool fast)
{
    report.has_vote = true;
    report.vote_is_fast = fast;
    report.vote_number = number;
    report.voter = claim(voter);
    return report;
}

static struct hf_report fast_vote(unsigned voter, uint64_t number)
{
    return with_vote(empty(), voter, number, true);
}

static struct hf_report slow_vote(unsigned voter, uint64_t number)
{
    return with_vote(empty(), voter, number, false);
}

static struct hf_report with_ended(struct hf_report report, unsigned ended)
{
    report.ended[report.ended_count++] = claim(ended);
    return report;
}

/* ---- Verdicts -----------------------------------------------------------*/

#define LIST(...)                                                              \
    (const struct hf_report[])                                                 \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

/* The reports of the masters in `heard`, a set of bits. */
static struct hf_reports reports_of(unsigned masters, unsigned heard,
                                    const struct hf_report *list)
{
    struct hf_reports reports = {.quorum = hf_quorum_of(masters)};

    for (unsigned i = 0; i < masters; i++) {
        if (heard >> i & 1)
            reports.list[i] = &list[i];
    }
    return reports;
}

/* The verdict of the first masters, `heard` of `masters`, for a claim that is
 * `self`; 0: for nobody. Returns the claim that may hold the key, 0 for none,
 * -1 for undecided. */
static int verdict_for(unsigned self, unsigned masters, unsigned heard,
                       const struct hf_report *list)
{
    struct hf_reports reports = reports_of(masters, (1U << heard) - 1, list);
    struct hf_claim_id id = claim(self);
    struct hf_verdict verdict = hf_verdict_of(&reports, self ? &id : NULL);

    if (verdict.kind != HF_VERDICT_HELD)
        return verdict.kind == HF_VERDICT_FREE ? 0 : -1;
    assert_non_null(verdict.source);
    return verdict.holder.bytes[0];
}

static int verdict_of(unsigned masters, unsigned heard,
                      const struct hf_report *list)
{
    return verdict_for(0, masters, heard, list);
}

static int read_of(unsigned masters, unsigned heard,
                   const struct hf_report *list)
{
    struct hf_reports reports = reports_of(masters, (1U << heard) - 1, list);
    struct hf_verdict verdict = hf_verdict_read(&reports);

    if (verdict.kind != HF_VERDICT_HELD)
        return verdict.kind == HF_VERDICT_FREE ? 0 : -1;
    return verdict.holder.bytes[0];
}

/* ---- Sizes --------------------------------------------------------------*/

static void quorums_have_masters_in_common(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= HF_QUORUM_MASTERS_MAX; n++) {
        struct hf_quorum quorum = hf_quorum_of(n);

        assert_int_equal(quorum.masters, n);
        assert_true(2 * quorum.majority > n);
        assert_true(2 * (quorum.majority - 1) <= n);
        assert_true(2 * quorum.fast + quorum.majority > 2 * n);
        assert_true(2 * (quorum.fast - 1) + quorum.majority <= 2 * n);
        assert_true(quorum.fast >= quorum.majority && quorum.fast <= n);
    }
    assert_int_equal(hf_quorum_of(3).fast, 3);
    assert_int_equal(hf_quorum_of(5).fast, 4);
}

/* ---- Rule 1: leases -----------------------------------------------------*/

static void a_minority_of_reports_decides_nothing(void **state)
{
    (void)state;
    assert_int_equal(verdict_of(3, 0, LIST(empty())), -1);
    assert_int_equal(verdict_of(3, 1, LIST(empty())), -1);
    assert_int_equal(verdict_of(3, 1, LIST(held(1, 5))), -1);
    assert_int_equal(verdict_of(5, 2, LIST(held(1, 5), held(1, 5))), -1);
    assert_int_equal(verdict_of(3, 2, LIST(empty(), empty())), 0);
    assert_int_equal(verdict_of(5, 3, LIST(empty(), empty(), empty())), 0);
}

static void every_majority_names_the_holder(void **state)
{
    struct hf_report list[] = {held(1, 5), held(1, 5), empty()};

    (void)state;
    for (unsigned heard = 0; heard < 8; heard++) {
        struct hf_reports reports = reports_of(3, heard, list);
        struct hf_verdict verdict = hf_verdict_of(&reports, NULL);

        if (hf_reports_count(&reports) < 2)
            continue;
        assert_int_equal(verdict.kind, HF_VERDICT_HELD);
        assert_int_equal(verdict.token, 5);
    }
}

/* A repaired lease has an old token and a new ballot. */
static void the_highest_ballot_decides_and_not_the_token(void **state)
{
    struct hf_report repaired = lease(HF_REPORT_HELD, 1, 5, 9);

    (void)state;
    assert_int_equal(verdict_of(3, 2, LIST(repaired, held(2, 7))), 1);
    assert_int_equal(verdict_of(3, 2, LIST(held(2, 7), repaired)), 1);
    assert_int_equal(verdict_of(3, 2, LIST(repaired, released(2, 7))), 1);
    assert_int_equal(verdict_of(3, 2, LIST(repaired, released(2, 10))), 0);
}

/* A master whose copy expired may have missed a RENEW; a master that shows it
 * released has received the END. */
static void released_beats_held_and_held_beats_expired(void **state)
{
    struct hf_report expired = lease(HF_REPORT_EXPIRED, 1, 5, 5);

    (void)state;
    assert_int_equal(verdict_of(3, 2, LIST(expired, held(1, 5))), 1);
    assert_int_equal(verdict_of(3, 2, LIST(held(1, 5), expired)), 1);
    assert_int_equal(verdict_of(3, 2, LIST(released(1, 5), held(1, 5))), 0);
    assert_int_equal(verdict_of(3, 2, LIST(held(1, 5), released(1, 5))), 0);
    assert_int_equal(verdict_of(3, 2, LIST(expired, expired)), 0);
}

/* An update has reached the first two masters, renewals the last two. The copy
 * at the first one has expired, at a higher ballot than that of the copy at the
 * last one. */
static void an_expired_copy_does_not_hide_a_renewed_one(void **state)
{
    struct hf_report expired = lease(HF_REPORT_EXPIRED, 1, 5, 9);
    struct hf_report renewed = lease(HF_REPORT_HELD, 1, 5, 9);

    (void)state;
    assert_int_equal(verdict_of(3, 2, LIST(expired, held(1, 5))), 1);
    assert_int_equal(verdict_of(3, 2, LIST(held(1, 5), expired)), 1);
    assert_int_equal(verdict_of(3, 3, LIST(expired, renewed, held(1, 5))), 1);
    assert_int_equal(verdict_of(3, 3, LIST(expired, held(1, 5), empty())), 0);
    /* Copies of other grants do hide it, and so does its release. */
    expired = lease(HF_REPORT_EXPIRED, 2, 9, 9);
    assert_int_equal(verdict_of(3, 2, LIST(expired, held(1, 5))), 0);
    expired = lease(HF_REPORT_EXPIRED, 1, 7, 9);
    assert_int_equal(verdict_of(3, 2, LIST(expired, held(1, 5))), 0);
    assert_int_equal(verdict_of(3, 2, LIST(released(1, 9), held(1, 5))), 0);
}

static void a_lease_on_too_few_masters_is_not_held(void **state)
{
    struct hf_report five[] = {held(1, 5), held(1, 5), empty(), empty(),
                               empty()};

    (void)state;
    assert_int_equal(verdict_of(3, 3, LIST(held(1, 5), empty(), empty())), 0);
    assert_int_equal(verdict_of(3, 2, LIST(held(1, 5), empty())), 1);
    assert_int_equal(verdict_of(5, 5, five), 0);
    assert_int_equal(verdict_of(5, 4, five), 1);
    five[2] = held(1, 5);
    assert_int_equal(verdict_of(5, 5, five), 1);
    assert_int_equal(
        verdict_of(5, 4, LIST(held(1, 5), empty(), empty(), empty())), 0);
    assert_int_equal(verdict_of(5, 3, LIST(held(1, 5), empty(), empty())), 1);
}

/* Claim 1 was released at three masters, and its END has not reached the other
 * two. Claim 2 has committed at the three, and commits again with a higher
 * number, because the replies were late. That has replaced what these masters
 * knew of the release, and each number is on too few masters to be held.
 *
 * A COMMIT with a higher number cannot hide a lower lease that is valid. Its
 * claim has the promises, or the votes, of a majority. That has a master in
 * common with the majority that holds the lower lease, and this master either
 * had accepted the lease before, which it reported, so that the COMMIT was not
 * sent; or it has not accepted it afterwards. */
static void nothing_is_held_below_a_failed_commit(void **state)
{
    struct hf_report left = lease(HF_REPORT_HELD, 1, 1, 4);

    (void)state;
    assert_int_equal(
        verdict_of(5, 4, LIST(held(2, 6), held(2, 5), held(1, 1), left)), 0);
    assert_int_equal(
        verdict_of(5, 5, LIST(held(2, 6), held(2, 5), held(2, 5), left, left)),
        0);
    assert_int_equal(verdict_of(5, 5,
                                LIST(held(3, 11), held(2, 9), held(2, 9),
                                     held(1, 5), held(1, 5))),
                     0);
    /* As soon as a number may be on a majority, its claim is the holder. */
    assert_int_equal(
        verdict_of(5, 4, LIST(held(2, 6), held(2, 6), held(1, 1), left)), 2);
}

/* Another process has updated the lease at the second master, under a ballot
 * that END did not know. */
static void a_lease_of_an_ended_claim_is_not_held(void **state)
{
    struct hf_report ended = with_ended(released(1, 5), 1);
    struct hf_report updated = lease(HF_REPORT_HELD, 1, 5, 9);

    (void)state;
    assert_int_equal(verdict_of(3, 2, LIST(ended, updated)), 0);
    assert_int_equal(verdict_of(3, 2, LIST(updated, ended)), 0);
    ended = with_ended(released(2, 4), 2);
    assert_int_equal(verdict_of(3, 2, LIST(ended, updated)), 1);
}

/* A lease on too few masters is above votes, as a lease that has ended is. */
static void votes_below_a_failed_commit_do_not_count(void **state)
{
    struct hf_report vote = fast_vote(1, 5);

    (void)state;
    assert_int_equal(verdict_of(5, 4, LIST(held(2, 6), vote, vote, vote)), 0);
    assert_int_equal(verdict_of(5, 4, LIST(held(2, 4), vote, vote, vote)), 1);
}

/* Copies of a token count, whatever their ballots are, and votes are copies. */
static void copies_are_counted_by_token(void **state)
{
    struct hf_report repaired = lease(HF_REPORT_HELD, 1, 5, 9);
    struct hf_report voted = with_vote(empty(), 1, 5, false);

    (void)state;
    assert_int_equal(verdict_of(3, 3, LIST(repaired, held(1, 5), empty())), 1);
    assert_int_equal(verdict_of(3, 3, LIST(held(1, 5), voted, empty())), 1);
    assert_int_equal(verdict_of(3, 3, LIST(held(1, 5), voted, voted)), 1);
    assert_int_equal(
        verdict_of(3, 3, LIST(held(1, 5), slow_vote(1, 6), empty())), 0);
    assert_int_equal(
        verdict_of(3, 3, LIST(held(1, 5), slow_vote(2, 5), empty())), 0);
}

/* ---- Rule 2: fast votes -------------------------------------------------*/

static void fast_votes_that_may_be_a_fast_quorum_are_a_holder(void **state)
{
    struct hf_report vote = fast_vote(1, 5);

    (void)state;
    assert_int_equal(verdict_of(3, 3, LIST(vote, vote, vote)), 1);
    assert_int_equal(verdict_of(3, 2, LIST(vote, vote)), 1);
    assert_int_equal(verdict_of(3, 2, LIST(vote, empty())), 0);
    assert_int_equal(verdict_of(3, 3, LIST(vote, vote, empty())), 0);
    assert_int_equal(verdict_of(5, 3, LIST(vote, vote, empty())), 1);
    assert_int_equal(verdict_of(5, 3, LIST(vote, empty(), empty())), 0);
    assert_int_equal(verdict_of(5, 4, LIST(vote, vote, vote, empty())), 1);
    assert_int_equal(verdict_of(5, 4, LIST(vote, vote, empty(), empty())), 0);
}

static void slow_votes_are_no_grant(void **state)
{
    struct hf_report slow = slow_vote(1, 5);

    (void)state;
    assert_int_equal(verdict_of(3, 3, LIST(slow, slow, slow)), 0);
    assert_int_equal(verdict_of(3, 2, LIST(slow, slow)), 0);
    assert_int_equal(verdict_of(3, 2, LIST(slow, fast_vote(1, 5))), 0);
}

static void votes_of_different_numbers_are_not_added(void **state)
{
    (void)state;
    assert_int_equal(verdict_of(3, 2, LIST(fast_vote(1, 5), fast_vote(1, 6))),
                     0);
    assert_int_equal(verdict_of(3, 2, LIST(fast_vote(1, 5), fast_vote(2, 5))),
                     0);
}

/* A lease that was accepted with a higher number has seen these votes. */
static void votes_below_a_newer_lease_do_not_count(void **state)
{
    struct hf_report below = with_vote(released(2, 7), 1, 5, true);

    (void)state;
    assert_int_equal(verdict_of(3, 2, LIST(below, fast_vote(1, 5))), 0);
    below = with_vote(released(2, 4), 1, 5, true);
    assert_int_equal(verdict_of(3, 2, LIST(below, fast_vote(1, 5))), 1);
    below = with_vote(released(2, 5), 1, 5, true);
    assert_int_equal(verdict_of(3, 2, LIST(below, fast_vote(1, 5))), 0);
}

/* With five masters, votes that are left at two of them look like a grant. */
static void votes_of_an_ended_claim_do_not_count(void **state)
{
    struct hf_report vote = fast_vote(1, 5);

    (void)state;
    assert_int_equal(verdict_of(5, 3, LIST(vote, vote, empty())), 1);
    assert_int_equal(verdict_of(5, 3, LIST(vote, vote, with_ended(empty(), 1))),
                     0);
    assert_int_equal(verdict_of(5, 3, LIST(vote, vote, with_ended(empty(), 2))),
                     1);
}

/* The claim that asks knows that it was not granted the key. With five masters,
 * its own votes would hide a holder. */
static void own_votes_do_not_hide_a_holder(void **state)
{
    const struct hf_report *list =
        LIST(held(1, 5), fast_vote(2, 8), fast_vote(2, 8));

    (void)state;
    assert_int_equal(verdict_for(2, 5, 3, list), 1);
    assert_int_equal(verdict_for(3, 5, 3, list), -1);
    assert_int_equal(
        verdict_for(1, 3, 2, LIST(fast_vote(1, 5), fast_vote(1, 5))), 0);
    assert_int_equal(
        verdict_for(2, 3, 2, LIST(fast_vote(1, 5), fast_vote(1, 5))), 1);
}

/* ---- Rule 3: both -------------------------------------------------------*/

static void votes_above_a_holder_are_undecided(void **state)
{
    struct hf_report vote = fast_vote(2, 8);

    (void)state;
    assert_int_equal(verdict_of(5, 3, LIST(held(1, 5), vote, vote)), -1);
    /* The other masters decide. */
    assert_int_equal(verdict_of(5, 5, LIST(held(1, 5), vote, vote, vote, vote)),
                     2);
    assert_int_equal(
        verdict_of(5, 5, LIST(held(1, 5), vote, vote, held(1, 5), held(1, 5))),
        1);
}

/* A valid holder by COMMIT on a majority, and claims that got older leases and
 * higher votes at the other masters: every majority names the holder, or is
 * undecided. */
static void check_committed_holder(struct hf_random *random, unsigned masters)
{
    struct hf_quorum quorum = hf_quorum_of(masters);
    struct hf_report list[HF_QUORUM_MASTERS_MAX];
    unsigned copies = 0;

    for (unsigned i = 0; i < masters; i++) {
        unsigned left = masters - i;

        if (copies < quorum.majority &&
            hf_random_below(random, left) < quorum.majority - copies) {
            list[i] = lease(HF_REPORT_HELD, 1, 20, 20);
            copies++;
            continue;
        }
        list[i] = lease(hf_random_below(random, HF_REPORT_STATES),
                        2 + hf_random_below(random, 2),
                        1 + hf_random_below(random, 19), 19);
        if (list[i].state != HF_REPORT_HELD && hf_random_below(random, 2) == 0)
            list[i] = with_vote(list[i], 4, 21, hf_random_below(random, 2));
    }
    for (unsigned heard = 0; heard < 1U << masters; heard++) {
        struct hf_reports reports = reports_of(masters, heard, list);
        struct hf_verdict verdict = hf_verdict_of(&reports, NULL);

        assert_int_not_equal(verdict.kind, HF_VERDICT_FREE);
        if (verdict.kind == HF_VERDICT_HELD)
            assert_int_equal(verdict.holder.bytes[0], 1);
    }
}

static void no_majority_denies_a_committed_holder(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 1);
    for (int i = 0; i < 2000; i++) {
        check_committed_holder(&random, 3);
        check_committed_holder(&random, 5);
    }
}

/* The same for a holder by fast votes. */
static void check_voted_holder(struct hf_random *random, unsigned masters)
{
    struct hf_quorum quorum = hf_quorum_of(masters);
    struct hf_report list[HF_QUORUM_MASTERS_MAX];
    unsigned others = masters - quorum.fast;

    for (unsigned i = 0; i < masters; i++) {
        list[i] = lease(hf_random_below(random, 2) ? HF_REPORT_EXPIRED
                                                   : HF_REPORT_RELEASED,
                        2, 1 + hf_random_below(random, 19), 19);
        if (others > 0 && hf_random_below(random, masters) == 0) {
            others--;
            list[i] = with_vote(list[i], 3, 21, true);
        } else {
            list[i] = with_vote(list[i], 1, 20, true);
        }
    }
    for (unsigned heard = 0; heard < 1U << masters; heard++) {
        struct hf_reports reports = reports_of(masters, heard, list);
        struct hf_verdict verdict = hf_verdict_of(&reports, NULL);

        assert_int_not_equal(verdict.kind, HF_VERDICT_FREE);
        if (verdict.kind == HF_VERDICT_HELD)
            assert_int_equal(verdict.holder.bytes[0], 1);
    }
}

static void no_majority_denies_a_holder_by_votes(void **state)
{
    struct hf_random random;

    (void)state;
    hf_random_init(&random, 2);
    for (int i = 0; i < 2000; i++) {
        check_voted_holder(&random, 3);
        check_voted_holder(&random, 5);
        check_voted_holder(&random, 7);
    }
}

/* ---- Reads --------------------------------------------------------------*/

static void a_read_needs_a_majority_of_leases(void **state)
{
    (void)state;
    assert_int_equal(read_of(3, 2, LIST(held(1, 5), held(1, 5))), 1);
    assert_int_equal(read_of(3, 3, LIST(held(1, 5), empty(), empty())), 0);
    assert_int_equal(read_of(3, 3, LIST(held(1, 5), held(2, 6), held(1, 5))),
                     1);
    assert_int_equal(
        read_of(3, 3, LIST(held(1, 5), held(1, 6), released(1, 7))), -1);
    assert_int_equal(
        read_of(3, 3, LIST(held(1, 5), released(1, 7), released(1, 7))), 0);
}

/* The COMMIT of a claim may arrive at a master after its END at another one. */
static void a_read_waits_until_a_majority_has_ended_a_claim(void **state)
{
    (void)state;
    assert_int_equal(read_of(3, 3, LIST(released(1, 5), empty(), empty())), -1);
    assert_int_equal(read_of(3, 2, LIST(released(1, 5), empty())), -1);
    assert_int_equal(read_of(3, 2, LIST(released(1, 5), released(1, 5))), 0);
    assert_int_equal(
        read_of(3, 3, LIST(released(1, 5), released(1, 5), empty())), 0);
}

/* A lease may have moved from one master to another meanwhile. */
static void reports_of_different_instants_do_not_show_a_free_key(void **state)
{
    struct hf_report reports[2] = {empty(), empty()};
    struct hf_reports all = {
        .quorum = hf_quorum_of(3),
        .list = {&reports[0], &reports[1]},
    };

    (void)state;
    reports[0].idle_ms = UINT32_MAX;
    reports[1].idle_ms = 7;
    assert_false(hf_reports_may_mix(&all, 4));
    assert_true(hf_reports_may_mix(&all, 5));
    assert_int_equal(hf_verdict_read(&all).kind, HF_VERDICT_FREE);
    all.is_mixed = true;
    assert_int_equal(hf_verdict_read(&all).kind, HF_VERDICT_UNDECIDED);
    reports[0] = reports[1] = held(1, 5);
    assert_int_equal(hf_verdict_read(&all).kind, HF_VERDICT_HELD);
}

static void a_read_counts_fast_votes_and_leases(void **state)
{
    struct hf_report vote = fast_vote(1, 5);

    (void)state;
    assert_int_equal(read_of(3, 3, LIST(vote, vote, vote)), 1);
    assert_int_equal(read_of(3, 3, LIST(held(1, 5), vote, vote)), 1);
    assert_int_equal(read_of(3, 3, LIST(vote, vote, empty())), 0);
    assert_int_equal(read_of(3, 3, LIST(held(1, 5), vote, empty())), 0);
    assert_int_equal(read_of(5, 4, LIST(held(1, 5), vote, vote, vote)), 1);
    assert_int_equal(
        read_of(3, 3, LIST(slow_vote(1, 5), slow_vote(1, 5), slow_vote(1, 5))),
        0);
    assert_int_equal(read_of(3, 3, LIST(vote, vote, slow_vote(1, 5))), 0);
}

static void a_read_is_undecided_while_silent_masters_matter(void **state)
{
    struct hf_report vote = fast_vote(1, 5);

    (void)state;
    assert_int_equal(read_of(3, 0, LIST(empty())), -1);
    assert_int_equal(read_of(3, 1, LIST(empty())), -1);
    assert_int_equal(read_of(3, 2, LIST(empty(), empty())), 0);
    assert_int_equal(read_of(3, 2, LIST(held(1, 5), empty())), -1);
    assert_int_equal(read_of(3, 2, LIST(vote, vote)), -1);
    assert_int_equal(read_of(3, 2, LIST(vote, empty())), 0);
    assert_int_equal(read_of(3, 2, LIST(slow_vote(1, 5), slow_vote(1, 5))), 0);
    assert_int_equal(read_of(5, 2, LIST(empty(), empty())), -1);
    assert_int_equal(read_of(5, 3, LIST(vote, vote, empty())), -1);
    assert_int_equal(read_of(5, 3, LIST(vote, empty(), empty())), 0);
    assert_int_equal(read_of(5, 3, LIST(held(1, 5), empty(), empty())), -1);
    assert_int_equal(read_of(5, 4, LIST(held(1, 5), empty(), empty(), empty())),
                     0);
}

/* The ballot of the value that a read returns, or 0. */
static uint64_t read_value_of(unsigned masters, unsigned heard,
                              const struct hf_report *list)
{
    struct hf_reports reports = reports_of(masters, (1U << heard) - 1, list);
    struct hf_verdict verdict = hf_verdict_read(&reports);

    assert_int_equal(verdict.kind, HF_VERDICT_HELD);
    assert_int_equal(verdict.token, 5);
    if (!verdict.source)
        return 0;
    return verdict.source->has_vote ? verdict.source->vote_number
                                    : verdict.source->ballot;
}

/* A value that was read is not followed by an older one. */
static void a_read_returns_the_value_that_a_majority_has_accepted(void **state)
{
    struct hf_report first = held(1, 5), vote = fast_vote(1, 5);
    struct hf_report second = lease(HF_REPORT_HELD, 1, 5, 8);

    (void)state;
    assert_int_equal(read_value_of(3, 3, LIST(first, first, first)), 5);
    assert_int_equal(read_value_of(3, 2, LIST(first, first)), 5);
    assert_int_equal(read_value_of(3, 3, LIST(second, first, first)), 5);
    assert_int_equal(read_value_of(3, 3, LIST(first, second, second)), 8);
    assert_int_equal(read_value_of(3, 2, LIST(second, second)), 8);
    assert_int_equal(read_value_of(3, 2, LIST(first, second)), 0);
    assert_int_equal(read_value_of(3, 3, LIST(vote, vote, vote)), 5);
    assert_int_equal(read_value_of(3, 3, LIST(vote, second, vote)), 5);
    assert_int_equal(read_value_of(3, 3, LIST(vote, second, second)), 8);
    assert_int_equal(read_value_of(5, 4, LIST(second, second, second, first)),
                     8);
    assert_int_equal(read_value_of(5, 4, LIST(second, second, first, first)),
                     0);
}

/* Two updates were cut off. The later one, at the last master, may have been
 * prepared by masters that had not seen the other one, which then never took
 * effect. */
static void a_value_below_an_update_is_not_known(void **state)
{
    struct hf_report first = held(1, 5);
    struct hf_report second = lease(HF_REPORT_HELD, 1, 5, 8);
    struct hf_report third = lease(HF_REPORT_HELD, 1, 5, 9);

    (void)state;
    assert_int_equal(read_value_of(3, 3, LIST(first, second, third)), 0);
    assert_int_equal(
        read_value_of(5, 5, LIST(first, first, second, second, third)), 0);
    assert_int_equal(
        read_value_of(5, 5, LIST(first, first, first, second, third)), 5);
    assert_int_equal(
        read_value_of(5, 5, LIST(first, second, second, second, third)), 8);
}

/* An update was accepted by a majority, and then the copy of one of its masters
 * has ended, before the lease: it had missed renewals, or END is on its way. */
static void a_copy_that_has_ended_counts_for_the_value(void **state)
{
    struct hf_report first = held(1, 5);
    struct hf_report second = lease(HF_REPORT_HELD, 1, 5, 8);
    struct hf_report third = lease(HF_REPORT_HELD, 1, 5, 9);
    struct hf_report expired = lease(HF_REPORT_EXPIRED, 1, 5, 8);
    struct hf_report ended = lease(HF_REPORT_RELEASED, 1, 5, 8);
    struct hf_report voted;

    (void)state;
    assert_int_equal(read_value_of(3, 3, LIST(first, expired, second)), 8);
    assert_int_equal(read_value_of(3, 3, LIST(second, first, ended)), 8);
    voted = with_vote(expired, 2, 9, true);
    assert_int_equal(read_value_of(3, 3, LIST(voted, second, first)), 8);
    assert_int_equal(read_value_of(3, 3, LIST(first, first, expired)), 5);
    /* That of another claim, or another grant, does not. */
    expired = lease(HF_REPORT_EXPIRED, 2, 5, 8);
    assert_int_equal(read_value_of(3, 3, LIST(first, expired, second)), 0);
    expired = lease(HF_REPORT_EXPIRED, 1, 7, 8);
    assert_int_equal(read_value_of(3, 3, LIST(first, expired, second)), 0);
    /* Another update has replaced the last copy that could show the value. */
    expired = lease(HF_REPORT_EXPIRED, 1, 5, 8);
    assert_int_equal(
        read_value_of(5, 5, LIST(expired, expired, third, first, first)), 0);
}

/* A read never denies a holder, whichever masters reply. */
static void no_read_denies_a_holder(void **state)
{
    struct hf_report committed[] = {held(1, 5), empty(), held(1, 5), empty(),
                                    held(1, 5)};
    struct hf_report voted[] = {fast_vote(1, 5), empty(), fast_vote(1, 5),
                                held(1, 5), fast_vote(1, 5)};

    (void)state;
    for (unsigned heard = 0; heard < 32; heard++) {
        struct hf_reports reports = reports_of(5, heard, committed);

        assert_int_not_equal(hf_verdict_read(&reports).kind, HF_VERDICT_FREE);
        reports = reports_of(5, heard, voted);
        assert_int_not_equal(hf_verdict_read(&reports).kind, HF_VERDICT_FREE);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(quorums_have_masters_in_common),
        cmocka_unit_test(a_minority_of_reports_decides_nothing),
        cmocka_unit_test(every_majority_names_the_holder),
        cmocka_unit_test(the_highest_ballot_decides_and_not_the_token),
        cmocka_unit_test(released_beats_held_and_held_beats_expired),
        cmocka_unit_test(an_expired_copy_does_not_hide_a_renewed_one),
        cmocka_unit_test(a_lease_on_too_few_masters_is_not_held),
        cmocka_unit_test(nothing_is_held_below_a_failed_commit),
        cmocka_unit_test(a_lease_of_an_ended_claim_is_not_held),
        cmocka_unit_test(votes_below_a_failed_commit_do_not_count),
        cmocka_unit_test(copies_are_counted_by_token),
        cmocka_unit_test(fast_votes_that_may_be_a_fast_quorum_are_a_holder),
        cmocka_unit_test(slow_votes_are_no_grant),
        cmocka_unit_test(votes_of_different_numbers_are_not_added),
        cmocka_unit_test(votes_below_a_newer_lease_do_not_count),
        cmocka_unit_test(votes_of_an_ended_claim_do_not_count),
        cmocka_unit_test(own_votes_do_not_hide_a_holder),
        cmocka_unit_test(votes_above_a_holder_are_undecided),
        cmocka_unit_test(no_majority_denies_a_committed_holder),
        cmocka_unit_test(no_majority_denies_a_holder_by_votes),
        cmocka_unit_test(a_read_needs_a_majority_of_leases),
        cmocka_unit_test(a_read_waits_until_a_majority_has_ended_a_claim),
        cmocka_unit_test(reports_of_different_instants_do_not_show_a_free_key),
        cmocka_unit_test(a_read_counts_fast_votes_and_leases),
        cmocka_unit_test(a_read_is_undecided_while_silent_masters_matter),
        cmocka_unit_test(a_read_returns_the_value_that_a_majority_has_accepted),
        cmocka_unit_test(a_value_below_an_update_is_not_known),
        cmocka_unit_test(a_copy_that_has_ended_counts_for_the_value),
        cmocka_unit_test(no_read_denies_a_holder),
    };

    return hf_test_main("quorum-verdict", cases, HF_TEST_COUNT(cases), 0);
}
