/* mongo.h - real mongod servers for tests, on free ports: a standalone server
 * or a replica set.
 *
 * The program is $MONGOD, or mongod on the PATH, or the one that scripts/deps
 * has cached. The servers die with this process. */
#ifndef HF_TESTS_LIB_MONGO_H
#define HF_TESTS_LIB_MONGO_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/folder.h"
#include "lib/network.h"

#define HF_TEST_MONGO_MAX 3
#define HF_TEST_MONGO_NONE "no mongod: not in $MONGOD, on the PATH or cached"

struct hf_test_mongod {
    pid_t pid; /* 0 if the server is not running */
    int port;
    char clock[16];  /* faketime offset, such as "+3600"; "": none */
    char folder[64]; /* data directory, inside that of the set */
};

struct hf_test_mongo {
    unsigned count;
    bool standalone; /* one server that is not in a replica set */
    bool auth;       /* requires a login: user "keeper", password "secret" */
    bool has_user;
    bool tls; /* accepts TLS too, with the certificate `folder`/cert */
    unsigned election_ms; /* election timeout; 0: one second */
    bool short_timeouts; /* members drop a hanging member after 2 s, not 10 s */
    struct hf_test_network *network; /* between the members, or NULL */
    char folder[sizeof(HF_TEST_FOLDER)];
    struct hf_test_mongod members[HF_TEST_MONGO_MAX];
};

/* hf_test_mongo_is_installed() returns true if there is a mongod to run;
 * hf_test_mongo_has_clocks() returns true if libfaketime, which changes the
 * clock of a mongod, is installed. */
bool hf_test_mongo_is_installed(void);
bool hf_test_mongo_has_clocks(void);

/* Start a replica set of `count` members, and wait until the first is the
 * primary and the others are secondaries; or start a server, if `standalone` is
 * set. The caller has set the options in `mongo`, and zeroed the rest of the
 * struct. Returns false if several attempts fail. */
bool hf_test_mongo_start(struct hf_test_mongo *mongo, unsigned count);

/* Kill all members and remove their data. */
void hf_test_mongo_stop(struct hf_test_mongo *mongo);

/* hf_test_mongo_kill() kills a member, like a crash. hf_test_mongo_restart()
 * starts it again with its data, and does not wait until it is ready. Returns
 * false if it cannot start a process. */
void hf_test_mongo_kill(struct hf_test_mongo *mongo, unsigned member);
bool hf_test_mongo_restart(struct hf_test_mongo *mongo, unsigned member);

/* Send SIGSTOP or SIGCONT. After SIGSTOP, the member has stopped when this
 * returns. */
void hf_test_mongo_signal(struct hf_test_mongo *mongo, unsigned member,
                          int number);

/* The number of the member that reports that it is the primary. Waits for a
 * primary, and returns -1 if there is none after a minute or more. */
int hf_test_mongo_primary(struct hf_test_mongo *mongo);

/* Send a command, as JSON, to one member. Returns the reply as JSON, or "(lost)
 * ..." if there is no reply, or the reply is an error. The text is valid until
 * the next call. */
const char *hf_test_mongo_command(struct hf_test_mongo *mongo, unsigned member,
                                  const char *database, const char *json);

/* Make another member the primary, and return its number. Returns the old
 * primary if no other member could be elected, or -1 if there is no primary. */
int hf_test_mongo_step_down(struct hf_test_mongo *mongo);

/* Write the URL of all members, followed by `options`, such as "&keep=1", to
 * `url`, which has room for HF_TEST_MONGO_URL_SIZE bytes. */
#define HF_TEST_MONGO_URL_SIZE 512
void hf_test_mongo_url(const struct hf_test_mongo *mongo, char *url,
                       const char *options);

#endif
