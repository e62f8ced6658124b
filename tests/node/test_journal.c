/* test_journal.c - writes of the engine become durable although their entries
 * were replaced, and a log with replaced entries is recovered. */
#include "core/snapshot.h"
#include "log/directory.h"
#include "log/snapshot_file.h"
#include "log/snapshot_writer.h"
#include "node/calls.h"

/* ---- Writes -------------------------------------------------------------*/

static const struct hf_log_identity identity = {
    .cluster = {"cluster"},
    .node = 1,
    .secret = {"secret"},
    .segment_size = 4096,
};

static struct sim_disk *sim;
static struct hf_disk *disk;
static struct hf_journal journal;
static struct hf_entries entries;
static uint64_t last_write;

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    (void)arg;
    (void)index;
    (void)term;
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    (void)arg;
    (void)index;
    (void)entry;
    return HF_OK;
}

static struct hf_wal *open_wal(struct hf_disk *on,
                               const struct hf_log_identity *of)
{
    const struct hf_log_visitor visitor = {on_base, on_entry, NULL};
    struct hf_wal_opts opts = {.identity = *of};
    struct hf_wal_recovered recovered;
    struct hf_error error;
    struct hf_wal *wal = NULL;

    if (hf_wal_open(on, &opts, &visitor, &wal, &recovered, &error))
        fail_msg("%s", error.text);
    return wal;
}

static int open_journal(void **state)
{
    struct hf_error error;

    (void)state;
    sim = sim_disk_new();
    disk = sim_disk_attach(sim);
    if (hf_log_directory_init(disk, &identity, &error))
        fail_msg("%s", error.text);
    journal.wal = open_wal(disk, &identity);
    last_write = 0;
    return 0;
}

static int close_journal(void **state)
{
    (void)state;
    hf_journal_fini(&journal);
    hf_entries_fini(&entries);
    disk->ops->close_directory(disk);
    sim_disk_free(sim);
    return 0;
}

static void store(struct hf_engine_update update)
{
    const struct hf_engine_snapshot none = {0};

    update.write = ++last_write;
    assert_int_equal(hf_journal_store(&journal, &entries, &none, &update),
                     HF_OK);
}

/* Replace the entries from `first` on by entries of a leader of `term`, up to
 * `last`. */
static void store_entries(uint64_t term, uint64_t first, uint64_t last)
{
    struct hf_entry entry = {term, HF_ENTRY_BARRIER, {NULL, 0}};

    hf_entries_cut(&entries, first);
    while (entries.last < last)
        assert_int_equal(hf_entries_append(&entries, &entry, 1), HF_OK);
    store((struct hf_engine_update){
        .changes = HF_ENGINE_ENTRIES | HF_ENGINE_HARD_STATE,
        .term = term,
        .first = first,
        .last = last,
    });
}

static void store_vote(uint64_t term, uint64_t vote)
{
    store((struct hf_engine_update){
        .changes = HF_ENGINE_HARD_STATE, .term = term, .vote = vote});
}

static void flush(struct hf_wal *wal)
{
    struct hf_wal_flush one;

    assert_true(hf_wal_flush_begin(wal, &one));
    hf_wal_flush_run(&one);
    assert_int_equal(hf_wal_flush_end(wal, &one), HF_OK);
}

static void flush_all(void)
{
    while (hf_wal_is_pending(journal.wal))
        flush(journal.wal);
    (void)hf_journal_settle(&journal);
}

/* The entries of the first write are replaced while they are being flushed. */
static void a_write_whose_entries_were_replaced_settles(void **state)
{
    struct hf_wal_flush running;

    (void)state;
    store_entries(1, 1, 10);
    assert_true(hf_wal_flush_begin(journal.wal, &running));
    store_entries(2, 5, 6);
    hf_wal_flush_run(&running);
    assert_int_equal(hf_wal_flush_end(journal.wal, &running), HF_OK);
    assert_true(hf_journal_settle(&journal));
    assert_int_equal(journal.durable, 1);
    flush_all();
    assert_int_equal(journal.durable, last_write);
}

/* A write of hard state alone comes between two writes of entries. */
static void hard_state_does_not_hide_writes_before_it(void **state)
{
    (void)state;
    store_entries(1, 1, 10);
    store_vote(2, 0);
    store_entries(2, 5, 6);
    flush_all();
    assert_int_equal(journal.durable, last_write);
    assert_int_equal(journal.pending_bytes, 0);
}

