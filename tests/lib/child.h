/* child.h - processes that a case starts, stops and kills.
 *
 * A child whose assertion fails exits with a nonzero status, which
 * hf_child_join() reports. The runner kills children that a case leaves
 * running. */
#ifndef HF_TESTS_LIB_CHILD_H
#define HF_TESTS_LIB_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Run `act` in a child process. Returns the pid of the child. */
pid_t hf_child_start(void (*act)(void *arg), void *arg);

/* Run `act` in a child process, and wait for it. Returns the result of `act`,
 * or false if the child crashes. */
bool hf_child_try(bool (*act)(void));

/* Wait for a child, which must exit with status 0. */
void hf_child_join(pid_t pid);

/* Kill a child with SIGKILL, and reap it. */
void hf_child_kill(pid_t pid);

/* hf_child_stop() sends SIGSTOP; hf_child_await_stop() waits for a child that
 * stops itself. Both return after the child has stopped. */
void hf_child_stop(pid_t pid);
void hf_child_await_stop(pid_t pid);
void hf_child_continue(pid_t pid);

/* Zeroed memory shared by the case and the children that it starts later, until
 * the case ends. */
void *hf_child_share(size_t size);

#endif
