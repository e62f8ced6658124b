/* mux_client.h - a client of a fake node in MUX mode, and two of them as the
 * fixture of a test. */
#ifndef HF_TESTS_NODE_MUX_CLIENT_H
#define HF_TESTS_NODE_MUX_CLIENT_H

#include "node/clients_state.h"
#include "node/fake_node.h"

extern const struct hf_nonce hf_mux_secret; /* its first byte is replaced by the
                                               number of the connection */
extern const struct hf_nonce hf_mux_nonce_a;
extern const struct hf_nonce hf_mux_nonce_b;

/* A client with one connection, which takes one message at a time. */
struct hf_mux_client {
    struct hf_node *node;
    uint64_t conn;
    uint64_t id; /* of the last request */
    uint64_t session;
    uint64_t sequence;
    struct hf_resp_reader reader;
    struct hf_resp_message message; /* the last one taken */
};

/* Two clients with sessions, at the connections 1 and 2. */
struct hf_mux_setup {
    struct hf_node node;
    struct hf_mux_client one, two;
};

int hf_mux_set_up(void **state);
int hf_mux_tear_down(void **state);

/* Connect a client that has no session. */
void hf_mux_connect(struct hf_mux_client *client, struct hf_node *node,
                    uint64_t conn);

/* Take the next message. Returns false if there is none. */
bool hf_mux_take(struct hf_mux_client *client);

/* Take the reply to a request, which must be the next message. */
struct hf_mux_reply hf_mux_take_reply(struct hf_mux_client *client,
                                      enum hf_verb verb);

void hf_mux_send(struct hf_mux_client *client, struct hf_mux_request request);

/* Send a request and take its reply. */
struct hf_mux_reply hf_mux_call(struct hf_mux_client *client,
                                struct hf_mux_request request);

/* Send a command with the next sequence number of the client's session. */
void hf_mux_send_command(struct hf_mux_client *client,
                         struct hf_command command);

/* Send a command and take its result. */
struct hf_result hf_mux_do(struct hf_mux_client *client,
                           struct hf_command command);

struct hf_command hf_mux_lock(const char *key, const struct hf_nonce *nonce,
                              bool queue);

/* Hold `count` keys, whose names begin with "a" and "b" in turn. */
void hf_mux_hold_keys(struct hf_mux_client *client, int count);

#endif
