/* limits.h - the limits of everything that grows, and the timeouts of the
 * daemon.
 *
 * Limits that are part of the API are in holdfast.h: HF_KEY_MAX, HF_VALUE_MAX,
 * HF_NOTE_MAX. */
#ifndef HF_BASE_LIMITS_H
#define HF_BASE_LIMITS_H

#include <stdint.h>

/* True if every number up to `limit` fits into the unsigned type `type`. Use it
 * in a _Static_assert where a number is stored in a narrower type, so that
 * raising the limit too far does not compile. */
#define HF_FITS(limit, type) ((limit) <= (type)-1)

#define HF_TTL_MIN_MS 1
#define HF_TTL_MAX_MS (7 * 24 * 3600 * 1000) /* a week */
#define HF_LEASE_MAX_MS (HF_TTL_MAX_MS + HF_TTL_MAX_MS / 16 + 50)

#define HF_WAITERS_MAX 65536         /* waiters in the queue of one key */
#define HF_SESSION_WAITERS_MAX 65536 /* waiters of one session */
#define HF_HOLDS_MAX 16777216        /* keys held in one table */
#define HF_SESSIONS_MAX 131072       /* sessions of one table */
#define HF_WINDOW_MAX 1024 /* commands of one session without an answer */

#define HF_URL_MAX 4096      /* bytes of a URL */
#define HF_URL_PARAMS_MAX 32 /* options in a URL */

#define HF_HISTORY_BYTES 262144 /* events kept by memory: and file:, in bytes */
#define HF_HISTORY_MIN 4096 /* bytes of the smallest history; any event fits */
#define HF_HISTORY_MAX (1 << 30) /* bytes of the largest history */
#define HF_WATCH_QUEUE_MAX 1024  /* events queued for the callback of a watch */
#define HF_LIST_MAX 1048576      /* keys in the result of one hf_list() */
#define HF_LIST_TIMEOUT_MS 60000 /* deadline of a list that makes progress */
#define HF_MEMORY_MAX 4096       /* stores of memory: in one process */
#define HF_HANDLES_MAX 4194304   /* handles of one client; each has 4 timers */

#define HF_WAL_SEGMENT_SIZE 8388608 /* default size of a segment in bytes */
#define HF_WAL_SEGMENT_SIZE_MIN 4096
#define HF_WAL_SEGMENT_SIZE_MAX 1073741824
#define HF_WAL_SEGMENTS_MAX 1024     /* segments of one log, by default */
#define HF_WAL_SPARES_MAX 4          /* unused files kept to become segments */
#define HF_WAL_PENDING_MAX 134217728 /* bytes that wait for a flush */
#define HF_WAL_BATCH_KEPT 1048576    /* bytes; larger buffers are not reused */
#define HF_WAL_RESERVE_MIN 65536     /* bytes reserved for a snapshot */
#define HF_SNAPSHOT_CONFIG_MAX 65536 /* bytes of a cluster configuration */
#define HF_SNAPSHOTS_MAX 64          /* snapshot files in a directory */

#define HF_DAEMON_MMAP_BYTES 4194304 /* larger blocks get pages of their own */
#define HF_DAEMON_CHECK_MS 2         /* how often running flushes are checked */
#define HF_DAEMON_LARGE_FLUSH 16384  /* bytes; such a flush runs in a worker, */
#define HF_DAEMON_SLOW_FLUSH_NS 1000000 /* and so does one after a slow one */

/* Unsent bytes of a connection of the daemon; it is closed beyond this. The
 * node limits its output itself: to HF_CLIENT_OUTPUT_MAX for a client, and to
 * HF_NODE_OUT_MAX in one turn for a peer. */
#define HF_DAEMON_CLIENT_UNSENT_MAX 8388608
#define HF_DAEMON_PEER_UNSENT_MAX 33554432

#define HF_REDIS_ELEMENTS_MAX 65536 /* elements of a Redis reply's array */
#define HF_REDIS_REPLY_MAX 67108864 /* bytes of a whole Redis reply */

