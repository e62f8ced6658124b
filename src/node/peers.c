#include "node/peers.h"

#include "base/assert.h"
#include "node/state.h"

/* ---- Peers --------------------------------------------------------------*/

void hf_peers_init(struct hf_node *node)
{
    for (size_t i = 0; i < node->opts.member_count; i++) {
        if (node->members[i].id != node->opts.id)
            node->peers.list[node->peers.count++].id = node->members[i].id;
    }
}

void hf_peers_fini(struct hf_peers *peers)
{
    for (size_t i = 0; i < peers->count; i++)
        hf_buf_fini(&peers->list[i].out);
    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++)
        hf_buf_fini(&peers->links[i].in);
    hf_buf_fini(&peers->scratch);
}

struct hf_peer *hf_peers_find(struct hf_node *node, uint64_t id)
{
    for (size_t i = 0; i < node->peers.count; i++) {
        if (node->peers.list[i].id == id)
            return &node->peers.list[i];
    }
    return NULL;
}

struct hf_peer *hf_peers_leader(struct hf_node *node)
{
    struct hf_peer *peer = hf_peers_find(node, node->leader);

    return peer && peer->link != 0 ? peer : NULL;
}

bool hf_peers_can_ask(const struct hf_node *node)
{
    for (size_t i = 0; i < node->peers.count; i++) {
        if (node->peers.list[i].id == node->leader)
            return node->peers.list[i].link != 0;
    }
    return hf_node_leads(node);
}

/* ---- Sending ------------------------------------------------------------*/

static void end_frame(struct hf_peer *peer)
{
    if (!peer->has_frame)
        return;
    peer->has_frame = false;
    if (!peer->out.failed)
        hf_bytes_put_u32(peer->out.data + peer->frame,
                         (uint32_t)(peer->out.size - peer->frame - 4));
}

static void begin_frame(struct hf_node *node, struct hf_peer *peer)
{
    bool is_low = hf_wal_space(node->journal.wal) != HF_WAL_SPACE_OK;

    end_frame(peer);
    peer->has_frame = true;
    peer->frame = peer->out.size;
    hf_buf_u32(&peer->out, 0);
    hf_frames_begin(&peer->frames, node->opts.id, node->incarnation,
                    &peer->out);
    hf_buf_u8(&peer->out, is_low ? HF_PACKET_LOW_SPACE : 0);
}

static void send_bytes(struct hf_node *node, struct hf_peer *peer,
                       enum hf_packet_kind kind, const void *bytes, size_t size)
{
    if (!peer->has_frame ||
        peer->out.size - peer->frame + size > HF_NODE_FRAME_GOAL)
        begin_frame(node, peer);
    hf_buf_u8(&peer->out, (uint8_t)kind);
    hf_buf_bytes(&peer->out, bytes, size);
}

struct hf_buf *hf_peers_message(struct hf_node *node)
{
    node->peers.scratch.size = 0;
    node->peers.scratch.failed = false;
    return &node->peers.scratch;
}

/* All senders expect that messages may be lost, so one that does not fit is
 * dropped. */
bool hf_peers_send(struct hf_node *node, struct hf_peer *peer,
                   enum hf_packet_kind kind)
{
    const struct hf_buf *scratch = &node->peers.scratch;

    if (peer->link == 0 || scratch->failed ||
        peer->out.size + scratch->size > HF_NODE_OUT_MAX)
        return false;
    send_bytes(node, peer, kind, scratch->data, scratch->size);
    return !peer->out.failed;
}

void hf_peers_send_raft(struct hf_node *node, const struct hf_message *message)
{
    struct hf_peer *peer = hf_peers_find(node, message->peer);

    if (!peer)
        return;
    if (message->kind == HF_MESSAGE_APPEND)
        peer->was_appended = true;
    hf_message_encode(hf_peers_message(node), message);
    (void)hf_peers_send(node, peer, HF_PACKET_RAFT);
}

/* Send a frame even if it has no messages, because it contains our
 * incarnation. */
static void announce_incarnation(struct hf_node *node, struct hf_peer *peer)
{
    if (peer->link != 0)
        begin_frame(node, peer);
}

/* If memory was short, all output of this turn is lost. Its other senders
 * repeat themselves, but the leader may lack a session that was attached
 * here. */
