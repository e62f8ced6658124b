/* connection.h - one connection to a Redis server, in the client's loop.
 *
 *             connect            writable             accepted
 *     DOWN ----------> CONNECTING ---------> HANDSHAKE ---------> UP
 *      ^                   |                     |                |
 *      +----- failed ------+------ refused ------+----- lost -----+
 *
 * A connection that is DOWN reconnects by itself, with exponential back-off and
 * jitter. Nothing survives a lost connection: every call that awaits a reply is
 * completed with NULL.
 *
 * hiredis connects, reads and parses. The queue of pending calls is kept here
 * and not by the asynchronous layer of hiredis, which aborts the program on an
 * unexpected reply and allocates memory for each command. */
#ifndef HF_STRATEGY_REDIS_CONNECTION_H
#define HF_STRATEGY_REDIS_CONNECTION_H

#include <hiredis/hiredis.h>

#include "strategy/redis/address.h"
#include "strategy/redis/output.h"
#include "strategy/redis/reader.h"
#include "strategy/redis/resp.h"
#include "strategy/redis/script.h"
#include "strategy/redis/server_info.h"
#include "strategy/strategy.h"

#define HF_REDIS_SHA_SIZE 40
#define HF_REDIS_STEPS_MAX (HF_REDIS_SCRIPTS + 14)

struct hf_redis_connection;

/* A command that was sent and awaits its reply; embedded in the caller's
 * struct. */
struct hf_redis_call {
    struct hf_dlist link;

    /* Called once. `reply` is NULL if the connection was lost before the reply
     * arrived; then it is unknown whether the server executed the command. May
     * free the call. */
    void (*reply)(struct hf_redis_call *call, const redisReply *reply);
};

enum hf_redis_state {
    HF_REDIS_DOWN,
    HF_REDIS_CONNECTING,
    HF_REDIS_HANDSHAKE,
    HF_REDIS_UP,
};

/* Callbacks of the owner. None of them runs inside
 * hf_redis_connection_send(). */
struct hf_redis_connection_ops {
    void (*up)(struct hf_redis_connection *connection);

    /* The connection was lost; `failure` has the reason. */
    void (*down)(struct hf_redis_connection *connection);

    /* A message on a pub/sub channel. Required only for a pub/sub
     * connection. */
    void (*message)(struct hf_redis_connection *connection,
                    const redisReply *reply);
};

/* One command of the handshake. */
struct hf_redis_handshake_step {
    struct hf_redis_call call;
    struct hf_redis_connection *connection;

    /* Examine the reply; drop the connection before returning an error. NULL:
     * the step is a SCRIPT LOAD of `script`, and its SHA is checked. */
    enum hf_err (*check)(struct hf_redis_connection *connection,
                         const redisReply *reply);
    unsigned script;
};

struct hf_redis_connection {
    struct hf_host *host;
    const struct hf_redis_address *address;
    const struct hf_redis_connection_ops *ops;
    const char *channel; /* channel to subscribe to; NULL: for commands */

    enum hf_redis_state state;
    redisContext *context;
    struct hf_fd fd;
    struct hf_redis_reader reader;
    struct hf_redis_output output;
    struct hf_timer timer; /* reconnects if DOWN, else detects silence */
    struct hf_post flush;  /* writes `output` when the turn ends */
    struct hf_post more;   /* continues reading in the next turn */
    struct hf_dlist calls; /* calls that await a reply, in order of sending */
    hf_time last_read_at;
    unsigned failures; /* failed attempts since the connection was up */
    struct hf_error failure;

    /* handshake.c */
    struct hf_redis_handshake_step steps[HF_REDIS_STEPS_MAX];
    unsigned steps_sent, steps_done;
    char shas[HF_REDIS_SCRIPTS][HF_REDIS_SHA_SIZE + 1];
    struct hf_redis_server_info server_info;
    hf_time info_read_at;  /* when `server_info` was last requested */
    long long id;          /* CLIENT ID of this connection */
    long long previous_id; /* id of the last connection; 0: none, or killed */
};

/* Start connecting. With `channel`, the connection subscribes to it and is for
 * pub/sub only; else it is for commands. `connection` must be zeroed.
 * `address`, `ops` and `channel` are borrowed until it is closed. Returns
 * HF_OK, HF_ENOMEM or HF_ELIMIT. */
enum hf_err hf_redis_connection_open(struct hf_redis_connection *connection,
                                     struct hf_host *host,
                                     const struct hf_redis_address *address,
                                     const struct hf_redis_connection_ops *ops,
                                     const char *channel);

/* Close. If the connection is up, first write as much output as the socket
 * takes. Pending calls are completed with NULL. Does nothing if the connection
 * is not open. */
void hf_redis_connection_close(struct hf_redis_connection *connection);

/* Returns true between open and close, whatever the state. */
static inline bool hf_redis_connection_is_open(
    const struct hf_redis_connection *connection)
{
    return connection->host != NULL;
}

/* Returns true if the connection is up, has pending calls, and has received
 * nothing for `ms`. */
bool hf_redis_connection_is_silent(const struct hf_redis_connection *connection,
                                   uint32_t ms);

/* For await.c, which runs without the event loop: connect now, without waiting
 * for the timer. The connection must be DOWN. */
void hf_redis_connection_connect(struct hf_redis_connection *connection);

/* For await.c: handle the events of the socket, EPOLLIN or EPOLLOUT. */
void hf_redis_connection_on_ready(struct hf_redis_connection *connection,
                                  uint32_t events);

/* Send a command when this turn ends. Returns false if the connection is DOWN
 * or CONNECTING or memory is exhausted; then the `reply` callback of `call` is
 * never called. Pass NULL as `call` for a command whose reply arrives as a
 * message, such as SUBSCRIBE. */
bool hf_redis_connection_send(struct hf_redis_connection *connection,
                              struct hf_redis_call *call,
                              const struct hf_redis_resp_args *args);

/* Like hf_redis_connection_send(), for a command that is encoded already. */
bool hf_redis_connection_send_bytes(struct hf_redis_connection *connection,
                                    struct hf_redis_call *call,
                                    const void *bytes, size_t size);

/* Disconnect because of `err`, and reconnect later. Does nothing while DOWN. */
void hf_redis_connection_drop(struct hf_redis_connection *connection,
                              enum hf_err err, const char *text);

/* For handshake.c: the server is accepted; move to UP. */
void hf_redis_connection_on_handshake_done(
    struct hf_redis_connection *connection);

/* handshake.c: send the first commands of a new connection. Returns false if
 * out of memory. */
bool hf_redis_handshake_start(struct hf_redis_connection *connection);

/* handshake.c: load all scripts again, because the server has lost them.
 * Commands fail with HF_EUNAVAIL until they are loaded. */
void hf_redis_handshake_load_scripts(struct hf_redis_connection *connection);

/* handshake.c: apply hf_redis_server_info_check_grant() to the stored server
 * info, and return its result: HF_OK if the command may be sent. As a side
 * effect, a LOCK requests new server info in the background if the stored info
 * is older than 5 s or the result is HF_EUNSUPPORTED. */
enum hf_err hf_redis_handshake_check_command(
    struct hf_redis_connection *connection, const struct hf_command *command,
    struct hf_error *error);

#endif
