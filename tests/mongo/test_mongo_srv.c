/* mongodb+srv: find the servers by a DNS SRV record.
 *
 * The test runs no DNS server. Instead, it replaces the functions of the C
 * library that libmongoc calls. */
#include <arpa/nameser.h>
#include <dlfcn.h>
#include <netdb.h>
#include <resolv.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define SERVICE "_mongodb._tcp.set.holdfast.test"
#define HOST "one.holdfast.test"

static unsigned srv_queries; /* SRV queries for SERVICE */

/* ---- DNS ----------------------------------------------------------------*/

/* A DNS message as in RFC 1035, 4.1: header, question, and an answer as in RFC
 * 2782. The final NUL is part of the last name. */
#define HOST_LABELS "\3one\10holdfast\4test"

static const char packet[] =
    "\0\0\200\0\0\1\0\1\0\0\0\0" /* header of a response */
    "\10_mongodb\4_tcp\3set\10holdfast\4test\0"
    "\0\41\0\1" /* type SRV, class IN */
    "\300\14"   /* pointer to the name in the question */
    "\0\41\0\1" /* type SRV, class IN */
    "\0\0\0\74" /* ttl: a minute */
    "\0\31"     /* 25 bytes of data: */
    "\0\0\0\0"  /* priority, weight */
    "PP"        /* port, set later */
    HOST_LABELS;

static int write_answer(unsigned char *to, int size, int port)
{
    const size_t at = sizeof(packet) - sizeof(HOST_LABELS) - 2;

    if ((size_t)size < sizeof(packet))
        return -1;
    memcpy(to, packet, sizeof(packet));
    to[at] = (unsigned char)(port >> 8);
    to[at + 1] = (unsigned char)port;
    return (int)sizeof(packet);
}

/* Replaces the C library's function: an SRV query for SERVICE succeeds, and any
 * other query fails. */
int res_nsearch(res_state state, const char *name, int class, int type,
                unsigned char *answer, int size)
{
    (void)class;
    if (strcmp(name, SERVICE) == 0 && type == ns_t_srv) {
        srv_queries++;
        return write_answer(answer, size, mongo.members[0].port);
    }
    state->res_h_errno = HOST_NOT_FOUND;
    return -1;
}

/* Replaces the C library's function: HOST is the loopback address, and other
 * names are passed on. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's own
 * names are reserved. */
int getaddrinfo(const char *name, const char *service,
                const struct addrinfo *hints, struct addrinfo **found)
{
    typedef int lookup_fn(const char *, const char *, const struct addrinfo *,
                          struct addrinfo **);
    union {
        void *symbol;
        lookup_fn *call;
    } lookup = {dlsym(RTLD_NEXT, "getaddrinfo")};

    return lookup.call(name && strcmp(name, HOST) == 0 ? "127.0.0.1" : name,
                       service, hints, found);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* ---- Locks --------------------------------------------------------------*/

static struct hf_client *open_by_name(void)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_client *client = NULL;
    struct hf_client_opts opts;
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open("mongodb+srv://set.holdfast.test/?tls=false", &opts, &client);
    if (err && srv_queries == 0 && strstr(error.text, SERVICE))
        hf_test_skip("this libmongoc resolves names in another way");
    if (err)
        fail_msg("%s", error.text);
    return client;
}

static void an_srv_record_names_the_servers(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_info info;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = open_by_name();
    assert_true(hf_caps(client) & HF_CAP_FAILOVER_SAFE);
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(an_srv_record_names_the_servers),
    };

    return hf_test_main("mongo srv", cases, HF_TEST_COUNT(cases), 1);
}
