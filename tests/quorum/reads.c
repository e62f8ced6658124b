/* Linearizable reads: ask all masters, count their reports, and ask again while
 * these decide nothing. */
#include "lib/runner.h"
#include "quorum/checks.h"

#define GIVE_UP_MS 3000

static hf_time now_of(const struct sim_reader *reader)
{
    return reader->apps->quorum->schedule.now;
}

static void set_reader_timer(struct sim_reader *reader, uint32_t ms)
{
    sim_schedule_set(&reader->apps->quorum->schedule, &reader->timer,
                     now_of(reader) + ms);
}

static void start_round(struct sim_reader *reader)
{
    const struct sim_app *holder = sim_valid_holder(reader->apps, reader->key);
    struct hf_quorum_request request = {
        .kind = HF_QUORUM_READ,
        .key = sim_apps_key(reader->key),
        .serial = ++reader->serial,
    };

    reader->replied = 0;
    reader->started = now_of(reader);
    reader->value = holder ? holder->value : 0;
    for (unsigned i = 0; i < reader->apps->quorum->master_count; i++)
        sim_client_send(reader->client, i, &reader->id, &request);
    set_reader_timer(reader, reader->client->common.patience_ms);
}

static void end_read(struct sim_reader *reader)
{
    reader->is_reading = false;
    set_reader_timer(reader, 20 + sim_quorum_below(reader->apps->quorum, 300));
}

static void start_read(struct sim_reader *reader)
{
    struct sim_quorum *quorum = reader->apps->quorum;

    assert_int_equal(
        hf_random_bytes(&quorum->random, &reader->id, sizeof(reader->id)),
        HF_OK);
    reader->is_reading = true;
    reader->key = sim_quorum_below(quorum, reader->apps->keys);
    reader->give_up_at = now_of(reader) + GIVE_UP_MS;
    start_round(reader);
}

/* Returns true if the reports decide. */
static bool decide_read(struct sim_reader *reader)
{
    struct hf_reports reports = {.quorum = reader->client->common.quorum};
    struct hf_verdict verdict;

    for (unsigned i = 0; i < reports.quorum.masters; i++)
        reports.list[i] = reader->replied >> i & 1 ? &reader->reports[i] : NULL;
    reports.is_mixed = hf_reports_may_mix(
        &reports, hf_time_left(now_of(reader), reader->started));
    verdict = hf_verdict_read(&reports);
    if (verdict.kind == HF_VERDICT_UNDECIDED ||
        (verdict.kind == HF_VERDICT_HELD && !verdict.source))
        return false;
    sim_check_read(reader, &verdict);
    reader->apps->stats.reads++;
    end_read(reader);
    return true;
}

static void on_reader_timer(struct sim_event *event)
{
    struct sim_reader *reader = HF_CONTAINER(event, struct sim_reader, timer);

    if (reader->client->stopped_until > now_of(reader)) {
        sim_schedule_set(&reader->apps->quorum->schedule, event,
                         reader->client->stopped_until);
        return;
    }
    if (!reader->is_reading) {
        if (!reader->apps->is_ending)
            start_read(reader);
    } else if (now_of(reader) >= reader->give_up_at) {
        reader->apps->stats.undecided++;
        end_read(reader);
    } else {
        start_round(reader);
    }
}

bool sim_reader_receive(struct sim_reader *reader, unsigned master,
                        const struct hf_claim_id *id,
                        const struct hf_quorum_reply *reply)
{
    uint32_t value = 0;

    if (!reader->is_reading || !hf_claim_id_equal(&reader->id, id))
        return false;
    if (reply->serial != reader->serial || reply->kind != HF_QUORUM_REPORT)
        return true;
    reader->reports[master] = reply->report;
    reader->reports[master].data = (struct hf_claim_data){0}; /* borrowed */
    if (reply->report.data.value.size == sizeof(value))
        memcpy(&value, reply->report.data.value.data, sizeof(value));
    reader->values[master] = value;
    reader->replied |= 1U << master;
    (void)decide_read(reader);
    return true;
}

void sim_reader_init(struct sim_reader *reader, struct sim_apps *apps,
                     struct sim_client *client)
{
    *reader = (struct sim_reader){
        .apps = apps,
        .client = client,
        .timer = {.fire = on_reader_timer},
    };
    set_reader_timer(reader, sim_quorum_below(apps->quorum, 300));
}

void sim_reader_stop(struct sim_reader *reader)
{
    if (reader->is_reading)
        end_read(reader);
}
