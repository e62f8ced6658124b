/* reply.h - write replies and pushes to a connection. */
#ifndef HF_SERVE_REPLY_H
#define HF_SERVE_REPLY_H

#include "serve/conn.h"

/* ---- Plain mode ---------------------------------------------------------*/

/* If `text` is NULL, it is hf_err_text(err). */
void hf_serve_reply_error(struct hf_serve_conn *conn, enum hf_err err,
                          const char *text);
void hf_serve_reply_ok(struct hf_serve_conn *conn);
void hf_serve_reply_bulk(struct hf_serve_conn *conn, struct hf_bytes bytes);

/* ---- MUX mode -----------------------------------------------------------*/

/* `verb` selects the format of the reply. */
void hf_serve_reply_mux(struct hf_serve_conn *conn,
                        const struct hf_mux_reply *reply, enum hf_verb verb);

/* Write an error reply to the request `id`. */
void hf_serve_reply_mux_error(struct hf_serve_conn *conn, uint64_t id,
                              enum hf_err err, const char *text);

/* Write a reply without content to the request `id`. */
void hf_serve_reply_mux_done(struct hf_serve_conn *conn, uint64_t id);

void hf_serve_reply_push(struct hf_serve_conn *conn,
                         const struct hf_mux_push *push);

/* ---- Either mode --------------------------------------------------------*/

/* Reply to the READ `id` of a connection in MUX mode, or to a plain READ. The
 * index of the reply is info->index. */
void hf_serve_reply_info(struct hf_serve_conn *conn, uint64_t id,
                         const struct hf_info *info);

/* Write an info to `buf`, a part of a reply to the connection: in plain mode as
 * an array of names and values. */
void hf_serve_reply_add_info(struct hf_serve_conn *conn,
                             const struct hf_info *info, struct hf_buf *buf);

#endif
