#include "log/model.h"

#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"
#include "log/directory.h"
#include "log/snapshot_writer.h"

/* ---- The model ----------------------------------------------------------*/

static uint64_t hash_of(const struct hf_log_entry *entry)
{
    struct hf_seed key = {{entry->kind}};

    return hf_siphash(&key, entry->data.data, entry->data.size);
}

void model_add(struct model *model, uint64_t index,
               const struct hf_log_entry *entry)
{
    assert_true(index <= model->state.last_index + 1);
    if (index <= model->base.index) {
        model->base = (struct hf_log_snapshot){index - 1, 0};
        model->count = 0;
    }
    model->count = (size_t)(index - model->base.index - 1);
    assert_true(model->count < MODEL_ENTRIES_MAX);
    model->entries[model->count++] =
        (struct model_entry){entry->term, hash_of(entry)};
    model->state.last_index = index;
    model->state.last_term = entry->term;
}

void model_set_base(struct model *model, uint64_t index, uint64_t term)
{
    model->base = (struct hf_log_snapshot){index, term};
    model->count = 0;
    model->state.last_index = index;
    model->state.last_term = term;
}

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    model_set_base(arg, index, term);
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    model_add(arg, index, entry);
    return HF_OK;
}

struct hf_log_visitor model_visitor(struct model *model)
{
    return (struct hf_log_visitor){on_base, on_entry, model};
}

static uint64_t term_at(const struct model *model, uint64_t index)
{
    if (index == model->base.index)
        return model->base.term;
    if (index < model->base.index || index > model->state.last_index)
        return 0;
    return model->entries[index - model->base.index - 1].term;
}

const char *model_compare(const struct model *expected,
                          const struct model *recovered)
{
    uint64_t skipped = recovered->base.index - expected->base.index;

    if (recovered->state.term != expected->state.term)
        return "another term";
    if (recovered->state.vote != expected->state.vote)
        return "another vote";
    if (recovered->state.last_index != expected->state.last_index ||
        recovered->state.last_term != expected->state.last_term)
        return "another last entry";
    if (recovered->base.index < expected->base.index)
        return "begins too early";
    if (recovered->count + skipped != expected->count)
        return "another number of entries";
    for (size_t i = 0; i < recovered->count; i++) {
        const struct model_entry *entry = &expected->entries[i + skipped];

        if (recovered->entries[i].term != entry->term ||
            recovered->entries[i].hash != entry->hash)
            return "another entry";
    }
    return NULL;
}

void model_match_snapshot(struct model *model, struct hf_log_snapshot snapshot)
{
    if (snapshot.index < model->base.index ||
        term_at(model, snapshot.index) == snapshot.term)
        return;
    model_set_base(model, snapshot.index, snapshot.term);
}

/* ---- The directory ------------------------------------------------------*/

const struct hf_log_identity model_identity = {
    .cluster = {"0123456789abcde"},
    .node = 3,
    .secret = {"a secret key"},
    .segment_size = MODEL_SEGMENT_SIZE,
};

struct model *run_flushed(struct run *run, size_t number)
{
    return &run->kept[number % MODEL_KEPT];
}

enum hf_err run_init(struct run *run)
{
    struct hf_disk *disk = sim_disk_attach(run->sim);
    enum hf_err err = hf_log_directory_init(disk, &model_identity, &run->error);

    disk->ops->close_directory(disk);
    return err;
}

struct run *run_new(uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));

    assert_non_null(run);
    run->sim = sim_disk_new();
    hf_random_init(&run->random, seed + 1);
    assert_int_equal(run_init(run), HF_OK);
    assert_int_equal(run_open(run), HF_OK);
    return run;
}

void run_free(struct run *run)
{
    run_close(run);
    sim_disk_free(run->sim);
    free(run);
}

void run_close(struct run *run)
{
    hf_wal_close(run->wal);
    run->wal = NULL;
    if (run->disk)
        run->disk->ops->close_directory(run->disk);
    run->disk = NULL;
}

/* The data of a snapshot is longer than a sector, and differs by index. */
static uint8_t snapshot_byte(uint64_t index, size_t at)
{
    return (uint8_t)(index * 31 + at * 7 + at / 251);
}

static size_t snapshot_size(uint64_t index)
{
    return 700 + (size_t)(index % 5) * 300;
}

static enum hf_err check_snapshot(struct run *run,
                                  struct hf_snapshot_file *file)
{
    const struct hf_snapshot_meta *meta = hf_snapshot_file_meta(file);
    size_t size = snapshot_size(meta->index);
    uint8_t data[2048];
    enum hf_err err;

