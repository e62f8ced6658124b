/* script.h - nodes of a cluster that do what a test tells them.
 *
 * A client of raft: runs over a simulated network, with a clock that the test
 * moves. The nodes answer HELLO, OPEN, ATTACH, PING, UNWATCH and DETACH by
 * themselves; the test gets all other requests and replies to them, in any
 * order or not at all. Failures are cmocka assertions. */
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
    bool stopped;      /* connections are accepted, and nothing is answered */
    bool stalled;      /* OPEN and ATTACH are not answered */
    uint64_t leader;   /* 1 is the first node; 0: unknown */
    const char *where; /* the leader's address; NULL: as in the URL */
    const char *hello; /* instead of the reply to HELLO, if not NULL */
    const char *cluster;
};

struct script_stream {
    struct hf_raft_stream *stream; /* NULL: closed */
    unsigned node;
    bool greeted; /* HELLO was received */
    bool opened;
    bool is_lost;
    struct hf_resp_reader reader;
    struct hf_buf input; /* for the client */
    unsigned writes;
};

/* A request that the test has to answer. */
struct script_request {
    struct hf_mux_request mux;
    struct hf_command command; /* DO; its strings are not kept */
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
    bool gone;              /* ATTACH: the session does not exist */
    struct hf_nonce secret; /* of the last OPEN or ATTACH */
    hf_time now;
    struct hf_client *client;
    struct hf_host *host;
    struct hf_raft_transport transport;
    struct hf_post post;
};

/* One script at a time, because a strategy's `open` has no other argument. */
extern struct script script;

/* Fixtures: three nodes, of which the first leads; and a client that is
 * connected to it. */
int script_set_up(void **state);
int script_set_up_open(void **state);
int script_tear_down(void **state);

/* Open the client. With several nodes it begins at a random one; NULL stands
 * for the URL of all nodes. */
void script_open(const char *url);

/* Run the client for `ms` of its clock. */
void script_run(uint32_t ms);

/* Run the client until it has sent something that the test has to answer. */
struct script_request *script_take(enum hf_verb verb);

/* Assert that nothing was sent that the test has not taken. */
void script_expect_nothing(void);

/* Reply to a request on the connection on which it came, or on `stream`. */
void script_reply(const struct script_request *request,
                  const struct hf_mux_reply *reply);
void script_result(const struct script_request *request,
                   const struct hf_result *result, int64_t age_ms);
void script_error(const struct script_request *request, enum hf_err err,
                  const char *text);
void script_push(unsigned stream, const struct hf_mux_push *push);
void script_bytes(unsigned stream, const void *data, size_t size);

/* The stream that the client uses; assert that there is exactly one. */
unsigned script_stream(void);

/* The number of open streams. */
unsigned script_streams(void);

/* Lose all connections of a node; `refuses` as well. */
void script_kill(unsigned node);

/* Run the client until the future is done. Frees it and returns its result. */
enum hf_err script_wait(struct hf_future *future);

/* hf_acquire_start() of `key`, with a ttl of 10 s. */
struct hf_future *script_lock(const char *key, uint32_t wait_ms,
                              struct hf_lock **lock);

#endif
