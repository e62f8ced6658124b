/* script.h - the Lua scripts that the server executes, each atomically.
 *
 * scripts/embed-lua compiles the .lua files of this folder into the library.
 * The keys that a script accesses are its KEYS, except the heartbeats of
 * clients, whose names the scripts compose (queue.lua). */
#ifndef HF_STRATEGY_REDIS_SCRIPT_H
#define HF_STRATEGY_REDIS_SCRIPT_H

enum hf_redis_script {
    HF_REDIS_BATCH,
    HF_REDIS_CANCEL,
    HF_REDIS_FORCE,
    HF_REDIS_HEARTBEAT,
    HF_REDIS_LOCK,
    HF_REDIS_LOCK_FAST,
    HF_REDIS_RAISE_TOKENS,
    HF_REDIS_READ,
    HF_REDIS_RENEW,
    HF_REDIS_SCAN,
    HF_REDIS_UNLOCK,
    HF_REDIS_UPDATE,
    HF_REDIS_WATCH,
    HF_REDIS_SCRIPTS
};

extern const char *const hf_redis_scripts[HF_REDIS_SCRIPTS];

/* The SHA1 of each script in hex, which names it in EVALSHA. */
extern const char *const hf_redis_digests[HF_REDIS_SCRIPTS];

#endif
