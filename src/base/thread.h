/* thread.h - threads of our own, in a program of somebody else's. */
#ifndef HF_BASE_THREAD_H
#define HF_BASE_THREAD_H

#include <pthread.h>

/* Start one that handles no signal: these are the program's. What it starts in
 * its turn has its mask. 0, or an errno. */
int hf_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Between these two the calling thread is not cancelled: pthread_cancel() takes
 * effect after the last unguard. They nest. */
void hf_thread_disable_cancel(void);
void hf_thread_restore_cancel(void);

#endif