static void flush_peer(struct hf_node *node, struct hf_peer *peer)
{
    peer->was_appended = false;
    if (peer->out.failed && peer->id == node->leader)
        node->attachments.is_announced = false;
    end_frame(peer);
    if (peer->link != 0 && peer->out.size > 0 && !peer->out.failed)
        node->ops->send_link(node->arg, peer->link, peer->out.data,
                             peer->out.size);
    if (peer->out.failed || peer->out.capacity > HF_NODE_FRAME_GOAL)
        hf_buf_fini(&peer->out);
    peer->out.size = 0;
}

void hf_peers_flush(struct hf_node *node)
{
    for (size_t i = 0; i < node->peers.count; i++)
        flush_peer(node, &node->peers.list[i]);
}

/* ---- Outgoing connections -----------------------------------------------*/

void hf_node_on_peer_up(struct hf_node *node, uint64_t id, uint64_t link)
{
    struct hf_peer *peer = hf_peers_find(node, id);
    struct hf_packet_hello hello = {
        .protocol_min = HF_PACKET_PROTOCOL,
        .protocol_max = HF_PACKET_PROTOCOL,
        .cluster = node->opts.cluster,
        .from = node->opts.id,
        .to = id,
        .incarnation = node->incarnation,
        .version = node->opts.version,
    };

    if (!peer)
        return;
    peer->link = link;
    peer->out.size = 0;
    peer->has_frame = false;
    hf_buf_u32(&peer->out, 0);
    hf_packet_encode_hello(&peer->out, &hello);
    if (!peer->out.failed)
        hf_bytes_put_u32(peer->out.data, (uint32_t)(peer->out.size - 4));
    begin_frame(node, peer);
    if (id == node->leader) {
        node->attachments.is_announced = false;
        hf_requests_resend(node);
    }
}

static void send_lost(struct hf_node *node, struct hf_message *message)
{
    for (size_t i = 0; i < node->peers.count; i++) {
        message->peer = node->peers.list[i].id;
        hf_consensus_send(node, message);
    }
}

/* The process of `leader` has ended: report that to all nodes. If a majority
 * has reported it, and this node has the most complete log among them, stand
 * for election at once (raft/lost). */
static void report_lost(struct hf_node *node, uint64_t leader)
{
    const struct hf_entries *log = &node->engine.log;
    struct hf_message message = {
        .kind = HF_MESSAGE_LEADER_LOST,
        .term = hf_engine_term(&node->engine),
        .vote = {.last_index = log->last,
                 .last_term = hf_entries_term(log, log->last)},
    };

    hf_lost_report(&node->lost, node->opts.id, message.term,
                   &(struct hf_lost_log){node->now, message.vote.last_term,
                                         message.vote.last_index});
    send_lost(node, &message);
    if (hf_lost_elects(&node->lost, message.term, node->now))
        (void)hf_consensus_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_LEADER_LOST,
                                           .peer = leader});
}

void hf_node_on_peer_down(struct hf_node *node, uint64_t id, bool refused)
{
    struct hf_peer *peer = hf_peers_find(node, id);

    if (!peer || node->has_failed)
        return;
    peer->link = 0;
    peer->out.size = 0;
    peer->has_frame = false;
    hf_transfers_stop(node, peer);
    if (refused && id == node->leader)
        report_lost(node, id);
}

/* ---- Incoming connections -----------------------------------------------*/

static struct hf_link *find_link(struct hf_node *node, uint64_t id)
{
    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++) {
        if (node->peers.links[i].id == id)
            return &node->peers.links[i];
    }
    return NULL;
}

static void touch_link(struct hf_node *node, struct hf_link *link)
{
    link->touched = ++node->peers.touches;
}

static void drop_link(struct hf_node *node, struct hf_link *link)
{
    struct hf_peer *peer = link->peer;
    bool is_newest = peer && peer->incoming == link->id;

    hf_buf_fini(&link->in);
    *link = (struct hf_link){0};
    if (is_newest) {
        peer->incoming = 0;
        hf_sessions_drop_origin(node, peer->id);
    }
}

static void refuse_link(struct hf_node *node, struct hf_link *link,
                        const char *why)
{
    node->peers.refused++;
    node->ops->close_link(node->arg, link->id, why);
    drop_link(node, link);
}

static const char *check_peer_hello(struct hf_node *node,
                                    const struct hf_packet_hello *hello)
{
    if (memcmp(&hello->cluster, &node->opts.cluster, sizeof(hello->cluster)) !=
        0)
        return "it belongs to another cluster";
    if (hello->to != node->opts.id)
        return "it takes this node for another one";
    if (!hf_peers_find(node, hello->from))
        return "it is not a member of the cluster";
    if (hello->protocol_min > HF_PACKET_PROTOCOL ||
        hello->protocol_max < HF_PACKET_PROTOCOL)
        return "it speaks another version of the protocol";
    return NULL;
}

