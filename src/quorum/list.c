/* list.c - LIST: the keys that this master shows as held, in order of the
 * creation of their records. */
#include "quorum/state.h"

struct hf_quorum_list {
    struct hf_serve_list serve; /* first: see hf_serve_list_ops.size */
    struct hf_master_walk walk;
};

static struct hf_quorum_list *quorum_list_of(struct hf_serve_list *list)
{
    return HF_CONTAINER(list, struct hf_quorum_list, serve);
}

static void begin_records(struct hf_serve_list *list)
{
    hf_master_walk_begin(&hf_quorum_node_of(list->conn)->master,
                         &quorum_list_of(list)->walk);
}

static void end_records(struct hf_serve_list *list)
{
    hf_master_walk_end(&quorum_list_of(list)->walk);
}

static bool visit_record(struct hf_serve_list *list)
{
    const struct hf_quorum_node *node = hf_quorum_node_of(list->conn);
    const struct hf_record *record =
        hf_master_walk_next(&node->master, &quorum_list_of(list)->walk);
    struct hf_quorum_texts texts;
    struct hf_info info;

    if (!record)
        return false;
    if (hf_record_is_free(record) ||
        !hf_serve_list_has(list, record->order, hf_record_key(record)))
        return true;
    info = hf_quorum_read_info(node, hf_record_key(record), record, &texts);
    hf_serve_list_add(list, record->order, &info);
    return true;
}

static uint64_t master_index(const struct hf_serve_list *list)
{
    return hf_quorum_node_of(list->conn)->index;
}

static const struct hf_serve_list_ops record_ops = {
    .size = sizeof(struct hf_quorum_list),
    .begin = begin_records,
    .end = end_records,
    .visit = visit_record,
    .index = master_index,
};

enum hf_err hf_quorum_list_start(struct hf_serve_conn *conn,
                                 const struct hf_mux_request *request)
{
    return hf_serve_list_start(conn, &record_ops, request);
}
