/* lock.h - a lock, for the rest of the client: its handle and all that is done
 * with it.
 *
 *   handle.h    the struct: states, references, events
 *   claim.h     from asking for it to held, or refused
 *   hold.h      while it is held: until when, by the clock
 *   release.h   giving it back
 *
 * What the user calls is in holdfast.h; lock.c has the calls that take. */
#ifndef HF_CLIENT_LOCK_H
#define HF_CLIENT_LOCK_H

#include "client/claim.h"
#include "client/handle.h"
#include "client/hold.h"
#include "client/release.h"

#endif
