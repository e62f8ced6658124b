/* script.h - what is done on the server, each in one step: the .lua files
 * beside this one, as scripts/embed-lua puts them into the program.
 *
 * Each declares the keys that are one lock's own. What all share has a fixed
 * name, and is not said with each call. */
#ifndef HF_STRATEGY_REDIS_SCRIPT_H
#define HF_STRATEGY_REDIS_SCRIPT_H

enum hf_redis_script {
    HF_REDIS_HEARTBEAT,
    HF_REDIS_CANCEL,
    HF_REDIS_FORCE,
    HF_REDIS_LOCK,
    HF_REDIS_RAISE_TOKENS,
    HF_REDIS_READ,
    HF_REDIS_RENEW,
    HF_REDIS_SCAN,
    HF_REDIS_BATCH,
    HF_REDIS_LOCK_FAST,
    HF_REDIS_UNLOCK,
    HF_REDIS_UPDATE,
    HF_REDIS_WATCH,
    HF_REDIS_SCRIPTS
};

extern const char *const hf_redis_scripts[HF_REDIS_SCRIPTS];

/* The SHA1 of each, in hex, by which the server knows it. */
extern const char *const hf_redis_digests[HF_REDIS_SCRIPTS];

#endif
