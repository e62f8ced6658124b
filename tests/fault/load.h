/* load.h - a cluster, and client processes that acquire and release its locks
 * while the case lets nodes fail.
 *
 * Each client process takes the locks of a few keys in turn, and increments a
 * counter under each: if two clients hold a key at once, its counter becomes
 * wrong. All calls go into the history of the case (lib/recorded.h), which
 * hf_load_check() checks: no acknowledged grant may be lost, no acknowledged
 * release undone, tokens must rise. */
#ifndef HF_TESTS_FAULT_LOAD_H
#define HF_TESTS_FAULT_LOAD_H

#include <holdfast.h>

#include "lib/cluster_faults.h"
#include "lib/runner.h"

/* The cluster of the case. */
extern struct hf_test_cluster hf_load_cluster;

/* Setup for three nodes, and the teardown, which fails if a node does not end
 * as it should. Cases with other clusters call hf_load_open() themselves. All
 * nodes can have faults (faults.h). */
int hf_load_set_up(void **state);
int hf_load_tear_down(void **state);
void hf_load_open(unsigned nodes);

/* The same for masters of quorum:, which are quiet for `lease_max_ms` when they
 * are started again. */
void hf_load_open_masters(unsigned masters, uint32_t lease_max_ms);

/* Open a client of the cluster, or of one node; waits until it is answered. */
struct hf_client *hf_load_client(void);
struct hf_client *hf_load_client_of(unsigned node);

/* Options: a ttl and a timeout that outlast the case, and a wait without
 * limit. */
struct hf_lock_opts hf_load_opts(void);

/* hf_load_start() starts client processes, whose locks have the ttl `ttl_ms`.
 * hf_load_await_grants() waits until they have used `count` more locks. */
#define HF_LOAD_CLIENTS 4
void hf_load_start(uint32_t ttl_ms);
void hf_load_await_grants(unsigned count);

/* Wait until `count` claims wait for the key "k". */
void hf_load_await_waiters(struct hf_client *client, uint32_t count);

/* Kill one client process, and start another in its place. */
void hf_load_kill_client(unsigned client);

/* End the client processes, check the counters and the history, and that a new
 * lock of each key has a larger token than all before. A majority of the nodes
 * must run. */
void hf_load_check(void);

/* Returns true if the case has to run round `round`, counted from 0: there are
 * `rounds` of them, or as many as fit into HF_TORTURE_SECONDS, if that is
 * set. */
bool hf_load_goes_on(unsigned round, unsigned rounds);

#endif
