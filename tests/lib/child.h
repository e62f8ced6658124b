/* child.h - processes that a case starts, stops and kills.
 *
 * An assertion that fails in a child ends it with a status that is not 0, which
 * hf_child_join() finds. What a case leaves running dies with the case. */
#ifndef HF_TESTS_LIB_CHILD_H
#define HF_TESTS_LIB_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Run `act` in a process of its own. */
pid_t hf_child_start(void (*act)(void *arg), void *arg);

/* What `act` answers in a process of its own, where it harms nobody. */
bool hf_child_try(bool (*act)(void));

/* Wait for its end, which must be a good one. */
void hf_child_join(pid_t pid);

/* kill -9, and wait until it is gone. */
void hf_child_kill(pid_t pid);

/* Stop it, or wait until it has stopped itself. It stands still afterwards. */
void hf_child_stop(pid_t pid);
void hf_child_await_stop(pid_t pid);
void hf_child_continue(pid_t pid);

/* Zeroed memory that the case and the children it starts from now on share, for
 * as long as the case runs. */
void *hf_child_share(size_t size);

#endif
