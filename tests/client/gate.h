/* gate.h - a callback that blocks until the test opens a gate. */
#ifndef HF_TESTS_CLIENT_GATE_H
#define HF_TESTS_CLIENT_GATE_H

#include <pthread.h>

#include "client/one_client.h"

static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_open;
static bool gate_reached; /* the callback has reached the gate */

static void set_gate(bool *flag)
{
    pthread_mutex_lock(&gate_mutex);
    *flag = true;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_mutex);
}

static void wait_for(const bool *flag)
{
    pthread_mutex_lock(&gate_mutex);
    while (!*flag)
        pthread_cond_wait(&gate_changed, &gate_mutex);
    pthread_mutex_unlock(&gate_mutex);
}

static void stuck(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    set_gate(&gate_reached);
    wait_for(&gate_open);
}

static struct hf_info stuck_info;

static inline void enter_stuck_callback(void)
{
    assert_int_equal(hf_read_start(client, hf_key_of("any"), HF_LOCAL,
                                   &stuck_info, stuck, NULL, NULL),
                     HF_OK);
    wait_for(&gate_reached);
}

static inline void leave_stuck_callback(void)
{
    set_gate(&gate_open);
    hf_info_fini(&stuck_info);
}

/* Open the gate after 50 ms, in which the test can block in a call. */
static inline void *open_gate_main(void *arg)
{
    sleep_ms(50);
    set_gate(&gate_open);
    return arg;
}

#endif
