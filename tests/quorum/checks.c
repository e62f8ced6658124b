#include "quorum/checks.h"

#include "lib/runner.h"

/* An ended claim may be named again by a master that has missed its END, after
 * the others have dropped their idle records. */
#define ENDED_MS (HF_QUORUM_IDLE_MS - 1000)

/* ---- Holders ------------------------------------------------------------*/

static void check_exclusion(const struct sim_apps *apps,
                            const struct sim_app *app)
{
    for (unsigned i = 0; i < apps->count; i++) {
        const struct sim_app *other = &apps->list[i];

        if (other != app && other->key == app->key && sim_app_is_valid(other))
            fail_msg("two holders: tokens %llu and %llu",
                     (unsigned long long)app->token,
                     (unsigned long long)other->token);
    }
}

static void check_order(const struct sim_apps *apps, const struct sim_app *app)
{
    for (unsigned i = 0; i < apps->count; i++) {
        const struct sim_app *other = &apps->list[i];

        if (other->state == SIM_APP_CLAIMS && other->key == app->key &&
            other->queued_order > 0 && other->queued_order < app->locked_order)
            fail_msg("a claim of client %u overtakes one of client %u",
                     app->client->index, other->client->index);
    }
}

const struct sim_app *sim_valid_holder(const struct sim_apps *apps,
                                       unsigned key)
{
    for (unsigned i = 0; i < apps->count; i++) {
        if (apps->list[i].key == key && sim_app_is_valid(&apps->list[i]))
            return &apps->list[i];
    }
    return NULL;
}

/* ---- Masters ------------------------------------------------------------*/

static bool is_named(const struct hf_verdict *verdict,
                     const struct sim_app *holder)
{
    return verdict->kind == HF_VERDICT_HELD &&
           verdict->token == holder->token &&
           hf_claim_id_equal(&verdict->holder, &holder->coordinator->id);
}

static const struct sim_ended *find_ended(const struct sim_apps *apps,
                                          unsigned key,
                                          const struct hf_claim_id *id)
{
    for (unsigned i = 0; i < apps->ended_count && i < SIM_ENDED_MAX; i++) {
        if (apps->ended[i].key == key &&
            hf_claim_id_equal(&apps->ended[i].id, id))
            return &apps->ended[i];
    }
    return NULL;
}

static void check_majority(const struct sim_apps *apps, unsigned key,
                           const struct hf_reports *reports)
{
    const struct sim_app *holder = sim_valid_holder(apps, key);
    struct hf_verdict verdict = hf_verdict_of(reports, NULL);
    const struct sim_ended *ended = verdict.kind == HF_VERDICT_HELD
                                        ? find_ended(apps, key, &verdict.holder)
                                        : NULL;

    if (verdict.kind == HF_VERDICT_UNDECIDED) {
        assert_true(reports->quorum.masters >= 5);
        return;
    }
    if (holder && !is_named(&verdict, holder))
        fail_msg("a majority does not name the holder with token %llu",
                 (unsigned long long)holder->token);
    if (ended && apps->quorum->crashes == 0 &&
        apps->quorum->schedule.now < ended->at + ENDED_MS)
        fail_msg("a majority names a claim that has ended: token %llu",
                 (unsigned long long)verdict.token);
}

/* Check the majorities among the masters that are awake: all of them, or the
 * one of `only`, a set of bits, if it is one. */
static void check_majorities(const struct sim_apps *apps, unsigned key,
                             unsigned only)
{
    const struct sim_quorum *quorum = apps->quorum;
    struct hf_report list[HF_QUORUM_MASTERS_MAX];
    unsigned awake = 0;

    for (unsigned i = 0; i < quorum->master_count; i++) {
        if (!sim_master_is_awake(&quorum->masters[i]))
            continue;
        awake |= 1U << i;
        hf_master_report(&quorum->masters[i].master, sim_apps_key(key), false,
                         &list[i]);
    }
    for (unsigned set = 1; set < 1U << quorum->master_count; set++) {
        struct hf_reports reports = {.quorum =
                                         hf_quorum_of(quorum->master_count)};

        if ((set & ~awake) || (only && set != only))
            continue;
        for (unsigned i = 0; i < quorum->master_count; i++)
            reports.list[i] = set >> i & 1 ? &list[i] : NULL;
        if (hf_reports_count(&reports) >= reports.quorum.majority)
            check_majority(apps, key, &reports);
    }
}

