/* watch.h - WATCH: the events of keys that begin with a prefix.
 *
 * A watch is a cursor into a history, which the service has, so a slow client
 * takes no memory for events: if it does not read, its cursor stays behind, and
 * it gets a DROPPED event when the events that it missed are no longer kept.
 *
 * The history is an argument, because a service may replace it. Until it calls
 * hf_serve_watch_seek(), it passes the same one for a connection. */
#ifndef HF_SERVE_WATCH_H
#define HF_SERVE_WATCH_H

#include "core/history.h"
#include "serve/conn.h"

/* Start to stream the events from request->from on, or from the next one if it
 * is 0, and reply to the WATCH with `index`, that of the newest event. Can fail
 * with HF_EINVAL if the connection has a watch with this number, with HF_ELIMIT
 * or HF_ENOMEM; then nothing is written. */
enum hf_err hf_serve_watch_start(struct hf_serve_conn *conn,
                                 const struct hf_history *history,
                                 uint64_t index,
                                 const struct hf_mux_request *request);

/* End the watch with this number, if there is one. */
void hf_serve_watch_remove(struct hf_serve_conn *conn, uint64_t number);

/* The server calls this for a connection that is closed. */
void hf_serve_watch_remove_all(struct hf_serve_conn *conn);

/* Write events of the watches while there is room for output and the work is
 * less than `max` units (HF_CLIENT_WORK). Returns the work. Calls
 * hf_serve_conn_set_streaming() if events may be left. */
unsigned hf_serve_watch_continue(struct hf_serve_conn *conn,
                                 const struct hf_history *history,
                                 unsigned max);

/* There are new events: let the connections that watch stream. */
void hf_serve_watch_notify(struct hf_server *server);

/* `history` replaces the one before: continue at the same indexes in it. */
void hf_serve_watch_seek(struct hf_serve_conn *conn,
                         const struct hf_history *history);

#endif
