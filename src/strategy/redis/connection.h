/* connection.h - one connection to a Redis server, in the client's loop.
 *
 *              connect          writable           greeted
 *     DOWN --------> CONNECTING --------> GREETING --------> UP
 *      ^                 |                   |               |
 *      +--- refused -----+---- refused ------+---- lost -----+
 *
 * From DOWN it connects again by itself, after a while that doubles and is
 * partly left to chance. Nothing is kept over a lost connection: each command
 * whose reply is awaited hears that there will be none.
 *
 * hiredis connects, writes, reads and parses; who awaits which reply is kept
 * here, because hiredis' own asynchronous layer stops the program at a reply
 * that it did not expect, and allocates for each command. */
#ifndef HF_STRATEGY_REDIS_CONNECTION_H
#define HF_STRATEGY_REDIS_CONNECTION_H

#include <hiredis/hiredis.h>

#include "strategy/redis/address.h"
#include "strategy/redis/resp.h"
#include "strategy/redis/script.h"
#include "strategy/redis/server_info.h"
#include "strategy/strategy.h"

#define HF_REDIS_SHA_SIZE 40
#define HF_REDIS_STEPS_MAX (HF_REDIS_SCRIPTS + 14)

struct hf_redis_connection;

/* A command that was sent, embedded in what is waiting for its reply. */
struct hf_redis_call {
    struct hf_dlist link;

    /* Called once. NULL: it was sent, and the connection was lost. It may
     * free the call. */
    void (*reply)(struct hf_redis_call *call, const redisReply *reply);
};

enum hf_redis_state {
    HF_REDIS_DOWN,
    HF_REDIS_CONNECTING,
    HF_REDIS_HANDSHAKE,
    HF_REDIS_UP,
};

/* Whom a connection tells. None may be called inside hf_redis_connection_send(). */
struct hf_redis_connection_ops {
    void (*up)(struct hf_redis_connection *connection);
    void (*down)(
        struct hf_redis_connection *connection); /* `failure` says why */

    /* What nobody awaits: a message on a channel. May be NULL. */
    void (*message)(struct hf_redis_connection *connection,
                    const redisReply *reply);
};

struct hf_redis_handshake_step {
    struct hf_redis_call call;
    struct hf_redis_connection *connection;
    enum hf_err (*check)(struct hf_redis_connection *connection,
                         const redisReply *reply);
    unsigned script;
};

struct hf_redis_connection {
    struct hf_host *host;
    const struct hf_redis_address *address;
    const struct hf_redis_connection_ops *ops;
    const char *channel; /* NULL: it runs scripts. Else it hears messages */

    enum hf_redis_state state;
    redisContext *context;
    struct hf_fd fd;
    struct hf_timer timer; /* DOWN: connects again. Else: looks for silence */
    struct hf_post flush;
    struct hf_post more; /* to be read in the next turn */
    struct hf_buf out;   /* to be written, from `written` on */
    size_t written;
    bool write_blocked;    /* the socket is full */
    struct hf_dlist calls; /* whose replies are awaited, in order */
    hf_time last_read_at;  /* when the last bytes came */
    unsigned failures;     /* since it was last up */
    struct hf_error failure;

    /* What the greeting tells of the server. */
    struct hf_redis_handshake_step steps[HF_REDIS_STEPS_MAX];
    unsigned steps_sent, steps_done;
    char shas[HF_REDIS_SCRIPTS][HF_REDIS_SHA_SIZE + 1];
    struct hf_redis_server_info server_info;
    hf_time info_read_at;  /* when those were last read */
    long long id;          /* of this connection */
    long long previous_id; /* of the last that was up, if it may not be ended */
};

/* Begin to connect, for scripts, or (with a channel) for messages. `connection` is
 * zeroed. HF_ENOMEM. */
enum hf_err hf_redis_connection_open(struct hf_redis_connection *connection,
                                     struct hf_host *host,
                                     const struct hf_redis_address *address,
                                     const struct hf_redis_connection_ops *ops,
                                     const char *channel);

/* Write what can be written, and let go; calls hear that they are lost. */
void hf_redis_connection_close(struct hf_redis_connection *connection);

/* Whether it was opened. */
static inline bool hf_redis_connection_is_open(
    const struct hf_redis_connection *connection)
{
    return connection->host != NULL;
}

/* Whether it is up, and has not answered what was sent for `ms`. */
bool hf_redis_connection_is_silent(const struct hf_redis_connection *connection,
                                   uint32_t ms);

/* For await.c: connect again, now; handle what poll() reports. */
void hf_redis_connection_connect(struct hf_redis_connection *connection);
void hf_redis_connection_on_ready(struct hf_redis_connection *connection,
                                  uint32_t events);

/* Send a command when this turn ends. False: it is not up, or out of memory;
 * then nothing is sent, and `call` hears nothing. What is answered by messages
 * has no call: NULL. */
bool hf_redis_connection_send(struct hf_redis_connection *connection,
                              struct hf_redis_call *call,
                              const struct hf_redis_resp_args *args);

/* The same, of what is encoded already. */
bool hf_redis_connection_send_bytes(struct hf_redis_connection *connection,
                                    struct hf_redis_call *call,
                                    const void *bytes, size_t size);

/* The connection is of no use any more: lose it, and connect again. */
void hf_redis_connection_drop(struct hf_redis_connection *connection,
                              enum hf_err err, const char *text);

/* For handshake.c: the greeting is over. */
void hf_redis_connection_on_handshake_done(
    struct hf_redis_connection *connection);

/* handshake.c: say what is said first on a new connection. */
bool hf_redis_handshake_start(struct hf_redis_connection *connection);

/* Load all scripts; one that runs before its reply answers HF_EUNAVAIL. */
void hf_redis_handshake_load_scripts(struct hf_redis_connection *connection);

/* Whether the command may be sent: see hf_redis_server_info_check_grant(). Before a LOCK the
 * server's promises are read again, if that was a while ago or they do not
 * allow it; the answer is by those that are known now. */
enum hf_err hf_redis_handshake_check_command(
    struct hf_redis_connection *connection, const struct hf_command *command,
    struct hf_error *error);

#endif
