/* limits.h - the limits of everything that grows.
 *
 * Limits that are part of the API are in holdfast.h: HF_KEY_MAX, HF_VALUE_MAX,
 * HF_NOTE_MAX. */
#ifndef HF_BASE_LIMITS_H
#define HF_BASE_LIMITS_H

/* Whether every number up to `limit` fits into the unsigned type `type`. Use it
 * in a _Static_assert where a number is stored in a narrower type, so that
 * raising the limit too far does not compile. */
#define HF_FITS(limit, type) ((limit) <= (type)-1)

#define HF_TTL_MIN_MS 1
#define HF_TTL_MAX_MS (7 * 24 * 3600 * 1000) /* a week */
#define HF_LEASE_MAX_MS (HF_TTL_MAX_MS + HF_TTL_MAX_MS / 16 + 50)

#define HF_WAITERS_MAX 65536   /* waiters in the queue of one key */
#define HF_HOLDS_MAX 16777216  /* keys held in one table */
#define HF_SESSIONS_MAX 131072 /* sessions of one table */
#define HF_WINDOW_MAX 1024     /* unsettled commands of one session */

#define HF_URL_MAX 4096      /* bytes of a URL */
#define HF_URL_PARAMS_MAX 32 /* options in a URL */

#define HF_HISTORY_BYTES 262144 /* events kept by memory: and file:, in bytes */
#define HF_HISTORY_MIN 4096     /* bytes: more than the largest event */
#define HF_HISTORY_MAX (1 << 30) /* bytes of the largest history */
#define HF_WATCH_QUEUE_MAX 1024  /* events queued for the callback of a watch */
#define HF_LIST_MAX 1048576      /* keys in the result of one hf_list() */
#define HF_LIST_TIMEOUT_MS 60000 /* limit for a list that makes progress */
#define HF_MEMORY_MAX 4096       /* stores of memory: in one process */
#define HF_HANDLES_MAX 4194304   /* open handles and calls of one client */

#define HF_REDIS_ELEMENTS_MAX 65536 /* elements of a Redis reply's array */

#endif