static void a_write_waits_for_its_vote(void **state)
{
    (void)state;
    store_entries(1, 1, 2);
    flush_all();
    store_vote(2, 3);
    assert_false(hf_journal_settle(&journal));
    assert_int_equal(journal.durable, 1);
    flush_all();
    assert_int_equal(journal.durable, 2);
}

/* ---- Recovery -----------------------------------------------------------*/

static struct sim_nodes nodes;

static int tear_down_nodes(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

static void append(struct hf_wal *wal, uint64_t term, uint64_t first,
                   uint64_t last)
{
    const struct hf_log_entry entry = {term, HF_ENTRY_BARRIER, {NULL, 0}};

    for (uint64_t i = first; i <= last; i++)
        assert_int_equal(hf_wal_append_entries(wal, i, &entry, 1), HF_OK);
    flush(wal);
}

static void maintain(struct hf_wal *wal)
{
    struct hf_wal_upkeep upkeep;

    while (hf_wal_upkeep_begin(wal, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        assert_int_equal(hf_wal_upkeep_end(wal, &upkeep), HF_OK);
    }
}

/* Write the snapshot of an empty table after the entry `index`. */
static void write_snapshot(struct hf_disk *on,
                           const struct hf_log_cluster *cluster, uint64_t index,
                           uint64_t term)
{
    struct hf_membership members = {.count = 1, .voters = {1}};
    struct hf_snapshot_meta meta = {.index = index, .term = term};
    struct hf_snapshot_writer *writer;
    const struct hf_seed seed = {"seed"};
    struct hf_table table;
    struct hf_buf config = {0};
    struct hf_buf data = {0};
    struct hf_error error;

    hf_table_init(&table, &seed, NULL, NULL);
    hf_snapshot_encode(&table, &data);
    hf_table_fini(&table);
    hf_membership_encode(&config, &members);
    meta.config_index = 1;
    meta.config = (struct hf_bytes){config.data, config.size};
    assert_int_equal(
        hf_snapshot_writer_open(on, cluster, &meta, &writer, &error), HF_OK);
    assert_int_equal(
        hf_snapshot_writer_add(writer, data.data, data.size, &error), HF_OK);
    assert_int_equal(hf_snapshot_writer_finish(writer, &error), HF_OK);
    hf_buf_fini(&config);
    hf_buf_fini(&data);
}

/* Write a log whose first segment is recycled. The last entry of that segment,
 * 10, is the base of the log. The first record after it replaces the entries
 * from 6 on. */
static void write_replaced_base(struct hf_disk *on)
{
    struct hf_log_identity of;
    struct hf_error error;
    struct hf_wal *wal;
    uint64_t last = 20;

    assert_int_equal(
        hf_log_directory_open(on, &nodes.opts.cluster, 1, &of, &error), HF_OK);
    wal = open_wal(on, &of);
    assert_int_equal(hf_wal_append_state(wal, 2, 1), HF_OK);
    append(wal, 1, 1, 10);
    while (hf_wal_segment_count(wal) == 3) { /* current, next and spare */
        append(wal, 1, 10, 10);
        maintain(wal);
    }
    append(wal, 2, 6, last);
    write_snapshot(on, &nodes.opts.cluster, 15, 2);
    hf_wal_compact(wal, 12);
    maintain(wal);
    hf_wal_close(wal);
}

static void a_base_that_was_replaced_is_recovered(void **state)
{
    struct hf_disk *on;

    (void)state;
    sim_nodes_init(&nodes, 1, 1);
    nodes.segment_size = 4096;
    sim_nodes_start(&nodes, 0);
    sim_nodes_crash(&nodes, 0, SIM_CRASH_KEEP, false);
    on = sim_disk_attach(nodes.list[0].disk);
    write_replaced_base(on);
    on->ops->close_directory(on);
    sim_nodes_start(&nodes, 0);
    assert_int_equal(nodes.list[0].node->engine.log.base_index, 5);
    assert_true(nodes.list[0].node->engine.log.last >= 20);
    (void)await_leader(&nodes);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(
            a_write_whose_entries_were_replaced_settles, open_journal,
            close_journal),
        cmocka_unit_test_setup_teardown(
            hard_state_does_not_hide_writes_before_it, open_journal,
            close_journal),
        cmocka_unit_test_setup_teardown(a_write_waits_for_its_vote,
                                        open_journal, close_journal),
        cmocka_unit_test_teardown(a_base_that_was_replaced_is_recovered,
                                  tear_down_nodes),
    };

    return hf_test_main("journal", cases, HF_TEST_COUNT(cases), 0);
}
