#include "node/plain_client.h"

#include "lib/expect.h"
#include "lib/runner.h"

int hf_plain_set_up(void **state)
{
    static struct hf_node node;

    hf_fake_init(&node);
    for (uint64_t conn = 1; conn <= 3; conn++)
        hf_fake_open(&node, conn);
    *state = &node;
    return 0;
}

int hf_plain_tear_down(void **state)
{
    hf_fake_fini(*state);
    return 0;
}

void hf_plain_hold_key(struct hf_node *node)
{
    hf_fake_call(node, 1, "LOCK k 60000 NONCE " NONCE_A "\r\n",
                 GRANTED(NONCE_A, "1", "0"));
}

void hf_plain_wait_for_key(struct hf_node *node)
{
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 1000 NONCE " NONCE_B "\r\n", "");
    assert_int_equal(hf_table_find(&node->store.table, hf_key_of("k"))->waiters,
                     1);
}

void hf_plain_release_key(struct hf_node *node)
{
    hf_fake_call(node, 1, "UNLOCK k " NONCE_A " 1\r\n", "+OK\r\n");
}
