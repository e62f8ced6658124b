/* proxy.h - a proxy between a test's clients and its server, which can hold
 * back what a client sends, drop the client, and deliver the bytes later. A
 * network can do that; stopping a server cannot reproduce it.
 *
 * The proxy runs in its own thread, until the process ends. */
#ifndef HF_TESTS_LIB_PROXY_H
#define HF_TESTS_LIB_PROXY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define HF_TEST_PROXY_PAIRS 16
#define HF_TEST_PROXY_BYTES 16384

/* A client's connection, and the connection to the server that belongs to it. A
 * descriptor is -1 once it is closed. */
struct hf_test_proxy_pair {
    int client, server;
    bool holds_back;   /* bytes from the client are held back */
    bool closes_early; /* close both after the first integer in an array */
    bool drops_reply;  /* drop the next reply, and close both connections */
    bool answered; /* the server has replied since the bytes were delivered */
    char kept[HF_TEST_PROXY_BYTES];
    size_t kept_size;
};

struct hf_test_proxy {
    int port; /* the port that clients connect to */
    int listener, server_port;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the members below */
    pthread_cond_t changed;
    struct hf_test_proxy_pair pairs[HF_TEST_PROXY_PAIRS];
    int count;
    int close_early; /* how many of the next connections close early */
};

bool hf_test_proxy_start(struct hf_test_proxy *proxy, int server_port);

/* From now on, hold back what the connected clients send. */
void hf_test_proxy_hold_back(struct hf_test_proxy *proxy);

/* Wait until bytes are held back, then drop the client that sent them, without
 * closing the connection to the server. Each of the next `close_early`
 * connections is closed after the first integer in an array that the server
 * sends; the rest of that reply is lost. */
void hf_test_proxy_drop_client(struct hf_test_proxy *proxy, int close_early);

/* The connected clients receive no more replies: instead of the next reply to
 * each client, the proxy closes its connection and that to the server. */
void hf_test_proxy_drop_replies(struct hf_test_proxy *proxy);

/* Deliver the bytes that are held back to the server. Returns true if the
 * server replies, and false if it closes the connection instead. */
bool hf_test_proxy_deliver(struct hf_test_proxy *proxy);

#endif