#define HF_RAFT_VOTERS_MAX 9         /* voters of a cluster */
#define HF_RAFT_ENTRY_MAX 1048576    /* bytes of one log entry */
#define HF_RAFT_LOG_BYTES 268435456  /* log entries in memory, in bytes */
#define HF_RAFT_APPEND_BYTES 1048576 /* entries of one message, in bytes */
#define HF_RAFT_APPEND_ENTRIES 4096  /* entries of one message */
#define HF_RAFT_UNANSWERED_BYTES                                               \
    16777216 /* entries sent to a node since its last answer, in bytes */
#define HF_RAFT_WRITES_MAX 65536 /* writes that are not durable yet */
#define HF_RAFT_ROUNDS_MAX 65536 /* reads that wait for a round of ReadIndex */
#define HF_NET_ADDRESSES_MAX 32  /* nodes that a URL lists */

#define HF_NODE_ELECTION_MS 500
#define HF_NODE_HEARTBEAT_MS 100
#define HF_NODE_HISTORY_BYTES 16777216  /* events kept for watches */
#define HF_NODE_TABLE_BYTES 1073741824  /* memory of the table, roughly */
#define HF_NODE_TABLE_SPARE 16          /* this part more, for sessions only */
#define HF_NODE_SNAPSHOT_BYTES 16777216 /* bytes of log between two snapshots */
#define HF_NODE_TRAILING 8192           /* log entries kept before a snapshot */
#define HF_NODE_FRAME_MAX 8388608       /* bytes of one frame between nodes */
#define HF_NODE_HELLO_MAX 4096          /* bytes of the first frame, a HELLO */
#define HF_NODE_FRAME_GOAL 1048576      /* a frame of this size is complete */
#define HF_NODE_HELLO_MS 3000           /* time until the HELLO has arrived */
#define HF_NODE_SILENT_MS 10000       /* until a leader closes a silent link */
#define HF_NODE_LINKS_MAX 64          /* incoming connections of nodes */
#define HF_NODE_REQUESTS_MAX 1048576  /* unanswered requests of a node */
#define HF_NODE_PROPOSALS_MAX 1048576 /* unanswered commands at a leader */
#define HF_NODE_PROPOSALS_BYTES 268435456 /* memory of these commands */
#define HF_NODE_PROPOSALS_LOCK_BYTES                                           \
    234881024 /* the same limit when a command needs space in the table */
#define HF_NODE_SUBMIT_MAX 8192      /* commands submitted in one turn */
#define HF_NODE_SUBMIT_BYTES 4194304 /* bytes submitted in one turn, roughly */
#define HF_NODE_PENDING_MAX 67108864 /* bytes of entries not yet durable */
#define HF_NODE_APPLY_MAX 1024       /* entries applied in one turn */
#define HF_NODE_EXPIRE_MAX 256       /* EXPIREs proposed in one turn */
#define HF_NODE_INFLIGHT_MAX 8192    /* entries on the way to one node */
#define HF_NODE_DETACHED_MS 10000 /* life of a session without a connection */
#define HF_NODE_SESSIONS_MAX                                                   \
    262144 /* sessions that a leader watches: those of the table, and those that
              other nodes have reported before it has applied their OPEN */
#define HF_NODE_REPEAT_MS 1000 /* resend a message unanswered for this long */
#define HF_NODE_COMMIT_DELAY_MS 2    /* until a commit is sent without append */
#define HF_NODE_DISK_RETRY_MS 100    /* until a retry, such as on a full disk */
#define HF_NODE_SNAPSHOT_PART 262144 /* bytes of a snapshot in a message */
#define HF_NODE_OUT_MAX 16777216     /* bytes queued for sending to one node */

#define HF_QUORUM_MASTERS_MAX 9 /* masters of a quorum */
#define HF_QUORUM_GRACE_MS 1000 /* a waiter without a connection is kept */
#define HF_QUORUM_LOW_MS 250    /* a key is kept for a waiter that asks again */
#define HF_QUORUM_IDLE_MS 5000  /* a record without a use is kept */
#define HF_QUORUM_BYTES 1073741824 /* memory of a master, roughly */
#define HF_QUORUM_LEASE_MS 60000   /* the longest lease, by default */
#define HF_QUORUM_MARK_STEP (UINT64_C(1) << 32) /* numbers reserved at a time */
#define HF_QUORUM_MARK_RETRY_MS 100      /* pause after a write has failed, */
#define HF_QUORUM_MARK_RETRY_MAX_MS 5000 /* which doubles up to this */
#define HF_QUORUM_JUMP_MAX (UINT64_C(1) << 48) /* a higher number is absurd */
#define HF_QUORUM_NUMBER_MAX (UINT64_MAX - HF_QUORUM_JUMP_MAX) /* no overflow */

