/* op.h - lock commands as one step each, and replies as answers.
 *
 * Asked in the client's context, run in a worker thread, concluded in the
 * client's context again. */
#ifndef HF_STRATEGY_MONGO_OP_H
#define HF_STRATEGY_MONGO_OP_H

#include "strategy/mongo/escape.h"
#include "strategy/mongo/workers.h"

#define HF_MONGO_CLIENT_SIZE 16 /* hex digits of a client's name for itself */
#define HF_MONGO_COMMAND_SIZE (HF_MONGO_CLIENT_SIZE + 1 + 16)
#define HF_MONGO_NONCE_SIZE ((size_t)2 * HF_NONCE_SIZE)
#define HF_MONGO_CAUSE_SIZE 600 /* more than libmongoc has to say */

/* A waiter that is offered the key has this long to take it up. */
#define HF_MONGO_OFFER_MS 3000

/* Who asks. */
struct hf_mongo_identity {
    char client[HF_MONGO_CLIENT_SIZE + 1];
    char *owner; /* as text */
    uint64_t commands;
    unsigned contended; /* LOCKs that need not try the short way */
};

/* HF_ENOMEM; HF_ESYSTEM: there is no randomness to make a name of. */
enum hf_err hf_mongo_identity_init(struct hf_mongo_identity *identity,
                                   struct hf_host *host);
void hf_mongo_identity_fini(struct hf_mongo_identity *identity);

/* A command, with all it is made of. */
struct hf_mongo_op {
    enum hf_mongo_script script;
    bool upsert; /* where there is no document, make one */
    bool
        fast_path; /* try the short way first: lock_fast.json, unlock_fast.json */
    bool may_queue; /* LOCK: wants to wait */
    bool waits;     /* LOCK: is in the queue, as far as is known */
    char command[HF_MONGO_COMMAND_SIZE + 1];
    char *key; /* as text */
    bson_t variables;
};

/* What came of it. */
struct hf_mongo_reply {
    enum hf_err err; /* the rest is there if it is HF_OK */
    bool reached;    /* a server was found, whatever came of it */
    char cause[HF_MONGO_CAUSE_SIZE];
    uint64_t
        time; /* of the server, as hf_mongo_reply_time_of() has it; 0: unknown */

    /* The document that is left. */
    bool exists, held, mine, forced, canceled, fresh;
    bool contended;  /* something was in the way of the short way */
    bool updated;    /* by this very update */
    bool superseded; /* by a later one of the same client */
    uint64_t token;
    uint32_t renewals;
    int32_t position; /* in the queue, from 0; -1: not, or nobody asked */
    bool has_left;    /* what is left of the lease is known */
    uint32_t left_ms;
    uint64_t ended_token;
    enum hf_event_kind end_reason;
    bool ended_mine; /* by this very call, be it by an earlier copy */
};

/* `in_doubt`: a copy of the nonce's LOCK may still be on its way. `waits`: the
 * LOCK is in the queue already. HF_ENOMEM. */
enum hf_err hf_mongo_op_init(struct hf_mongo_op *op,
                             struct hf_mongo_identity *identity,
                             const struct hf_command *command, bool in_doubt,
                             bool waits);

/* The same of nothing but a look whether something is due: at a key, or at all
 * that were abandoned. */
enum hf_err hf_mongo_op_init_expire(struct hf_mongo_op *op,
                                    struct hf_mongo_identity *identity,
                                    struct hf_key key);
enum hf_err hf_mongo_op_init_sweep(struct hf_mongo_op *op,
                                   struct hf_mongo_identity *identity);

/* What the reply tells of how to ask the next time. */
void hf_mongo_identity_learn(struct hf_mongo_identity *identity,
                             const struct hf_mongo_reply *reply);

/* The nonce it is about; false: none. */
bool hf_mongo_op_nonce(const struct hf_mongo_op *op, struct hf_nonce *nonce);
void hf_mongo_op_fini(struct hf_mongo_op *op);

/* position.c, in a worker thread: after a LOCK that wants to wait, read where
 * it stands in the queue and what is left of the lease. */
void hf_mongo_position_read(const struct hf_mongo_op *op,
                            mongoc_client_t *client,
                            const struct hf_mongo_context *context,
                            const mongoc_server_description_t *server,
                            struct hf_mongo_reply *reply);

/* The same instead of a LOCK that is repeated while it waits. False: the LOCK has
 * to be executed; `reply` is untouched. */