/* With many masters, check one set at a time. */
static void on_handled(struct sim_quorum *quorum, struct hf_key key)
{
    const struct sim_apps *apps = quorum->handled_arg;
    unsigned sets = 1U << quorum->master_count;
    unsigned only = sets > 8 ? (unsigned)(quorum->requests % sets) : 0;

    if (sets > 8 && only == 0)
        return;
    for (unsigned i = 0; i < apps->keys; i++) {
        if (hf_key_equal(sim_apps_key(i), key))
            check_majorities(apps, i, only);
    }
}

void sim_check_masters(struct sim_apps *apps)
{
    apps->quorum->handled = on_handled;
    apps->quorum->handled_arg = apps;
}

/* ---- Events -------------------------------------------------------------*/

void sim_check_granted(struct sim_apps *apps, const struct sim_app *app)
{
    check_exclusion(apps, app);
    assert_true(app->token > apps->tokens[app->key]);
    apps->tokens[app->key] = app->token;
    if (apps->is_fair)
        check_order(apps, app);
    check_majorities(apps, app->key, 0);
}

void sim_check_renewed(struct sim_apps *apps, const struct sim_app *app)
{
    check_exclusion(apps, app);
    check_majorities(apps, app->key, 0);
}

void sim_check_ended(struct sim_apps *apps, const struct sim_app *app)
{
    apps->ended[apps->ended_count++ % SIM_ENDED_MAX] = (struct sim_ended){
        .id = app->coordinator->id,
        .key = app->key,
        .at = apps->quorum->schedule.now,
    };
    check_majorities(apps, app->key, 0);
}

/* ---- Reads --------------------------------------------------------------*/

/* Updates count the value up. */
static void check_value(const struct sim_reader *reader,
                        const struct hf_verdict *verdict,
                        const struct sim_app *holder)
{
    uint32_t highest = holder->value + (holder->updates ? 1 : 0);

    for (unsigned i = 0; i < reader->apps->quorum->master_count; i++) {
        if (&reader->reports[i] != verdict->source)
            continue;
        assert_true(reader->values[i] >= reader->value);
        assert_true(reader->values[i] <= highest);
    }
}

void sim_check_read(const struct sim_reader *reader,
                    const struct hf_verdict *verdict)
{
    const struct sim_apps *apps = reader->apps;
    const struct sim_app *holder = sim_valid_holder(apps, reader->key);
    const struct sim_ended *ended =
        verdict->kind == HF_VERDICT_HELD
            ? find_ended(apps, reader->key, &verdict->holder)
            : NULL;

    if (holder && holder->granted_at <= reader->started) {
        if (!is_named(verdict, holder))
            fail_msg("a read does not return the holder with token %llu",
                     (unsigned long long)holder->token);
        check_value(reader, verdict, holder);
    }
    if (ended && ended->at < reader->started)
        fail_msg("a read returns a claim that has ended: token %llu",
                 (unsigned long long)verdict->token);
}

/* ---- The end ------------------------------------------------------------*/

void sim_check_nothing_is_left(const struct sim_quorum *quorum)
{
    for (unsigned i = 0; i < quorum->master_count; i++) {
        struct hf_master_summary summary;

        hf_master_summarize(&quorum->masters[i].master, &summary);
        assert_int_equal(summary.held, 0);
        assert_int_equal(summary.votes, 0);
        assert_int_equal(summary.waiters, 0);
    }
}
