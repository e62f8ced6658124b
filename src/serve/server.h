/* server.h - the connections of clients, at the client port of a node.
 *
 * Clients speak the protocol of holdfast-protocol(7). What a node does for them
 * is its *service*, which embeds a struct hf_server in its own struct, and
 * executes requests through struct hf_service_ops. The server does the rest: it
 * reads requests, pauses clients, collects and sends output, closes clients
 * that are silent or do not read, and executes the commands that every node
 * has: PING, ECHO, QUIT, COMMAND, HELLO, INFO and STATUS, in both modes.
 *
 * Pure: a shell has the sockets. It reports their input with the time, which
 * never decreases, and then calls hf_server_turn(). All limits are in
 * base/limits.h.
 *
 * Always true:
 *   1. the requests of a connection are executed in the order in which they
 *      arrived, in plain mode only after the replies to those before;
 *   2. input and output take memory only within the limits, whatever a client
 *      sends or fails to read;
 *   3. output is sent at most once per turn and connection;
 *   4. the work in one turn is limited. Connections that have more to do take
 *      turns, and the next turn is due at once;
 *   5. a connection is freed at the end of hf_server_turn(), by
 *      hf_server_on_closed() or by hf_server_fini(), and nowhere else: the
 *      service can close it and still use it. */
#ifndef HF_SERVE_SERVER_H
#define HF_SERVE_SERVER_H

#include "base/dlist.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/time.h"
#include "serve/arguments.h"
#include "wire/mux.h"

struct hf_serve_conn; /* conn.h */
struct hf_server;

/* ---- The service --------------------------------------------------------
 *
 * The functions run inside a call of the shell into the server. Those that are
 * optional may be NULL. */
struct hf_service_ops {
    /* Bytes of the service's own struct for a connection. Its first member is a
     * struct hf_serve_conn. The server allocates and frees it. */
    size_t conn_size;

    /* Initialize the service's own members, which are zeroed; conn->server and
     * conn->number are set. Optional. */
    void (*init_conn)(struct hf_serve_conn *conn);

    /* Abandon the requests of a connection that is closed, and free the
     * service's own members. What is written is not sent any more. Optional. */
    void (*fini_conn)(struct hf_serve_conn *conn);

    /* Execute a command of plain mode, or a request of MUX mode, that is none
     * of the server's own. Its name and the number of its words are valid. The
     * service replies to each request once, now or later, through reply.h; to a
     * verb that it does not have, with an error. The words are valid during the
     * call only. */
    void (*execute_plain)(struct hf_serve_conn *conn, enum hf_verb verb,
                          struct hf_arguments *args);
    void (*execute_mux)(struct hf_serve_conn *conn,
                        const struct hf_mux_request *request);

    /* Returns true if the next request has to wait for something that the
     * service does: in plain mode the reply to the last one, in MUX mode that
     * fewer than HF_CLIENT_REQUESTS_MAX are unanswered. The service calls
     * hf_serve_conn_resume() when that may have changed. Optional: a service
     * that answers each request at once is never busy. */
    bool (*is_busy)(const struct hf_serve_conn *conn);

    /* Returns true if a plain client may be silent, because its request takes
     * long. Optional: never. */
    bool (*may_be_silent)(const struct hf_serve_conn *conn);

    /* It is the turn of a connection that is ready or streaming: called before
     * its requests are continued. Optional. */
    void (*on_ready)(struct hf_serve_conn *conn);

    /* It is the turn of a connection for which hf_serve_conn_set_streaming()
     * was called: write what waits for room, such as lists and events, while
     * hf_serve_conn_has_room(), and up to about HF_CLIENT_WORK units of work.
     * Returns the work. If more is left, the service calls
     * hf_serve_conn_set_streaming() again. Optional. */
    unsigned (*stream)(struct hf_serve_conn *conn);

    /* A client asks for MUX mode. Returns false after replying with the reason
     * if the connection may not have it. Optional: it may. */
    bool (*accept_mux)(struct hf_serve_conn *conn);

    /* Set the members of the reply to HELLO that describe the node: all but
     * `version`, `requests_max` and `frame_max`, which are set. Their bytes
     * must stay valid until the service is called again. */
    void (*fill_hello)(struct hf_server *server, struct hf_mux_hello *hello);

    /* Write the replies to INFO and STATUS, with text.h. */
    void (*add_info)(struct hf_server *server, struct hf_buf *text);
    void (*add_status)(struct hf_server *server, struct hf_buf *text);
};

/* ---- The shell ----------------------------------------------------------*/

/* Functions of the shell; they do not call the server. `conn` is the number of
 * a connection. The shell chooses it, differently for all that are open. */
struct hf_server_shell {
    void (*send)(void *arg, uint64_t conn, const void *bytes, size_t size);
    void (*close)(void *arg, uint64_t conn);

    /* Stop reading from a connection, or resume. */
    void (*pause)(void *arg, uint64_t conn, bool stop_reading);
    void *arg; /* for these functions */
};

