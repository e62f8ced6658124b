/* script.h - the pipelines: the .json files of this folder, which
 * scripts/embed-json compiles in.
 *
 * Each command is the pipeline of a findAndModify or an update. Its variables,
 * such as $$nonce, are passed with the command (op.c). */
#ifndef HF_STRATEGY_MONGO_SCRIPT_H
#define HF_STRATEGY_MONGO_SCRIPT_H

/* Version of the document layout (format.json). Increment it with each change
 * that an older program would misunderstand. */
#define HF_MONGO_FORMAT 2

enum hf_mongo_script {
    HF_MONGO_LOCK,
    HF_MONGO_UNLOCK,
    HF_MONGO_RENEW,
    HF_MONGO_UPDATE,
    HF_MONGO_CANCEL,
    HF_MONGO_FORCE,
    HF_MONGO_EXPIRE,
    HF_MONGO_LOCK_FAST,      /* LOCK of a free key without waiters */
    HF_MONGO_UNLOCK_FAST,    /* UNLOCK of a key without waiters */
    HF_MONGO_REPLY_FIELDS,   /* fields that findAndModify returns */
    HF_MONGO_INFO,           /* pipeline of READ and LIST */
    HF_MONGO_POSITION,       /* projection: a claim's position */
    HF_MONGO_TIME_VARIABLES, /* variables for each kind of server */
    HF_MONGO_SCRIPTS
};

extern const char *const hf_mongo_scripts[HF_MONGO_SCRIPTS];

#endif
