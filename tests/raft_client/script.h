/* script.h - nodes of a cluster that a test controls.
 *
 * A client of raft: runs over a simulated network, with a clock that the test
 * moves. The nodes answer HELLO, OPEN, ATTACH, PING and UNWATCH by themselves,
 * and count DETACH without a reply. The test gets all other requests and
 * replies to them, in any order or not at all. Failures are cmocka
 * assertions. */
#ifndef HF_TESTS_RAFT_CLIENT_SCRIPT_H
#define HF_TESTS_RAFT_CLIENT_SCRIPT_H

#include "client/client.h"
#include "lib/runner.h"
#include "strategy/raft/raft.h"

#define SCRIPT_NODES 3
#define SCRIPT_STREAMS 256
#define SCRIPT_REQUESTS 4096

struct script_node {
    bool refuses;      /* connections are refused */
    bool stopped;      /* connections are accepted, but nothing is answered */
    bool stalled;      /* OPEN and ATTACH are not answered */
    bool stalls_open;  /* OPEN is not answered */
    uint64_t leader;   /* 1 is the first node; 0: unknown */
    const char *where; /* the leader's address; NULL: as in the URL */
    const char *hello; /* sent as the reply to HELLO, unless NULL */
    const char *cluster;
};

struct script_stream {
    struct hf_net_stream *stream; /* NULL: closed */
    unsigned node;
    bool has_hello; /* HELLO was received */
    bool opened;
    bool is_lost;
    struct hf_resp_reader reader;
    struct hf_buf input; /* bytes that the client will receive */
    unsigned writes;
};

/* A request that the test has to answer. Its strings may dangle, because they
 * point into the output of the client. */
struct script_request {
    struct hf_mux_request mux;
    struct hf_command command; /* of a DO */
    unsigned stream;
    hf_time at;
};

struct script {
    struct script_node nodes[SCRIPT_NODES];
    struct script_stream streams[SCRIPT_STREAMS];
    unsigned stream_count;
    struct script_request requests[SCRIPT_REQUESTS];
    unsigned request_count, taken;
    unsigned opens, attaches, pings, detaches, unwatches; /* received */
    uint64_t session;       /* the id that OPEN returns */
    bool gone;              /* the next ATTACH gets: no such session */
    struct hf_nonce secret; /* of the last OPEN or ATTACH */
    uint64_t seed; /* of the client's random numbers; 0: the usual one */
    hf_time now;
    struct hf_client *client;
    struct hf_host *host;
    struct hf_net_transport transport;
    struct hf_post post;
};

/* There is one script at a time, because a strategy's `open` has no argument
 * for it. */
extern struct script script;

/* Fixtures. script_set_up() makes three nodes, and the first one leads;
 * script_set_up_open() also connects a client to the first. */
int script_set_up(void **state);
int script_set_up_open(void **state);
int script_tear_down(void **state);

/* Open the client with `url`, or with the URL of all nodes if `url` is NULL. If
 * the URL lists several nodes, the client begins with a random one. */
void script_open(const char *url);

/* Run the client while its clock advances by `ms`. */
void script_run(uint32_t ms);

/* Run the client until there is a request that the test has not taken. Assert
 * that its command is `verb`, and return it. */
struct script_request *script_take(enum hf_verb verb);

/* Run what is due in the client, and assert that the test has taken all
 * requests. */
void script_expect_nothing(void);

/* script_reply(), script_result() and script_error() reply to `request` over
 * its connection: with any reply, with the result of a command, or with an
 * error. script_push() and script_bytes() send a push or any bytes over the
 * connection `stream`. */
void script_reply(const struct script_request *request,
                  const struct hf_mux_reply *reply);
void script_result(const struct script_request *request,
                   const struct hf_result *result, int64_t age_ms);
void script_error(const struct script_request *request, enum hf_err err,
                  const char *text);
void script_push(unsigned stream, const struct hf_mux_push *push);
void script_bytes(unsigned stream, const void *data, size_t size);

/* The stream that the client uses. Asserts that exactly one is open. */
unsigned script_stream(void);

/* The number of open streams. */
unsigned script_streams(void);

/* Lose all connections of the node, and make it refuse new ones. */
void script_kill(unsigned node);

/* Run the client until the future is done. Frees it and returns its result. */
enum hf_err script_wait(struct hf_future *future);

/* Start to acquire `key`, with a ttl of 10 s and without automatic renewals. */
struct hf_future *script_lock(const char *key, uint32_t wait_ms,
                              struct hf_lock **lock);

#endif
