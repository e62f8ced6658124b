/* op.h - one lock command: its variables, its execution and its reply.
 *
 * The client's context creates an op with hf_mongo_op_init*(). A worker thread
 * executes it with hf_mongo_execute(), which fills a reply. The client's
 * context converts the reply with hf_mongo_reply_to_answer(). */
#ifndef HF_STRATEGY_MONGO_OP_H
#define HF_STRATEGY_MONGO_OP_H

#include "strategy/mongo/escape.h"
#include "strategy/mongo/identity.h"
#include "strategy/mongo/workers.h"

#define HF_MONGO_NONCE_SIZE ((size_t)2 * HF_NONCE_SIZE)
#define HF_MONGO_CAUSE_SIZE 600 /* longer than any message of libmongoc */

/* How long a waiter that is offered the key has to confirm the offer. */
#define HF_MONGO_OFFER_MS 3000

struct hf_mongo_op {
    enum hf_mongo_script script;
    bool upsert;    /* insert a document if there is none */
    bool fast_path; /* try lock_fast.json or unlock_fast.json first */
    bool may_queue; /* LOCK: join the queue if the key is held */
    bool waits;     /* LOCK: an earlier reply reported the claim as queued */
    char command[HF_MONGO_COMMAND_SIZE +
                 1]; /* its unique name; see identity.h */
    char *key;       /* escaped */
    bson_t variables;
};

struct hf_mongo_reply {
    /* After an error, no member below `time` is valid, except `exists` and
     * `contended`. */
    enum hf_err err;
    bool reached; /* a server was selected, even if the command failed */
    char cause[HF_MONGO_CAUSE_SIZE];
    uint64_t time; /* see hf_mongo_reply_time_of(); 0: unknown */

    /* The document after the command. */
    bool exists, held, forced;
    bool mine;      /* held by the nonce of the op */
    bool canceled;  /* the nonce is in the field `canceled` */
    bool fresh;     /* this copy of the command changed the document */
    bool contended; /* the fast path of LOCK failed */
    bool updated;   /* UPDATE: it was applied, and no later one of the client */
    bool superseded; /* UPDATE: a later update of the client was applied */
    uint64_t token;
    uint32_t renewals;
    int32_t position; /* in the queue, from 0; -1: not queued, or not read */
    bool has_left;    /* `left_ms` is known */
    uint32_t left_ms; /* what is left of the holder's lease */

    /* The grant that ended last. */
    uint64_t ended_token;
    enum hf_event_kind end_reason;
    bool ended_mine; /* a copy of this request ended that grant */
};

/* ---- op.c ---------------------------------------------------------------*/

/* Build the op of a command.
 *
 *   in_doubt   a copy of the nonce's LOCK may still reach a server
 *   waits      LOCK: the claim is in the queue already
 *
 * Can fail with HF_ENOMEM. */
enum hf_err hf_mongo_op_init(struct hf_mongo_op *op,
                             struct hf_mongo_identity *identity,
                             const struct hf_command *command, bool in_doubt,
                             bool waits);

/* Build an op that ends the lease of `key` if it is due. Can fail with
 * HF_ENOMEM. */
enum hf_err hf_mongo_op_init_expire(struct hf_mongo_op *op,
                                    struct hf_mongo_identity *identity,
                                    struct hf_key key);

/* Build an op for hf_mongo_execute_sweep(). Can fail with HF_ENOMEM. */
enum hf_err hf_mongo_op_init_sweep(struct hf_mongo_op *op,
                                   struct hf_mongo_identity *identity);

void hf_mongo_op_fini(struct hf_mongo_op *op);

/* Read the nonce of the op. Returns false if it has none. */
bool hf_mongo_op_nonce(const struct hf_mongo_op *op, struct hf_nonce *nonce);

/* ---- execute.c ----------------------------------------------------------*/

/* Execute the op on the primary. Blocks; for worker threads. */
void hf_mongo_execute(const struct hf_mongo_op *op, mongoc_client_t *client,
                      const struct hf_mongo_context *context,
                      struct hf_mongo_reply *reply);

enum hf_mongo_swept {
    HF_MONGO_SWEPT_ALL,
    HF_MONGO_SWEPT_PART,    /* `max_ms` was too short; some keys are left */
    HF_MONGO_SWEPT_NOTHING, /* the sweep failed */
};

/* End the leases of all abandoned keys, for up to `max_ms`, so that the server
 * can delete their documents. Blocks; any thread. */
enum hf_mongo_swept hf_mongo_execute_sweep(
    const struct hf_mongo_op *op, mongoc_client_t *client,
    const struct hf_mongo_context *context,
    const mongoc_server_description_t *server, int32_t max_ms);

/* ---- position.c ---------------------------------------------------------*/