/* Returns why the connection is refused, or NULL if it is accepted. */
static const char *receive_hello(struct hf_node *node, struct hf_link *link,
                                 struct hf_reader *reader)
{
    struct hf_packet_hello hello;
    const char *why = "it is not a node";

    if (!hf_packet_decode_hello(reader, &hello))
        why = check_peer_hello(node, &hello);
    if (why)
        return why;
    link->peer = hf_peers_find(node, hello.from);
    link->incarnation = hello.incarnation;
    link->peer->version = hello.version;
    touch_link(node, link);
    return NULL;
}

/* The peer was restarted, or is heard for the first time. Its former process
 * has lost what was sent to it, and waits for no answer: drop what it asked
 * for, and if it leads, send our requests again. */
static void on_incarnation(struct hf_node *node, struct hf_peer *peer)
{
    hf_proposals_drop_origin(node, peer->id);
    hf_sessions_drop_origin(node, peer->id);
    hf_transfers_stop(node, peer);
    if (peer->id == node->leader) {
        node->attachments.is_announced = false;
        hf_requests_resend(node);
    }
}

static void receive_messages(struct hf_node *node, struct hf_peer *peer,
                             struct hf_reader *reader)
{
    peer->low_space = (hf_reader_u8(reader) & HF_PACKET_LOW_SPACE) != 0;
    while (reader->size > 0 && !reader->failed && !node->has_failed) {
        enum hf_packet_kind kind = (enum hf_packet_kind)hf_reader_u8(reader);
        struct hf_bytes bytes = hf_reader_bytes(reader, HF_NODE_FRAME_MAX);
        struct hf_reader message = {.data = bytes.data, .size = bytes.size};

        if (!reader->failed)
            hf_receive_message(node, peer, kind, &message);
    }
}

/* A frame of a later incarnation makes the node drop all frames of the earlier
 * one. So it must come over a connection of the later process. */
static bool is_of_process(const struct hf_link *link, struct hf_reader reader)
{
    return hf_reader_u64(&reader) == link->incarnation;
}

static const char *receive_frame(struct hf_node *node, struct hf_link *link,
                                 struct hf_reader *reader)
{
    struct hf_peer *peer = link->peer;
    uint64_t incarnation;
    enum hf_frames_verdict verdict;

    if (!peer)
        return receive_hello(node, link, reader);
    if (hf_frames_sender(reader) != peer->id)
        return "it sends in the name of another node";
    if (!is_of_process(link, *reader))
        return "it sends in the name of another process";
    incarnation = peer->frames.incarnation;
    verdict = hf_frames_check(&peer->frames, node->incarnation, reader);
    if (peer->frames.incarnation != incarnation)
        on_incarnation(node, peer);
    if (verdict == HF_FRAMES_ANNOUNCE)
        announce_incarnation(node, peer);
    if (verdict == HF_FRAMES_ACCEPT) {
        peer->incoming = link->id;
        receive_messages(node, peer, reader);
    }
    return NULL;
}

/* Handle the first frame in `data`, and return its size. Returns 0 if the frame
 * is incomplete, or the connection was refused. Anybody can connect, so little
 * memory is given to a connection before its HELLO. */
static size_t take_frame(struct hf_node *node, struct hf_link *link,
                         const uint8_t *data, size_t available)
{
    struct hf_reader reader = {.data = data, .size = available};
    uint32_t size;
    const char *why;

    if (available < 4)
        return 0;
    size = hf_reader_u32(&reader);
    if (size > (link->peer ? HF_NODE_FRAME_MAX : HF_NODE_HELLO_MAX)) {
        refuse_link(node, link, "its frame is too long");
        return 0;
    }
    if (available - 4 < size)
        return 0;
    reader.size = size;
    why = receive_frame(node, link, &reader);
    if (why) {
        refuse_link(node, link, why);
        return 0;
    }
    return 4 + (size_t)size;
}