bool hf_mongo_position_still_waits(const struct hf_mongo_op *op,
                                   mongoc_client_t *client,
                                   const struct hf_mongo_context *context,
                                   const mongoc_server_description_t *server,
                                   struct hf_mongo_reply *reply);

/* In a worker thread. */
void hf_mongo_execute(const struct hf_mongo_op *op, mongoc_client_t *client,
                      const struct hf_mongo_context *context,
                      struct hf_mongo_reply *reply);

enum hf_mongo_swept {
    HF_MONGO_SWEPT_ALL,
    HF_MONGO_SWEPT_PART, /* `max_ms` was not enough for all of them */
    HF_MONGO_SWEPT_NOTHING,
};

/* End the leases of all keys that were abandoned, for up to `max_ms`, so that the
 * server can delete them. In any thread. */
enum hf_mongo_swept hf_mongo_execute_sweep(
    const struct hf_mongo_op *op, mongoc_client_t *client,
    const struct hf_mongo_context *context,
    const mongoc_server_description_t *server, int32_t max_ms);

/* What that means to who asked, of a command that was sent at `sent`. */
void hf_mongo_reply_to_answer(const struct hf_command *command,
                              const struct hf_mongo_reply *reply, hf_time sent,
                              struct hf_answer *answer);

/* ---- What else speaks to the server --------------------------------------*/

#define HF_MONGO_CLOCK_SIZE 25 /* of a clock's name, with its NUL */

/* The server to write to, as the connection to it describes it; NULL, with a
 * fault, if there is none. */
mongoc_server_description_t *hf_mongo_server_select(
    mongoc_client_t *client, struct hf_mongo_reply *reply);

/* Have it run a command that a majority is to confirm. The reply is the caller's
 * to destroy, also where this is false. */
bool hf_mongo_server_write(const bson_t *command, mongoc_client_t *client,
                           const struct hf_mongo_context *context,
                           const mongoc_server_description_t *server,
                           bson_t *reply, bson_error_t *why);

/* Have it shown that it was the primary while this ran: a server that was cut
 * off may believe that it still is, and know nothing new. `client_id` is the
 * client's name. False: it is not known, with a fault. */
bool hf_mongo_server_prove_primary(const char *client_id,
                                   mongoc_client_t *client,
                                   const struct hf_mongo_context *context,
                                   const mongoc_server_description_t *server,
                                   struct hf_mongo_reply *reply);

/* handshake.c: see that the index is there by which the server deletes documents
 * whose date in `delete_at` has passed. It goes with a collection that is dropped. */
bool hf_mongo_handshake_create_index(mongoc_client_t *client,
                                     const struct hf_mongo_context *context,
                                     bson_error_t *why);

/* Variables that every pipeline has, among them the name of the clock of
 * `server`. */
void hf_mongo_server_add_variables(bson_t *variables,
                                   const mongoc_server_description_t *server);

/* Note why it failed: HF_EUNAVAIL if it was surely not done, HF_EINDOUBT if
 * that is not known, or what else it means. */
void hf_mongo_fault_set(struct hf_mongo_reply *reply, const bson_error_t *why);

/* Two who insert the same document: the server tells one of them to ask again,
 * and has surely done nothing for it. */
bool hf_mongo_fault_is_conflict(const bson_error_t *why);

/* Read what a server answered to `op`. */
void hf_mongo_reply_read(const bson_t *bson, const struct hf_mongo_op *op,
                         struct hf_mongo_reply *reply);

/* The same of the short way of UNLOCK. False: nothing was given back. */
bool hf_mongo_reply_read_unlock_fast(const bson_t *bson,
                                     const struct hf_mongo_op *op,
                                     struct hf_mongo_reply *reply);

/* Whether an update found one document: libmongoc takes a command that was heard
 * for one that was done. */
bool hf_mongo_reply_matched_one(const bson_t *reply);

/* An instant of the cluster as one number, with room for 256 events in it; and
 * the `operationTime` of a reply. */
#define HF_MONGO_EVENTS_MAX 256
#define HF_MONGO_INDEX(time) ((time) | (HF_MONGO_EVENTS_MAX - 1))
uint64_t hf_mongo_reply_time_of(uint32_t seconds, uint32_t increment);
uint64_t hf_mongo_reply_time(const bson_t *reply);

/* A token as it stands in a document; 0: that is none. */
uint64_t hf_mongo_reply_token(const bson_iter_t *at);

#endif