/* After a LOCK that may queue: read the position of its claim, and what is left
 * of the holder's lease. Sets reply->err if that fails. Blocks; for worker
 * threads. */
void hf_mongo_position_read(const struct hf_mongo_op *op,
                            mongoc_client_t *client,
                            const struct hf_mongo_context *context,
                            const mongoc_server_description_t *server,
                            struct hf_mongo_reply *reply);

/* Read the position of a waiter, which is cheaper than repeating its LOCK.
 * Returns false, with `reply` unchanged, if the LOCK has to be executed.
 * Blocks; for worker threads. */
bool hf_mongo_position_still_waits(const struct hf_mongo_op *op,
                                   mongoc_client_t *client,
                                   const struct hf_mongo_context *context,
                                   const mongoc_server_description_t *server,
                                   struct hf_mongo_reply *reply);

/* ---- reply.c ------------------------------------------------------------*/

/* Decode the reply to a findAndModify. */
void hf_mongo_reply_read(const bson_t *bson, const struct hf_mongo_op *op,
                         struct hf_mongo_reply *reply);

/* Decode the reply to the update of unlock_fast.json. Returns false if the
 * update changed nothing. */
bool hf_mongo_reply_read_unlock_fast(const bson_t *bson,
                                     const struct hf_mongo_op *op,
                                     struct hf_mongo_reply *reply);

/* Returns true if an update matched or inserted one document. Check this after
 * every update, because libmongoc reports success even if the update itself
 * failed. */
bool hf_mongo_reply_matched_one(const bson_t *reply);

/* Convert the reply into the answer to `command`. `sent` is when the command
 * was sent. */
void hf_mongo_reply_to_answer(const struct hf_command *command,
                              const struct hf_mongo_reply *reply, hf_time sent,
                              struct hf_answer *answer);

/* Pack a cluster time into one number whose low byte is 0. The events of a
 * change at `time` have the indexes `time`, `time` + 1, ...;
 * HF_MONGO_INDEX(time) is the largest. */
#define HF_MONGO_EVENTS_MAX 256
#define HF_MONGO_INDEX(time) ((time) | (HF_MONGO_EVENTS_MAX - 1))
uint64_t hf_mongo_reply_time_of(uint32_t seconds, uint32_t increment);

/* The `operationTime` of a reply, packed by hf_mongo_reply_time_of(); 0 if it
 * has none. */
uint64_t hf_mongo_reply_time(const bson_t *reply);

/* Decode a token. Returns 0 if it is not a positive long. */
uint64_t hf_mongo_reply_token(const bson_iter_t *iter);

/* ---- fault.c ------------------------------------------------------------*/

/* Record why a command failed. `err` becomes HF_EUNAVAIL if nothing was done,
 * HF_EINDOUBT if it is unknown whether anything was done, or a code that names
 * the cause. */
void hf_mongo_fault_set(struct hf_mongo_reply *reply,
                        const bson_error_t *fault);

/* Returns true if the server refused a command because another command inserted
 * or wrote the same document. Then nothing was done, and a retry may
 * succeed. */
bool hf_mongo_fault_is_conflict(const bson_error_t *fault);

/* ---- server.c -----------------------------------------------------------*/

#define HF_MONGO_CLOCK_SIZE 25 /* the id of a server process, and a NUL */

/* Select the primary or the standalone server, and return a description of the
 * connection to it, which the caller destroys. Returns NULL, with error and
 * cause in `reply`, if there is no primary, if it cannot be reached, if it does
 * not identify its process, or if hf_mongo_worker_may_send() returns false.
 * Blocks. */
mongoc_server_description_t *hf_mongo_server_select(
    mongoc_client_t *client, struct hf_mongo_reply *reply);

/* Execute a write that a majority has to confirm. Returns false, with the cause
 * in `fault`, if that failed. The caller destroys `reply` in any case.
 * Blocks. */
bool hf_mongo_server_write(const bson_t *command, mongoc_client_t *client,
                           const struct hf_mongo_context *context,
                           const mongoc_server_description_t *server,
                           bson_t *reply, bson_error_t *fault);

/* Prove that `server` is the primary during this call. A server that is cut off
 * from the others may still believe that it is the primary, and return stale
 * data. `client_id` is the id of this client. Returns false, with the error in
 * `reply`, if there is no proof. Blocks. */
bool hf_mongo_server_prove_primary(const char *client_id,
                                   mongoc_client_t *client,
                                   const struct hf_mongo_context *context,
                                   const mongoc_server_description_t *server,
                                   struct hf_mongo_reply *reply);

/* Add the variables that every pipeline uses: $$server and $$now. */
void hf_mongo_server_add_variables(bson_t *variables,
                                   const mongoc_server_description_t *server);

#endif
