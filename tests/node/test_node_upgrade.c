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
    return nodes.list[number].node->replica.store->table.version;
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

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(the_version_rises_when_all_members_know_it,
                                  tear_down),
        cmocka_unit_test_teardown(a_command_of_a_newer_version_is_refused,
                                  tear_down),
    };

    return hf_test_main("node-upgrade", cases, HF_TEST_COUNT(cases), 0);
}
