/* list.h - LIST: the held keys that begin with a prefix, in pages.
 *
 * A list visits the keys of the service in a fixed order, in parts, and only
 * while the connection has room for output. So a long list delays no other
 * client, and a client that does not read its list takes little memory.
 *
 * Each key has an order number, which rises from key to key. That of the last
 * key on a plain page is the cursor with which the client continues. */
#ifndef HF_SERVE_LIST_H
#define HF_SERVE_LIST_H

#include "serve/conn.h"

struct hf_serve_list;

/* How a service visits its keys. */
struct hf_serve_list_ops {
    /* Bytes of the service's own struct for a list. Its first member is a
     * struct hf_serve_list, its others are zeroed before begin(). */
    size_t size;

    /* Begin before the first key; keys up to list->after may be left out. Call
     * end() after it. */
    void (*begin)(struct hf_serve_list *list);
    void (*end)(struct hf_serve_list *list);

    /* Visit the next key, and if hf_serve_list_has() it, call
     * hf_serve_list_add(). Returns false if there are no more keys. */
    bool (*visit)(struct hf_serve_list *list);

    /* A plain page was sent, and the client may continue after list->after,
     * which is the last key that was visited. end() follows. Optional. */
    void (*on_page)(struct hf_serve_list *list);

    /* Returns the index of the reply in MUX mode. */
    uint64_t (*index)(const struct hf_serve_list *list);
};

/* The service only reads these members. */
struct hf_serve_list {
    struct hf_dlist link; /* in conn->lists */
    struct hf_serve_conn *conn;
    const struct hf_serve_list_ops *ops;
    uint64_t id;          /* MUX mode: of the request */
    uint64_t after;       /* plain mode: skip keys up to this order number */
    uint32_t count;       /* plain mode: keys still wanted */
    struct hf_buf page;   /* infos, encoded for the connection's mode */
    size_t page_count;    /* infos in it */
    struct hf_key prefix; /* in the same allocation */
};

/* Start to reply to a LIST: in MUX mode with all keys, in plain mode with one
 * page, see HF_LIST_AFTER. Can fail with HF_ELIMIT or HF_ENOMEM; then nothing
 * is written. `ops` is borrowed. */
enum hf_err hf_serve_list_start(struct hf_serve_conn *conn,
                                const struct hf_serve_list_ops *ops,
                                const struct hf_mux_request *request);

/* Continue the lists, one after the other, while there is room for output and
 * the work is less than `max` units (HF_CLIENT_WORK). Returns the work. Calls
 * hf_serve_conn_set_streaming() if lists are left. */
unsigned hf_serve_list_continue(struct hf_serve_conn *conn, unsigned max);

/* End all lists of the connection with an error; if `text` is NULL, it is
 * hf_err_text(err). */
void hf_serve_list_fail_all(struct hf_serve_conn *conn, enum hf_err err,
                            const char *text);

/* The server calls this for a connection that is closed. */
void hf_serve_list_end_all(struct hf_serve_conn *conn);

/* ---- For visit() --------------------------------------------------------*/

/* Returns true if a held key is in the list. */
bool hf_serve_list_has(const struct hf_serve_list *list, uint64_t order,
                       struct hf_key key);
void hf_serve_list_add(struct hf_serve_list *list, uint64_t order,
                       const struct hf_info *info);

#endif
