/* mongo.h - real mongod servers of a test's own, on ports of their own: one, or
 * a replica set.
 *
 * The program is $MONGOD, or mongod on the PATH, or what scripts/deps keeps in
 * a cache. It dies with this process. */
#ifndef HF_TESTS_LIB_MONGO_H
#define HF_TESTS_LIB_MONGO_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/folder.h"
#include "lib/network.h"

#define HF_TEST_MONGO_MAX 3
#define HF_TEST_MONGO_NONE "no mongod: not in $MONGOD, on the PATH or cached"

struct hf_test_mongod {
    pid_t pid; /* 0: it does not run */
    int port;
    char clock[16];  /* as faketime has it, "+3600"; "": the true one */
    char folder[64]; /* in that of the set */
};

struct hf_test_mongo {
    unsigned count;
    bool alone; /* a standalone server */
    bool auth;  /* wants a password: user "keeper", password "secret" */
    bool has_user;
    bool
        tls; /* speaks TLS, too; its certificate is the file cert in `folder` */
    unsigned election_ms; /* a primary is missed after this; 0: a second */
    bool impatient; /* members give up on one that hangs after 2 s, not 10 */
    struct hf_test_network *network; /* between the members; NULL: none */
    char folder[sizeof(HF_TEST_FOLDER)];
    struct hf_test_mongod members[HF_TEST_MONGO_MAX];
};

/* Whether there is a program to run; and a library to give it a clock. */
bool hf_test_mongo_found(void);
bool hf_test_mongo_has_clocks(void);

/* Start a replica set of `count` members, and wait until it has a primary. What
 * else is in `mongo` is as the caller set it, or zero. */
bool hf_test_mongo_start(struct hf_test_mongo *mongo, unsigned count);

/* Kill them all and remove what they have written. */
void hf_test_mongo_stop(struct hf_test_mongo *mongo);

/* As a crash does; and start it again over what it has written, without
 * waiting. */
void hf_test_mongo_kill(struct hf_test_mongo *mongo, unsigned member);
bool hf_test_mongo_again(struct hf_test_mongo *mongo, unsigned member);

/* SIGSTOP, which holds from when this returns, or SIGCONT. */
void hf_test_mongo_signal(struct hf_test_mongo *mongo, unsigned member,
                          int number);

/* The member that says it is primary, waiting for it up to a minute; -1: none
 * is. */
int hf_test_mongo_primary(struct hf_test_mongo *mongo);

/* Send a command, as JSON, to one member, and return the reply as JSON, or
 * "(lost) ..." where there is none. It is in place until the next call. */
const char *hf_test_mongo_say(struct hf_test_mongo *mongo, unsigned member,
                              const char *database, const char *json);

/* Another member is primary after this; -1: none is. */
int hf_test_mongo_step_down(struct hf_test_mongo *mongo);

/* The URL of all members, with `options` at its end: "&keep=1". */
#define HF_TEST_MONGO_URL_SIZE 512
void hf_test_mongo_url(const struct hf_test_mongo *mongo, char *url,
                       const char *options);

#endif
