/* read.c - what this master knows of a key. */
#include "quorum/state.h"
#include "serve/reply.h"

void hf_quorum_read_text(char *text, size_t size, struct hf_bytes bytes)
{
    size_t used = bytes.size > 0 ? strnlen(bytes.data, bytes.size) : 0;

    if (used >= size)
        used = size - 1;
    hf_copy(text, bytes.data, used);
    text[used] = '\0';
}

static void fill_held(struct hf_info *info, const struct hf_report *report,
                      struct hf_quorum_texts *texts)
{
    bool is_lease = report->state == HF_REPORT_HELD;

    info->held = true;
    info->forced = report->forced;
    info->token = is_lease ? report->token : report->vote_number;
    info->held_ms = is_lease ? report->held_ms : report->vote_age_ms;
    info->left_ms = is_lease ? report->left_ms : report->vote_left_ms;
    info->value = report->data.value;
    hf_quorum_read_text(texts->owner, sizeof(texts->owner), report->data.owner);
    hf_quorum_read_text(texts->note, sizeof(texts->note), report->data.note);
    info->owner = texts->owner;
    info->note = texts->note;
}

struct hf_info hf_quorum_read_info(const struct hf_quorum_node *node,
                                   struct hf_key key,
                                   const struct hf_record *record,
                                   struct hf_quorum_texts *texts)
{
    struct hf_info info = {
        .key = key,
        .owner = "",
        .note = "",
        .index = node->index,
    };
    struct hf_report report = {0};

    if (record)
        hf_record_report(record, node->now, true, &report);
    info.waiters = report.waiters;
    if (report.state == HF_REPORT_HELD || report.has_vote)
        fill_held(&info, &report, texts);
    return info;
}

void hf_quorum_read_reply(struct hf_serve_conn *conn, uint64_t id,
                          struct hf_key key)
{
    struct hf_quorum_node *node = hf_quorum_node_of(conn);
    struct hf_quorum_texts texts;
    struct hf_info info = hf_quorum_read_info(
        node, key, hf_master_find(&node->master, key), &texts);

    hf_serve_reply_info(conn, id, &info);
}
