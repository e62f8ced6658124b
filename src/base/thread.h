/* thread.h - threads that a library starts inside a user's program. */
#ifndef HF_BASE_THREAD_H
#define HF_BASE_THREAD_H

#include <pthread.h>

/* Start a thread with all signals blocked except SIGBUS, because signals belong
 * to the program. Threads that the new thread starts inherit the mask. Returns
 * 0 or an errno value. */
int hf_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Between these two calls the calling thread cannot be canceled; a
 * pthread_cancel() takes effect after the outermost restore. Calls nest. */
void hf_thread_disable_cancel(void);
void hf_thread_restore_cancel(void);

#endif
