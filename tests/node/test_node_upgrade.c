/* A rolling upgrade: some nodes know a newer table version than the others.
 * This program is compiled with a newer HF_VERSION_NEWEST than the product. */
#include "node/calls.h"

_Static_assert(HF_VERSION_NEWEST == 2, "compile with -DHF_VERSION_NEWEST=2");

static struct sim_nodes nodes;

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

/* Restart node `number` as a build that knows table versions up to
 * `version`. */
static void restart(unsigned number, uint32_t version)
{
    sim_nodes_crash(&nodes, number, SIM_CRASH_KEEP, false);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    nodes.opts.version = version;
    sim_nodes_start(&nodes, number);
    sim_nodes_run(&nodes, 3000, NULL, NULL);
}

static unsigned version_of(unsigned number)
{
    return nodes.list[number].node->machine.store->table.version;
}

static void the_version_rises_when_all_members_know_it(void **state)
{
    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    nodes.opts.version = 1;
    sim_nodes_start_all(&nodes);
    for (unsigned i = 0; i < 3; i++) {
        (void)open_session(&nodes, i, i + 1);
        for (unsigned j = 0; j < 3; j++)
            assert_int_equal(version_of(j), 1);
        restart(i, 2);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(version_of(i), 2);
    (void)open_session(&nodes, 0, 10);
}

/* The client sends a command of version 2 while the table has version 1. */
static void a_command_of_a_newer_version_is_refused(void **state)
{
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(1)};
    struct call call;

    (void)state;
    sim_nodes_init(&nodes, 1, 1);
    nodes.opts.version = 1;
    sim_nodes_start_all(&nodes);
    (void)await_leader(&nodes);
    call_start(&nodes, 0, &call, &open, 1000);
    call.bytes.data[0] = 2;
    assert_int_equal(call_wait(&nodes, &call).err, HF_EUNSUPPORTED);
}

/* After a restart, the table of a leader has an old version until the leader
 * has applied the entry that raised it. */
static void a_new_leader_does_not_refuse_the_version_of_its_log(void **state)
{
    struct hf_command open = {.kind = HF_COMMAND_OPEN};
    struct call calls[3];

    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    nodes.opts.version = 2;
    sim_nodes_start_all(&nodes);
    (void)open_session(&nodes, 0, 1);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(version_of(i), 2);
        sim_nodes_crash(&nodes, i, SIM_CRASH_KEEP, false);
    }
    sim_nodes_start_all(&nodes);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(version_of(i), 1);
        open.nonce = nonce_of(i + 2);
        call_start(&nodes, i, &calls[i], &open, 20000);
        calls[i].bytes.data[0] = 2;
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(call_wait(&nodes, &calls[i]).err, HF_OK);
}

/* ---- A downgrade --------------------------------------------------------*/

/* Start three nodes that know version 2, and stop the last one. */
static void start_newer(uint64_t snapshot_bytes)
{
    sim_nodes_init(&nodes, 3, 1);
    nodes.opts.version = 2;
    nodes.opts.snapshot_bytes = snapshot_bytes;
    nodes.opts.trailing = 1;
    sim_nodes_start_all(&nodes);
    (void)open_session(&nodes, 0, 1);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_int_equal(version_of(2), 2);
}

static void assert_upgrade_is_asked_for(const struct hf_error *error,
                                        const char *what)
{
    assert_int_equal(error->code, HF_EUNSUPPORTED);
    assert_ptr_equal(strstr(error->text, what), error->text);
    assert_non_null(strstr(error->text,
                           "was written by a newer version of holdfast: "
                           "upgrade this node. It has table version 2; this "
                           "node knows versions up to 1."));
}

static void an_older_build_stops_at_a_newer_log_entry(void **state)
{
    (void)state;
    start_newer(1 << 20);
    restart(2, 1);
    assert_upgrade_is_asked_for(&nodes.list[2].error, "log entry ");
    (void)open_session(&nodes, 0, 2);
}

/* Open node 3 with the options `opts`, and expect that it is refused. */
static void expect_not_opened(const struct hf_node_opts *opts,
                              struct hf_error *error)
{
    struct hf_disk *disk = sim_disk_attach(nodes.list[2].disk);
    struct hf_node *node = NULL;

    assert_int_equal(hf_node_open(opts, nodes.list[0].node->ops, &nodes.list[2],
                                  disk, 0, &node, error),
                     HF_EUNSUPPORTED);
    disk->ops->close_directory(disk);
}

static void open_sessions(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        (void)open_session(&nodes, 0, i);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
}

static void an_older_build_refuses_its_newer_snapshot(void **state)
{
    struct hf_error error = {0};
    struct hf_node_opts opts;

    (void)state;
    start_newer(100);
    open_sessions(2, 50);
    assert_true(nodes.list[2].node->compaction.count > 0);
    sim_nodes_crash(&nodes, 2, SIM_CRASH_KEEP, false);
    opts = nodes.opts;
    opts.id = 3;
    opts.version = 1;
    expect_not_opened(&opts, &error);
    assert_upgrade_is_asked_for(&error, "the snapshot at entry ");
}

static void an_older_build_stops_at_a_newer_snapshot_of_the_leader(void **state)
{
    (void)state;
    start_newer(100);
    for (unsigned i = 0; i < 2; i++) {
        sim_nodes_cut(&nodes, i, 2);
        sim_nodes_cut(&nodes, 2, i);
    }
    (void)await_leader(&nodes);
    open_sessions(2, 50);
    nodes.list[2].node->opts.version = 1;
    sim_nodes_heal(&nodes);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    assert_upgrade_is_asked_for(&nodes.list[2].error, "the snapshot at entry ");
}

/* ---- libraft ------------------------------------------------------------*/

static bool has_other_libraft;

void __real_raft_set_pre_vote(struct raft *raft, bool enabled);
void __wrap_raft_set_pre_vote(struct raft *raft, bool enabled);

/* A version of libraft that has this setting elsewhere in struct raft. */
void __wrap_raft_set_pre_vote(struct raft *raft, bool enabled)
{
    if (!has_other_libraft)
        __real_raft_set_pre_vote(raft, enabled);
}

static void another_version_of_libraft_is_refused(void **state)
{
    struct hf_error error = {0};
    struct hf_node_opts opts;

    (void)state;
    start_newer(100);
    sim_nodes_crash(&nodes, 2, SIM_CRASH_KEEP, false);
    opts = nodes.opts;
    opts.id = 3;
    has_other_libraft = true;
    expect_not_opened(&opts, &error);
    assert_string_equal(error.text,
                        "cannot start: the libraft of this machine is not "
                        "version 0.22, for which this program was built. "
                        "Install libraft 0.22 ('scripts/deps build'), or "
                        "rebuild where it is installed.");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(the_version_rises_when_all_members_know_it,
                                  tear_down),
        cmocka_unit_test_teardown(a_command_of_a_newer_version_is_refused,
                                  tear_down),
        cmocka_unit_test_teardown(
            a_new_leader_does_not_refuse_the_version_of_its_log, tear_down),
        cmocka_unit_test_teardown(an_older_build_stops_at_a_newer_log_entry,
                                  tear_down),
        cmocka_unit_test_teardown(an_older_build_refuses_its_newer_snapshot,
                                  tear_down),
        cmocka_unit_test_teardown(
            an_older_build_stops_at_a_newer_snapshot_of_the_leader, tear_down),
        cmocka_unit_test_teardown(another_version_of_libraft_is_refused,
                                  tear_down),
    };

    return hf_test_main("node-upgrade", cases, HF_TEST_COUNT(cases), 0);
}
