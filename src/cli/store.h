/* store.h - open the store, and adopt the lock that the command line names. */
#ifndef CLI_STORE_H
#define CLI_STORE_H

#include "args.h"

/* Open the store that --url, else HOLDFAST_URL, else "file:" names. Others see
 * `owner` as the owner of its locks; if `owner` is NULL, they see this process.
 * Returns 0, or an exit status after reporting the failure. */
int store_open(const struct args *args, const char *owner,
               struct hf_client **client);

/* Close the client; accepts NULL. */
void store_close(struct hf_client *client);

/* Write "name[pid]@host", truncated to the size of a label. If `name` is a
 * path, its last component is used. */
void store_label(char label[HF_NOTE_MAX + 1], const char *name, long pid);

/* Open the store, adopt the lock that the words KEY NONCE TOKEN name, call
 * `act` with it, and close the store. Unless `act` releases the lock, it stays
 * held when this process ends. If NONCE is "-", it is read from HOLDFAST_NONCE.
 * Returns the exit status of `act`, or after reporting a failure, the exit
 * status of that failure. */
int store_with_lock(const struct args *args,
                    int (*act)(const struct args *args,
                               struct hf_client *client, struct hf_lock *lock));

#endif