    assert_true(hf_snapshot_file_data_size(file) == size);
    err = hf_snapshot_file_read_data(file, 0, data, size, &run->error);
    for (size_t i = 0; i < size && !err; i++)
        assert_int_equal(data[i], snapshot_byte(meta->index, i));
    assert_int_equal(meta->config.size, 6);
    assert_memory_equal(meta->config.data, "config", 6);
    return err;
}

static enum hf_err open_snapshot(struct run *run)
{
    struct hf_snapshot_file *file;
    struct hf_log_snapshot found = {0};
    enum hf_err err = hf_snapshot_file_open(run->disk, &model_identity.cluster,
                                            &file, &run->damaged, &run->error);

    if (err)
        return err;
    if (file) {
        const struct hf_snapshot_meta *meta = hf_snapshot_file_meta(file);

        found = (struct hf_log_snapshot){meta->index, meta->term};
        err = check_snapshot(run, file);
    }
    hf_snapshot_file_close(file);
    if (err)
        return err;
    assert_true(found.index >= run->snapshot.index);
    assert_true(found.index <= run->snapshot_begun.index);
    run->snapshot = run->snapshot_begun = found;
    return HF_OK;
}

/* Fail unless the recovered log is as it was at the flush `acked` or a later
 * flush that began. */
static void compare_recovered(struct run *run, const struct model *recovered)
{
    const char *wrong = "no flush";

    for (size_t i = run->acked; i <= run->begun && wrong; i++) {
        struct model expected = *run_flushed(run, i);

        model_match_snapshot(&expected, run->snapshot);
        wrong = model_compare(&expected, recovered);
    }
    if (wrong)
        fail_msg("flush %zu was acknowledged, %zu had begun: recovered %s",
                 run->acked, run->begun, wrong);
}

enum hf_err run_open(struct run *run)
{
    struct model recovered = {0};
    struct hf_log_visitor visitor = model_visitor(&recovered);
    struct hf_wal_opts opts = {0};
    enum hf_err err;

    run->disk = sim_disk_attach(run->sim);
    err =
        hf_log_directory_open(run->disk, &model_identity.cluster,
                              model_identity.node, &opts.identity, &run->error);
    if (!err)
        err = open_snapshot(run);
    opts.snapshot = run->snapshot;
    if (!err)
        err = hf_wal_open(run->disk, &opts, &visitor, &run->wal,
                          &run->recovered, &run->error);
    if (err) {
        run_close(run);
        return err;
    }
    recovered.state = run->recovered.state;
    compare_recovered(run, &recovered);
    assert_true(run->recovered.base.index == recovered.base.index);
    run->now = *run_flushed(run, 0) = recovered;
    run->begun = run->acked = run->unflushed = 0;
    run->is_retry = run->has_stopped = false;
    hf_wal_reserve(run->wal, 1000);
    return HF_OK;
}

/* ---- Steps --------------------------------------------------------------*/

static void fill_data(struct run *run, uint8_t *data, size_t size)
{
    if (size > 0)
        assert_int_equal(hf_random_bytes(&run->random, data, size), HF_OK);
}

bool run_append(struct run *run, uint64_t index, size_t count, size_t size)
{
    struct hf_log_entry entries[8];
    uint8_t data[8][1024];

    assert_true(count <= 8 && size <= sizeof(data[0]));
    for (size_t i = 0; i < count; i++) {
        fill_data(run, data[i], size);
        entries[i] = (struct hf_log_entry){
            .term = run->now.state.term,
            .kind = (uint8_t)(index + i),
            .data = {data[i], size},
        };
    }
    if (hf_wal_append_entries(run->wal, index, entries, count))
        return false;
    for (size_t i = 0; i < count; i++)
        model_add(&run->now, index + i, &entries[i]);
    run->unflushed += 16 + count * (16 + size);
    return true;
}

bool run_vote(struct run *run, uint64_t term, uint64_t vote)
{
    if (hf_wal_append_state(run->wal, term, vote))
        return false;
    run->now.state.term = term;
    run->now.state.vote = vote;
    return true;
}

