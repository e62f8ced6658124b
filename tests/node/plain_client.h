/* plain_client.h - three clients of a fake node in plain mode, as the fixture
 * of a test. */
#ifndef HF_TESTS_NODE_PLAIN_CLIENT_H
#define HF_TESTS_NODE_PLAIN_CLIENT_H

#include "node/clients_state.h"
#include "node/fake_node.h"

#define NONCE_A "000000000000000000000000000000aa"
#define NONCE_B "000000000000000000000000000000bb"
#define GRANTED(nonce, token, age)                                             \
    "*3\r\n$32\r\n" nonce "\r\n:" token "\r\n:" age "\r\n"

/* The state is the node, and has the connections 1 to 3. */
int hf_plain_set_up(void **state);
int hf_plain_tear_down(void **state);

/* Make connection 1 hold the key "k" with NONCE_A. */
void hf_plain_hold_key(struct hf_node *node);

/* Make connection 2 wait a second for the key "k" with NONCE_B. */
void hf_plain_wait_for_key(struct hf_node *node);

/* Make connection 1 release the key. */
void hf_plain_release_key(struct hf_node *node);

#endif
