/* store.h - the locks that the command line names. */
#ifndef CLI_STORE_H
#define CLI_STORE_H

#include "args.h"

/* Open what --url, HOLDFAST_URL or else "file:" names. Others see `owner` at
 * its locks; NULL: this process. Status 0, or another, told. */
int store_open(const struct args *args, const char *owner,
               struct hf_client **client);

/* What store_open() did, undone; accepts NULL. */
void store_close(struct hf_client *client);

/* Write "name[pid]@host", cut to what a label may have. `name` may be a path:
 * its last part is shown. */
void store_label(char label[HF_NOTE_MAX + 1], const char *name, long pid);

/* Open, call `act` with a handle for the lock that the words KEY NONCE TOKEN
 * name, close; what was adopted does not end with this process. The nonce "-"
 * is read from HOLDFAST_NONCE. The status of `act`, or another, told. */
int store_act(const struct args *args,
              int (*act)(const struct args *args, struct hf_client *client,
                         struct hf_lock *lock));

#endif
