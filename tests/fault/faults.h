/* faults.h - faults of a node's file calls, on cue.
 *
 * preload.c is loaded into holdfastd before libc (LD_PRELOAD). It counts the
 * calls that write and sync files. At the call that the test has chosen, it
 * returns an error, waits, or kills the process. Test and daemon share this
 * struct in a mapped file, DIR.faults, so a test can set a fault before the
 * node starts and while it runs.
 *
 * The daemon's outgoing connections come from the address 127.0.0.(10 + N),
 * where DIR ends with the digit N: so a packet filter sees which node has sent
 * a packet. */
#ifndef HF_TESTS_FAULT_FAULTS_H
#define HF_TESTS_FAULT_FAULTS_H

#include <stdatomic.h>

#define HF_FAULTS_SUFFIX ".faults"
#define HF_FAULTS_ADDRESS 10 /* node N sends from 127.0.0.(10 + N) */

/* Writes of this size and more only fill new files with zeros, and are not
 * counted: a node makes hundreds of them. */
#define HF_FAULTS_WRITE_MAX 262144

#define HF_FAULTS_SLOW_MS 600 /* more than the shortest election timeout */

enum hf_fault {
    HF_FAULT_NONE,
    HF_FAULT_KILL_BEFORE_SYNC,
    HF_FAULT_KILL_AFTER_SYNC,
    HF_FAULT_KILL_BEFORE_WRITE,
    HF_FAULT_TEAR_WRITE, /* write the first half, then kill */
    HF_FAULT_SYNC_EIO,   /* fail this sync and all later ones */
    HF_FAULT_WRITE_EIO,  /* the same for writes */
    HF_FAULT_HANG_SYNC,  /* wait until the fault is reset */
    HF_FAULT_SLOW_SYNC,  /* each sync takes HF_FAULTS_SLOW_MS longer */
};

struct hf_faults {
    atomic_uint fault; /* an enum hf_fault */
    atomic_uint after; /* how many calls succeed before the fault occurs */
    atomic_uint hits;  /* how often the fault has occurred */
};

#endif