#define HF_RESP_LINE_MAX 4096     /* bytes of a line of the client protocol */
#define HF_RESP_ELEMENTS_MAX 1024 /* values in one client protocol message */
#define HF_RESP_FRAME_MAX 196608  /* bytes of one client protocol message */
#define HF_LABEL_MAX HF_NOTE_MAX  /* bytes of the label of a session */

#define HF_CLIENTS_MAX 16384 /* client connections of one node */

/* Beyond this many of at most `max` connections, a leader sends clients
 * away. */
#define HF_CLIENTS_FULL(max) ((max) - (max) / 16)

/* Limits of one client connection. It is closed if it exceeds OUTPUT_MAX,
 * SLOW_MS or IDLE_MS; IDLE_MS does not apply while the node has paused reading,
 * or while a plain client waits or watches. Beyond ROOM, events and LISTs wait
 * until the client reads, and so do the requests of a plain client; those of a
 * MUX client wait beyond REPLY_ROOM. */
#define HF_CLIENT_REQUESTS_MAX 1024  /* unanswered requests */
#define HF_CLIENT_WATCHES_MAX 1024   /* open watches */
#define HF_CLIENT_LISTS_MAX 16       /* running LISTs */
#define HF_CLIENT_OUTPUT_MAX 1048576 /* unsent bytes */
#define HF_CLIENT_ROOM 262144        /* unsent bytes before events and LISTs */
#define HF_CLIENT_REPLY_ROOM 524288  /* unsent bytes before MUX requests */
#define HF_CLIENT_TURN_MAX 1024      /* requests executed in one turn */
#define HF_CLIENT_SLOW_MS 10000      /* time in which it reads nothing */
#define HF_CLIENT_IDLE_MS 30000      /* time in which it sends nothing */
#define HF_CLIENT_SWEEP_MS 1000      /* interval of checks for these two */
#define HF_CLIENT_TIMEOUT_MS 10000   /* timeout if a request has no deadline */

/* Limits of all client connections of a node together. Beyond WATCHES_BYTES and
 * UNANSWERED_MAX, a connection may have HF_CLIENT_SCARCE bytes: clients that
 * need little are served beside others that need too much. */
#define HF_CLIENT_SCARCE 4096
#define HF_INPUT_MAX 67108864      /* bytes of requests not yet executed */
#define HF_WATCHES_BYTES 67108864  /* bytes of watches */
#define HF_UNSENT_MAX 268435456    /* unsent bytes; beyond this, clients get */
#define HF_UNSENT_SCARCE 64        /* ROOM and REPLY_ROOM divided by this */
#define HF_UNANSWERED_MAX 67108864 /* bytes of unanswered requests */
#define HF_UNANSWERED_LOCK_MAX 58720256 /* the same limit when a LOCK arrives */

/* Running LISTs of all client connections. Beyond this, a connection may have
 * only one: whenever a key is released, the table examines every LIST. */
#define HF_LISTS_MAX 256
#define HF_LIST_PAGE_BYTES 65536 /* bytes of infos in one page of a list */
#define HF_LIST_PAGE_KEYS 500    /* keys in one page of a list */

/* Work on requests, which limits how long a turn of the node takes. A unit is a
 * request, or 64 bytes of requests or replies; OP_WORK is what a request takes
 * in addition that waits for other nodes. REQUEST_WORK is the limit for the
 * input between two turns, and again for the input that was kept. Then the
 * connections with more requests take turns, up to REQUEST_PART units each. */
#define HF_CLIENTS_REQUEST_WORK 65536 /* of all connections */
#define HF_CLIENT_REQUEST_PART 256    /* of one connection at a time */
#define HF_CLIENT_OP_WORK 8

/* Work on LISTs and events. A unit is a key or an event that is examined, or 64
 * bytes of output. One connection after the other does up to HF_CLIENT_WORK
 * units. */
#define HF_CLIENT_WORK 2048     /* of one connection at a time */
#define HF_CLIENTS_WORK 16384   /* of all connections in one turn of the node */
#define HF_CLIENT_WORK_PART 256 /* of one list or watch at a time */

#endif