bool run_upkeep(struct run *run)
{
    struct hf_wal_upkeep upkeep;

    while (hf_wal_upkeep_begin(run->wal, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        if (hf_wal_upkeep_end(run->wal, &upkeep))
            return false;
    }
    return true;
}

static bool append_some(struct run *run)
{
    uint64_t last = run->now.state.last_index;
    uint64_t index = last + 1;
    size_t count = 1 + hf_random_below(&run->random, 4);
    size_t size = hf_random_below(&run->random, 150);

    /* Never replace what a snapshot contains. */
    if (last > run->snapshot_begun.index + 4 &&
        hf_random_below(&run->random, 4) == 0)
        index -= 1 + hf_random_below(&run->random, 4);
    return run_append(run, index, count, size);
}

static void check_durable(struct run *run)
{
    struct hf_log_state durable = hf_wal_durable(run->wal);

    assert_true(durable.term == run_flushed(run, run->acked)->state.term);
    assert_true(durable.vote == run_flushed(run, run->acked)->state.vote);
    assert_true(durable.last_index <= run->now.state.last_index);
    assert_true(durable.last_index <=
                run_flushed(run, run->acked)->state.last_index);
}

/* Note the log that the flush makes durable, and sometimes append while the
 * flush runs: these entries go to the next batch. */
static void note_flush(struct run *run)
{
    *run_flushed(run, ++run->begun) = run->now;
    run->unflushed = 0;
    if (hf_random_below(&run->random, 2) == 0)
        (void)append_some(run);
}

bool run_flush(struct run *run)
{
    struct hf_wal_flush flush;
    enum hf_err err;

    if (!hf_wal_is_pending(run->wal))
        return true;
    if (!hf_wal_flush_begin(run->wal, &flush) &&
        (!run_upkeep(run) || !hf_wal_flush_begin(run->wal, &flush)))
        return false;
    /* A batch whose flush found the disk full is flushed again unchanged. */
    if (!run->is_retry)
        note_flush(run);
    hf_wal_flush_run(&flush);
    err = hf_wal_flush_end(run->wal, &flush);
    run->is_retry = err == HF_ELIMIT;
    if (!err) {
        run->acked = run->begun;
        check_durable(run);
    }
    return !err;
}

bool run_write_snapshot(struct run *run, struct hf_log_snapshot snapshot)
{
    struct hf_snapshot_meta meta = {
        .index = snapshot.index,
        .term = snapshot.term,
        .config_index = 1,
        .config = {"config", 6},
    };
    struct hf_snapshot_writer *writer;
    size_t size = snapshot_size(snapshot.index);
    uint8_t data[2048];

    if (snapshot.index > run->snapshot_begun.index)
        run->snapshot_begun = snapshot;
    for (size_t i = 0; i < size; i++)
        data[i] = snapshot_byte(snapshot.index, i);
    assert_true(hf_wal_reserve_lend(run->wal));
    if (hf_snapshot_writer_open(run->disk, &model_identity.cluster, &meta,
                                &writer, &run->error))
        return false;
    if (hf_snapshot_writer_add(writer, data, size, &run->error)) {
        hf_snapshot_writer_cancel(writer);
        return false;
    }
    if (hf_snapshot_writer_finish(writer, &run->error))
        return false;
    run->snapshot = snapshot;
    hf_wal_reserve(run->wal, size);
    hf_wal_reserve_return(run->wal);
    return !hf_snapshot_file_remove_old(run->disk, snapshot.index, &run->error);
}

bool run_snapshot(struct run *run, uint64_t trailing)
{
    uint64_t index = hf_wal_durable(run->wal).last_index;
    struct hf_log_snapshot snapshot = {index, term_at(&run->now, index)};

    if (index <= run->snapshot.index || snapshot.term == 0)
        return true;
    if (!run_write_snapshot(run, snapshot))
        return false;
    if (index > trailing)
        hf_wal_compact(run->wal, index - trailing);
    return true;
}

bool run_install(struct run *run, uint64_t index)
{
    struct hf_log_snapshot snapshot = {index, run->now.state.term};

    /* A real node that cannot install a snapshot stops. */
    run->has_stopped = !run_write_snapshot(run, snapshot) ||
                       hf_wal_append_base(run->wal, snapshot);
    if (run->has_stopped)
        return false;
    model_set_base(&run->now, snapshot.index, snapshot.term);
    run->unflushed += 32;
    /* A real node does nothing else until the reset is durable. */
    return run_flush(run);
}

static bool vote_some(struct run *run)
{
    uint64_t term = run->now.state.term;
    uint64_t vote = hf_random_below(&run->random, 4);

    if (run->now.state.vote != 0 || term == 0)
        term++;
    return run_vote(run, term, vote);
}

bool run_step(struct run *run)
{
    uint32_t chance = hf_random_below(&run->random, 100);

    if (run->now.state.term == 0)
        return run_vote(run, 1, 0);
    if (run->unflushed > 900 || run->now.count > MODEL_ENTRIES_MAX - 20 ||
        (chance >= 45 && chance < 75))
        return run_flush(run) && (run->now.count < 300 || run_snapshot(run, 0));
    if (chance < 40)
        return append_some(run);
    if (chance < 45)
        return vote_some(run);
    if (chance < 85)
        return run_upkeep(run);
    if (chance < 95)
        return run_snapshot(run, 2);
    if (chance < 97)
        return run_install(run, run->now.state.last_index + 3);
    return true;
}