/* What is sent to a connection that is closed at once, by the server or, for
 * lack of descriptors or memory, by the shell. */
#define HF_SERVER_REFUSAL "-LIMIT this node has too many connections\r\n"

/* ---- The server ---------------------------------------------------------*/

/* Counters that INFO shows. */
#define HF_SERVER_COUNTERS(X)                                                  \
    X(connections_accepted)                                                    \
    X(connections_refused) /* at a limit, or no descriptor or memory */        \
    X(connections_idle)    /* closed: no request for too long */               \
    X(connections_slow)    /* closed: output not read, or no memory */         \
    X(connections_broken)  /* closed: bad or too much input, or no memory */   \
    X(connections_paused)  /* reading paused: requests have to wait */         \
    X(requests)                                                                \
    X(requests_refused) /* answered with LIMIT or NOSPACE */                   \
    X(requests_invalid) /* answered with INVAL or PROTO */                     \
    X(events)                                                                  \
    X(events_dropped) /* DROPPED events; each stands for lost events */        \
    X(turns_full) /* turns that left requests, LISTs or events to the next */

struct hf_server_counters {
#define HF_SERVER_COUNTER(name) uint64_t name;
    HF_SERVER_COUNTERS(HF_SERVER_COUNTER)
#undef HF_SERVER_COUNTER
};

struct hf_server_opts {
    const struct hf_service_ops *ops; /* borrowed */
    struct hf_server_shell shell;
    size_t max; /* connections */
};

struct hf_server {
    struct hf_server_opts opts;
    hf_time now; /* of the last input or turn */
    struct hf_map by_number;
    struct hf_dlist conns;   /* all but those in `closing` */
    struct hf_dlist closing; /* to close at the end of the turn */
    struct hf_dlist output;  /* connections with output to send */
    struct hf_dlist ready;   /* connections that a turn continues */
    struct hf_dlist streams; /* connections that are streaming; the first one is
                                the next to continue */
    struct hf_dlist slow;    /* connections with `unsent` output */
    size_t count;            /* connections */
    size_t mux_count;
    size_t input;  /* bytes of requests that are not yet executed */
    size_t unsent; /* bytes that wait for sockets */
    uint64_t turn; /* number of the turn, with the input before it */
    unsigned work; /* units on requests since `turn` began, or since kept
                      requests are continued; the service adds what a request
                      costs beyond its bytes */
    hf_time next_sweep;

    struct hf_dlist watching; /* connections with watches */
    size_t watch_bytes;       /* of all watches */
    size_t list_count;        /* LISTs in progress */

    struct hf_buf scratch; /* see hf_server_scratch() */
    struct hf_server_counters counters;
};

void hf_server_init(struct hf_server *server,
                    const struct hf_server_opts *opts);

/* Free all connections. The sockets are not closed. */
void hf_server_fini(struct hf_server *server);

/* The shell has accepted the connection `number`, has received bytes from it,
 * or has closed it. */
void hf_server_on_open(struct hf_server *server, hf_time now, uint64_t number);
void hf_server_on_data(struct hf_server *server, hf_time now, uint64_t number,
                       const void *data, size_t size);
void hf_server_on_closed(struct hf_server *server, uint64_t number);

/* The shell has closed a connection at once, see HF_SERVER_REFUSAL. */
void hf_server_on_refused(struct hf_server *server);

/* `size` bytes of output wait in the queue of the socket of the connection. */
void hf_server_on_unsent(struct hf_server *server, hf_time now, uint64_t number,
                         size_t size);

/* Continue the connections that are ready or streaming, close those that are
 * idle or slow, and send the output of all. */
void hf_server_turn(struct hf_server *server, hf_time now);

/* Returns when the next turn is due if there is no input; HF_NEVER if there are
 * no connections. */
hf_time hf_server_deadline(const struct hf_server *server, hf_time now);

/* Returns the connection, or NULL. */
struct hf_serve_conn *hf_server_find(const struct hf_server *server,
                                     uint64_t number);

/* Write the push in `bytes` to all connections in MUX mode. If bytes->failed,
 * they are closed. */
void hf_server_push_all(struct hf_server *server, const struct hf_buf *bytes);

/* Write the section of INFO about clients: begin it with the numbers of
 * connections, add the bytes of their input, output and watches, add the
 * counters. The service may add lines of its own in between. */
void hf_server_add_connections(const struct hf_server *server,
                               struct hf_buf *text);
void hf_server_add_bytes(const struct hf_server *server, struct hf_buf *text);
void hf_server_add_counters(const struct hf_server *server,
                            struct hf_buf *text);

/* Returns an empty buffer. All callers share it, so use it only until the next
 * call of a function that calls this one. */
static inline struct hf_buf *hf_server_scratch(struct hf_server *server)
{
    server->scratch.size = 0;
    server->scratch.failed = false;
    return &server->scratch;
}

#endif
