/* lock.h - includes everything about a lock, for the rest of the client.
 *
 *   handle.h    struct hf_lock: state, lifetime, events
 *   acquire.h   one claim, from the first request to its result
 *   validity.h  how long a held lock is valid
 *   release.h   releasing and freeing
 *
 * lock.c implements the public functions that acquire a lock. */
#ifndef HF_CLIENT_LOCK_H
#define HF_CLIENT_LOCK_H

#include "client/acquire.h"
#include "client/handle.h"
#include "client/release.h"
#include "client/validity.h"

#endif
