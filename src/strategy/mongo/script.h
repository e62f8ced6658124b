/* script.h - what is done on the server: the .json files beside this one, as
 * scripts/embed-json puts them into the program.
 *
 * Each command is the pipeline of one findAndModify, or of an update. Their
 * variables, such as $$nonce, are given with the command (op.c). */
#ifndef HF_STRATEGY_MONGO_SCRIPT_H
#define HF_STRATEGY_MONGO_SCRIPT_H

/* Of documents (format.json). A change that an older program would misunderstand
 * raises it. */
#define HF_MONGO_FORMAT 2

enum hf_mongo_script {
    HF_MONGO_LOCK,
    HF_MONGO_UNLOCK,
    HF_MONGO_RENEW,
    HF_MONGO_UPDATE,
    HF_MONGO_CANCEL,
    HF_MONGO_FORCE,
    HF_MONGO_EXPIRE,
    HF_MONGO_LOCK_FAST, /* LOCK and UNLOCK where nobody else is in the way */
    HF_MONGO_UNLOCK_FAST,
    HF_MONGO_REPLY_FIELDS,   /* the fields that come back */
    HF_MONGO_INFO,           /* to read and to list */
    HF_MONGO_POSITION,       /* the fields that a waiter reads */
    HF_MONGO_TIME_VARIABLES, /* variables, for each kind of server */
    HF_MONGO_SCRIPTS
};

extern const char *const hf_mongo_scripts[HF_MONGO_SCRIPTS];

#endif
