/* quorum.h - what the files of bench_quorum share: the systems that are
 * compared. */
#ifndef BENCH_QUORUM_QUORUM_H
#define BENCH_QUORUM_QUORUM_H

#include "lib/aims.h"
#include "lib/bench.h"
#include "lib/leader.h"
#include "quorum/floor.h"

/* Each with all of its three servers, and with one down. */
enum bench_system {
    BENCH_FLOOR,
    BENCH_FLOOR_DOWN,
    BENCH_QUORUM,
    BENCH_QUORUM_DOWN,
    BENCH_RAFT,
    BENCH_RAFT_DOWN,
};

extern struct floor bench_floor;

/* ---- systems.c ----------------------------------------------------------*/

/* Start all systems. They end with this program. */
void bench_systems_start(void);

/* Returns false for quorum: if this build does not have it. */
bool bench_system_is_available(enum bench_system system);

/* The URL of all masters of quorum:, or of the leader of raft:. */
void bench_system_url(enum bench_system system, char url[BENCH_URL_SIZE]);

/* ---- pairs.c, handover.c ------------------------------------------------
 *
 * Run one round of all scenes; print the table. */

void bench_pairs_run(struct bench *bench, unsigned round);
void bench_pairs_print(struct bench *bench);
void bench_handovers_run(struct bench *bench, unsigned round);
void bench_handovers_print(struct bench *bench);

#endif
