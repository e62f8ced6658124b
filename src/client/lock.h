/* lock.h - a lock, for the rest of the client: its handle and all that is done
 * with it.
 *
 *   handle.h    the struct: states, references, events
 *   acquire.h     from asking for it to held, or refused
 *   validity.h      while it is held: until when, by the clock
 *   release.h   giving it back
 *
 * What the user calls is in holdfast.h; lock.c has the calls that take. */
#ifndef HF_CLIENT_LOCK_H
#define HF_CLIENT_LOCK_H

#include "client/acquire.h"
#include "client/handle.h"
#include "client/release.h"
#include "client/validity.h"

#endif
