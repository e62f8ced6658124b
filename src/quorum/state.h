/* state.h - a node of a quorum, for its sources.
 *
 *     node.c        the node: time, marks, its master
 *     service.c     the requests of clients
 *     read.c        READ: what this master knows of a key
 *     list.c        LIST
 *     events.c      changes of the master as events
 *     report.c      STATUS, INFO and DEBUG */
#ifndef HF_QUORUM_STATE_H
#define HF_QUORUM_STATE_H

#include "core/quorum/master.h"
#include "quorum/node.h"
#include "serve/list.h"
#include "serve/watch.h"

/* What a master shows of a key. A vote counts like a lease: the claims that a
 * fast quorum has granted have nothing else. */
struct hf_quorum_view {
    bool is_held;
    bool is_vote;
    bool forced;
    uint64_t token;
    struct hf_claim_id id;
    char owner[HF_LABEL_MAX + 1];
};

struct hf_quorum_node {
    struct hf_server server; /* first, so that its service finds the node */
    struct hf_members members;
    uint64_t id;
    const struct hf_quorum_node_ops *ops;
    void *arg;
    hf_time now;
    struct hf_master master;
    char cluster[2 * HF_MEMBERS_CLUSTER + 1]; /* in hexadecimal digits */
    struct hf_buf member_text;                /* for HELLO */

    bool is_marking;  /* write_mark() was called, and is not answered */
    bool mark_failed; /* the last one has failed */
    hf_time mark_at;  /* not before this, after a failure */
    uint32_t mark_pause_ms;
    uint64_t mark_writes;

    /* Events */
    struct hf_history history;
    uint64_t index;                          /* of the newest event */
    const struct hf_quorum_request *request; /* being executed, or NULL */
    struct hf_quorum_view before;            /* the record that changes next */

    uint64_t messages; /* QUORUM requests since the start */
    uint64_t pushes;   /* since the start */
};

static inline struct hf_quorum_node *hf_quorum_node_of(
    const struct hf_serve_conn *conn)
{
    return HF_CONTAINER(conn->server, struct hf_quorum_node, server);
}

/* ---- service.c ----------------------------------------------------------*/

extern const struct hf_service_ops hf_quorum_service;

/* ---- events.c -----------------------------------------------------------*/

/* For struct hf_master_ops, with the node as the argument. */
void hf_quorum_events_changing(void *arg, const struct hf_record *record);
void hf_quorum_events_changed(void *arg, const struct hf_record *record);

/* ---- read.c -------------------------------------------------------------*/

/* The texts of an info, which must end with a NUL. */
struct hf_quorum_texts {
    char owner[HF_LABEL_MAX + 1];
    char note[HF_NOTE_MAX + 1];
};

/* What this master knows of a key: `record` is its record, or NULL. The value
 * is borrowed from the master. */
struct hf_info hf_quorum_read_info(const struct hf_quorum_node *node,
                                   struct hf_key key,
                                   const struct hf_record *record,
                                   struct hf_quorum_texts *texts);

/* Copy `bytes` up to a NUL, and end them with one. */
void hf_quorum_read_text(char *text, size_t size, struct hf_bytes bytes);

/* Reply to a READ, in the connection's mode. */
void hf_quorum_read_reply(struct hf_serve_conn *conn, uint64_t id,
                          struct hf_key key);

/* ---- list.c -------------------------------------------------------------*/

/* Start to reply to a LIST; fails like hf_serve_list_start(). */
enum hf_err hf_quorum_list_start(struct hf_serve_conn *conn,
                                 const struct hf_mux_request *request);

/* ---- report.c -----------------------------------------------------------*/

void hf_quorum_report_info(struct hf_server *server, struct hf_buf *text);
void hf_quorum_report_status(struct hf_server *server, struct hf_buf *text);

/* All that the master knows of a key, as JSON. */
void hf_quorum_report_debug(struct hf_quorum_node *node, struct hf_key key,
                            struct hf_buf *text);

#endif
