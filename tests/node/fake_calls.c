/* fake_calls.c - the functions of fake_node.h that assert with cmocka. Fuzz
 * targets use the fake node without them. */
#include "lib/runner.h"
#include "node/fake_node.h"

void hf_fake_expect(struct hf_node *node, uint64_t conn, const char *wanted)
{
    struct hf_buf *output = &node->conns[conn].output;
    size_t size = strlen(wanted);
    bool is_start = size > 0 && wanted[size - 1] == '~';

    if (is_start) {
        assert_true(output->size >= size - 1);
        assert_memory_equal(output->data, wanted, size - 1);
    } else {
        hf_buf_u8(output, 0);
        assert_string_equal((const char *)output->data, wanted);
    }
    output->size = 0;
}

void hf_fake_call(struct hf_node *node, uint64_t conn, const char *text,
                  const char *wanted)
{
    hf_fake_send(node, conn, text);
    hf_fake_turn(node, node->now);
    hf_fake_expect(node, conn, wanted);
}
