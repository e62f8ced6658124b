/* fuzz_peers.c - arbitrary bytes at the peer port of a node.
 *
 * If bit 0 of the first byte is 0, the rest is what a stranger sends, in one
 * piece if bit 1 is set, and byte by byte if not. Otherwise it is a sequence of
 * actions of a member that knows the id of the cluster: frames with valid
 * headers, whose messages are arbitrary, see run_action(). The node may stop
 * with an error, because members trust each other, but must not do anything
 * undefined. */
#include <stdlib.h>

#include "log/directory.h"
#include "node/state.h"
#include "sim/sim_disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEER 2         /* the member that sends the frames */
#define INCARNATION 10 /* of that member */
#define INCOMING 1     /* the link from it */
#define OUTGOING 100   /* the link to it */

struct world {
    struct sim_disk *disk;
    struct hf_disk *attached;
    struct hf_node *node;
    hf_time now;
    uint64_t frames; /* sent so far */
    bool is_stopped;
    bool is_refused; /* the node has closed the incoming link */
};

/* ---- The shell ----------------------------------------------------------*/

static void send_bytes(void *arg, uint64_t id, const void *bytes, size_t size)
{
    (void)arg;
    (void)id;
    if (!bytes || size == 0)
        abort();
}

static void close_link(void *arg, uint64_t link, const char *why)
{
    struct world *world = arg;

    if (!why)
        abort();
    if (link == INCOMING)
        world->is_refused = true;
}

static void close_client(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static void pause_client(void *arg, uint64_t conn, bool stop_reading)
{
    (void)arg;
    (void)conn;
    (void)stop_reading;
}

static void stop_node(void *arg, const struct hf_error *error)
{
    struct world *world = arg;

    if (!error->code || !*error->text)
        abort();
    world->is_stopped = true;
}

static const struct hf_node_ops ops = {
    .send_link = send_bytes,
    .close_link = close_link,
    .send_client = send_bytes,
    .close_client = close_client,
    .pause_client = pause_client,
    .stop = stop_node,
};

static void open_world(struct world *world)
{
    static const struct hf_node_member members[] = {
        {1, "127.0.0.1:1", "127.0.0.1:11"},
        {2, "127.0.0.1:2", "127.0.0.1:12"},
        {3, "127.0.0.1:3", "127.0.0.1:13"},
    };
    const struct hf_log_identity identity = {
        .cluster = {"cluster"},
        .node = 1,
        .secret = {"secret"},
        .segment_size = HF_WAL_SEGMENT_SIZE_MIN,
    };
    const struct hf_node_opts opts = {
        .cluster = identity.cluster,
        .id = 1,
        .members = members,
        .member_count = 3,
        .history_bytes = HF_HISTORY_MIN,
    };
    struct hf_error error;

    *world = (struct world){.disk = sim_disk_new(), .now = 1000};
    world->attached = sim_disk_attach(world->disk);
    if (hf_log_directory_init(world->attached, &identity, &error))
        abort();
    world->attached->ops->close_directory(world->attached);
    world->attached = sim_disk_attach(world->disk);
    if (hf_node_open(&opts, &ops, world, world->attached, world->now,
                     &world->node, &error))
        abort();
    hf_node_on_peer_up(world->node, PEER, OUTGOING);
    hf_node_on_link_open(world->node, INCOMING);
}

static void close_world(struct world *world)
{
    hf_node_close(world->node);
    world->attached->ops->close_directory(world->attached);
    sim_disk_free(world->disk);
}

/* Run what the node wants to do now. */
static void turn(struct world *world)
{
    struct hf_node *node = world->node;
    struct hf_wal_upkeep upkeep;
    struct hf_wal_flush flush;
    struct hf_node_job *job;

    hf_node_turn(node, world->now);
    if (hf_node_flush_begin(node, &flush)) {
        hf_wal_flush_run(&flush);
        hf_node_flush_end(node, &flush);
    }
    if (hf_node_upkeep_begin(node, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        hf_node_upkeep_end(node, &upkeep);
    }
    job = hf_node_job_begin(node);
    if (job) {
        hf_node_job_run(job);
        hf_node_job_end(node, job);
    }
    hf_node_turn(node, world->now);
}

/* ---- The peer -----------------------------------------------------------*/

static void send_frame(struct world *world, struct hf_buf *frame)
{
    const uint32_t size = (uint32_t)frame->size;
    const uint8_t head[] = {(uint8_t)size, (uint8_t)(size >> 8),
                            (uint8_t)(size >> 16), (uint8_t)(size >> 24)};

    hf_node_on_link_data(world->node, INCOMING, head, sizeof(head));
    hf_node_on_link_data(world->node, INCOMING, frame->data, frame->size);
    hf_buf_fini(frame);
}

static void send_hello(struct world *world)
{
    const struct hf_packet_hello hello = {
        .protocol_min = HF_PACKET_PROTOCOL,
        .protocol_max = HF_PACKET_PROTOCOL,
        .cluster = {"cluster"},
        .from = PEER,
        .to = 1,
        .incarnation = INCARNATION,
        .version = HF_VERSION_NEWEST,
    };
    struct hf_buf frame = {0};

    hf_packet_encode_hello(&frame, &hello);
    send_frame(world, &frame);
}

/* Send a message of `kind` with the next `size` bytes of the input. */
static void send_message(struct world *world, uint8_t kind, size_t size,
                         struct hf_reader *input)
{
    struct hf_frames frames = {
        .incarnation = world->node->incarnation,
        .sent = world->frames++,
    };
    struct hf_buf frame = {0};

    if (size > input->size)
        size = input->size;
    hf_frames_begin(&frames, PEER, INCARNATION, &frame);
    hf_buf_u8(&frame, 0);
    hf_buf_u8(&frame, kind);
    hf_buf_bytes(&frame, input->data, size);
    input->data += size;
    input->size -= size;
    send_frame(world, &frame);
}

/* An action has two bytes. If the first is 0, time passes, and the second says
 * how much. Otherwise the first is the kind of a message and the second its
 * size, and the message follows. */
static void run_action(struct world *world, struct hf_reader *input)
{
    uint8_t kind = hf_reader_u8(input) % (HF_PACKET_KINDS + 1);
    uint8_t byte = hf_reader_u8(input);

    if (kind == 0)
        world->now += 4 * byte;
    else
        send_message(world, kind, byte, input);
    turn(world);
}

static void send_strange_bytes(struct world *world, struct hf_reader *input,
                               bool whole)
{
    size_t step = whole ? input->size : 1;

    for (; input->size > 0 && !world->is_refused; input->size -= step) {
        hf_node_on_link_data(world->node, INCOMING, input->data, step);
        input->data += step;
        turn(world);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_reader input = {.data = data, .size = size};
    uint8_t mode = hf_reader_u8(&input);
    struct world world;

    open_world(&world);
    turn(&world);
    if (mode & 1) {
        send_hello(&world);
        while (input.size > 0 && !world.is_stopped && !world.is_refused)
            run_action(&world, &input);
    } else {
        send_strange_bytes(&world, &input, mode & 2);
        if (world.is_stopped)
            abort();
    }
    if (!world.is_stopped && !world.is_refused)
        hf_node_on_link_closed(world.node, INCOMING);
    turn(&world);
    close_world(&world);
    return 0;
}
