/* proxy.h - a proxy between a test's clients and its server, which can keep
 * what a client has said, lose the client, and say it later: what a network
 * can do, and a server that is stopped cannot.
 *
 * It runs in a thread of its own, and ends with the process. */
#ifndef HF_TESTS_LIB_PROXY_H
#define HF_TESTS_LIB_PROXY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define HF_TEST_PROXY_PAIRS 16
#define HF_TEST_PROXY_BYTES 16384

/* A client's connection, and the one to the server that was made for it; -1
 * where it has ended. */
struct hf_test_proxy_pair {
    int client, server;
    bool keeps;    /* what the client says is kept */
    bool brief;    /* it ends when a number has been answered */
    bool deaf;     /* it ends when anything has been answered, unheard */
    bool answered; /* since what was kept was said */
    char kept[HF_TEST_PROXY_BYTES];
    size_t kept_size;
};

struct hf_test_proxy {
    int port; /* for clients */
    int listener, server_port;
    pthread_t thread;
    pthread_mutex_t mutex; /* over all that follows */
    pthread_cond_t changed;
    struct hf_test_proxy_pair pairs[HF_TEST_PROXY_PAIRS];
    int count;
    int brief; /* so many of those who come next are to be brief */
};

bool hf_test_proxy_start(struct hf_test_proxy *proxy, int server_port);

/* Keep what is said from now on by the clients that are connected now. */
void hf_test_proxy_keep(struct hf_test_proxy *proxy);

/* Wait until something is kept, then lose the client that said it; the server
 * does not hear of that. The next `brief` connections are lost as soon as the
 * server has answered one of their commands with a number. */
void hf_test_proxy_lose(struct hf_test_proxy *proxy, int brief);

/* The clients that are connected now hear no more answers: the next one is
 * dropped, and the connection is lost with it. */
void hf_test_proxy_deafen(struct hf_test_proxy *proxy);

/* Say to the server what was kept. Whether it answers; if not, it has ended
 * that connection. */
bool hf_test_proxy_say(struct hf_test_proxy *proxy);

#endif