/* Handle the complete frames that have arrived. */
static void read_link(struct hf_node *node, struct hf_link *link)
{
    uint64_t id = link->id;
    size_t used = 0;
    size_t taken;

    while ((taken = take_frame(node, link, link->in.data + used,
                               link->in.size - used)) > 0)
        used += taken;
    if (link->id != id)
        return; /* the connection was refused, and `link` is unused */
    if (used > 0 && used < link->in.size)
        memmove(link->in.data, link->in.data + used, link->in.size - used);
    link->in.size -= used;
}

void hf_peers_read(struct hf_node *node)
{
    for (size_t i = 0; i < HF_NODE_LINKS_MAX && !node->has_failed; i++) {
        if (node->peers.links[i].in.size > 0)
            read_link(node, &node->peers.links[i]);
    }
}

/* ---- Links without a HELLO ----------------------------------------------*/

static bool is_stranger(const struct hf_link *link)
{
    return link->id != 0 && !link->peer;
}

/* Returns true if `a` is closed before `b` when there are too many links. Links
 * that have sent no HELLO are closed first, the oldest before the others, even
 * if they send a byte now and then. Of the others, the longest silent one is
 * closed: followers send nothing to each other, so this may be the link of a
 * follower, which connects again at once. */
static bool is_less_wanted(const struct hf_link *a, const struct hf_link *b)
{
    if (is_stranger(a) != is_stranger(b))
        return is_stranger(a);
    return a->touched < b->touched;
}

/* All links are in use: close the least wanted one, and return it. */
static struct hf_link *free_link(struct hf_node *node)
{
    struct hf_link *links = node->peers.links;
    struct hf_link *victim = links;

    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++) {
        if (is_stranger(&links[i]) && links[i].in.size > 0)
            read_link(node, &links[i]); /* its HELLO may have arrived */
        if (links[i].id == 0)
            return &links[i];
    }
    for (size_t i = 1; i < HF_NODE_LINKS_MAX; i++) {
        if (is_less_wanted(&links[i], victim))
            victim = &links[i];
    }
    refuse_link(node, victim, "too many connections of nodes");
    return victim;
}

void hf_peers_drop_strangers(struct hf_node *node)
{
    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++) {
        struct hf_link *link = &node->peers.links[i];

        if (is_stranger(link) && node->now >= link->hello_until)
            refuse_link(node, link, "it has sent no HELLO in time");
    }
}

/* The process or the machine of the peer stands still: its clients are gone, or
 * have moved to other nodes. Closing the connection detaches their sessions. A
 * peer that continues notices that, connects again and reports its sessions. */
void hf_peers_drop_silent(struct hf_node *node)
{
    hf_time before = node->now - HF_NODE_SILENT_MS;

    if (!hf_node_leads(node) || node->leading_since > before)
        return;
    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++) {
        struct hf_link *link = &node->peers.links[i];

        if (link->id != 0 && link->heard_at <= before)
            refuse_link(node, link, "it is silent");
    }
}

hf_time hf_peers_deadline(const struct hf_node *node)
{
    hf_time deadline = HF_NEVER;

    for (size_t i = 0; i < HF_NODE_LINKS_MAX; i++) {
        const struct hf_link *link = &node->peers.links[i];

        if (is_stranger(link) && link->hello_until < deadline)
            deadline = link->hello_until;
    }
    return deadline;
}

/* ---- Input from the shell -----------------------------------------------*/

void hf_node_on_link_open(struct hf_node *node, uint64_t id)
{
    struct hf_link *link = find_link(node, 0);

    if (!link)
        link = free_link(node);
    link->id = id;
    link->hello_until = hf_time_add(node->now, HF_NODE_HELLO_MS);
    link->heard_at = node->now;
    touch_link(node, link);
}

void hf_node_on_link_data(struct hf_node *node, uint64_t id, const void *bytes,
                          size_t size)
{
    struct hf_link *link = find_link(node, id);

    if (!link || id == 0 || node->has_failed)
        return;
    link->heard_at = node->now;
    if (link->peer)
        touch_link(node, link);
    hf_buf_raw(&link->in, bytes, size);
    if (link->in.failed)
        refuse_link(node, link, "memory is exhausted");
    else if (link->in.size > HF_NODE_FRAME_MAX)
        read_link(node, link);
}

void hf_node_on_link_closed(struct hf_node *node, uint64_t id)
{
    struct hf_link *link = find_link(node, id);

    if (!link || id == 0 || node->has_failed)
        return;
    if (link->in.size > 0)
        read_link(node, link);
    if (link->id == id)
        drop_link(node, link);
}

void hf_node_on_link_refused(struct hf_node *node)
{
    node->peers.refused++;
}
