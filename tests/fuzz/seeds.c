/* seeds.c - generate the initial inputs (the corpus) of the fuzz targets:
 *
 *     seeds tests/fuzz/corpus
 *
 * The output is always the same. Run it again after a format has changed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/random.h"
#include "core/quorum/message.h"
#include "core/snapshot.h"
#include "lib/pair.h"
#include "log/record.h"
#include "node/packet.h"
#include "raft/membership.h"
#include "raft/message.h"
#include "wire/mux.h"

static const char *folder;

static void write_file(const char *target, const char *name, const void *data,
                       size_t size)
{
    char path[4096];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, target);
    (void)mkdir(folder, 0777);
    (void)mkdir(path, 0777);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
    file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) {
        perror(path);
        exit(1);
    }
}

static void write_numbered(const char *target, int number, const void *data,
                           size_t size)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "%02d", number);
    write_file(target, name, data, size);
}

static void write_commands(void)
{
    struct hf_command command = {
        .version = HF_VERSION_NEWEST,
        .lease_ms = 10675,
        .session = 3,
        .sequence = 7,
        .done = 5,
        .token = 9,
        .generation = 2,
        .nonce = {"0123456789abcde"},
        .key = {"nightly", 7},
        .value = {"value", 5},
        .expected = {"old", 3},
        .note = {"note", 4},
    };
    struct hf_result result = {HF_EBUSY, 1, 2, 3, 4};
    struct hf_buf buf = {0};
    int number = 0;

    for (int kind = 1; kind < HF_COMMAND_KINDS; kind++) {
        for (int flag = 0; flag < 2; flag++) {
            command.kind = (enum hf_command_kind)kind;
            command.queue = flag && kind == HF_COMMAND_LOCK;
            command.now = flag && kind == HF_COMMAND_FORCE;
            command.has_expected = flag && kind == HF_COMMAND_UPDATE;
            buf.size = 0;
            hf_command_encode(&command, HF_VERSION_NEWEST, &buf);
            write_numbered("fuzz_command", number++, buf.data, buf.size);
        }
    }
    buf.size = 0;
    hf_command_encode_result(&result, &buf);
    write_numbered("fuzz_command", number, buf.data, buf.size);
    hf_buf_fini(&buf);
}

static void write_urls(void)
{
    static const char *const urls[] = {
        "memory:jobs",
        "memory:a%20b?require=fence,fifo",
        "file:///var/lib/locks?mode=0700",
        "redis://user:secret@one:6379,two:6380/3?prefix=hf%3a&wait=1",
        "@host/path?x=y",
        "%20@host",
        "raft://[::1]:7000,[::2]:7000",
        "mongodb://a/b?a=1&b=2&a=3",
        "memory:x?",
        "memory:x?a",
        "memory:%",
        "a+b-c:?=&=",
        ":x",
        "#",
    };

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
        write_numbered("fuzz_url", (int)i, urls[i], strlen(urls[i]));
}

/* Write streams for fuzz_resp. Bit 0 of the first byte selects requests (1) or
 * replies (0); the other bits are the size of the pieces minus 1. */
static void write_streams(void)
{
    static const char *const streams[] = {
        "\x01PING\r\n  LOCK a\t5 \n\n*1\r\n$4\r\nPING\r\n",
        "\x05*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n*0\r\n*-1\r\nQUIT\r\n",
        "\x03*100000000\r\n",
        "\x07*1\r\n$100000000\r\n",
        "\x09*4\r\n$1\r\n5\r\n$4\r\nREAD\r\n$3\r\nkey\r\n$1\r\n1\r\n",
        "\x0b*4\r\n$1\r\n5\r\n$4\r\nOPEN\r\n$16\r\n0123456789abcdef\r\n"
        "$1\r\nl\r\n",
        "\x02+OK\r\n-BUSY held\r\n:-12\r\n$-1\r\n*-1\r\n",
        "\x04*3\r\n:1\r\n*2\r\n+a\r\n$-1\r\n:2\r\n",
        "\x06*6\r\n:7\r\n$4\r\nheld\r\n:1\r\n:2\r\n:0\r\n:9\r\n",
        "\x08*6\r\n:0\r\n$5\r\nGRANT\r\n$16\r\n0123456789abcdef\r\n:1\r\n:0\r\n"
        ":-1\r\n",
        "\x0a*1\r\n*1\r\n*1\r\n",
        "\x01\r\nPING\r\n",
    };

    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
        write_numbered("fuzz_resp", (int)i, streams[i], strlen(streams[i]));
}

/* Add what a client sends to fuzz_clients, over the connection `conn`. */
static void add_input(struct hf_buf *buf, unsigned conn, const void *data,
                      size_t size)
{
    const uint8_t *at = data;

    while (size > 0) {
        size_t part = size < 255 ? size : 255;

        hf_buf_u8(buf, (uint8_t)((conn - 1) << 3 | 5));
        hf_buf_u8(buf, (uint8_t)part);
        hf_buf_raw(buf, at, part);
        at += part;
        size -= part;
    }
}

/* Add an action of fuzz_clients with its argument. */
static void add_action(struct hf_buf *buf, uint8_t kind, uint8_t argument)
{
    hf_buf_u8(buf, kind);
    hf_buf_u8(buf, argument);
}

/* Add a MUX client that opens a session and locks "k". */
static void add_mux_client(struct hf_buf *input, unsigned conn, bool queue)
{
    struct hf_mux_request request = {
        .id = 1,
        .verb = HF_VERB_OPEN,
        .secret = {{(uint8_t)conn}},
        .label = {"label", 5},
    };
    const struct hf_command lock = {
        .kind = HF_COMMAND_LOCK,
        .session = conn,
        .sequence = 1,
        .done = 1,
        .key = {"k", 1},
        .nonce = {{(uint8_t)conn}},
        .lease_ms = 1000,
        .queue = queue,
    };
    struct hf_buf command = {0};
    struct hf_buf bytes = {0};

    hf_mux_write_hello(&bytes);
    hf_mux_request_encode(&request, &bytes);
    hf_command_encode(&lock, HF_VERSION_NEWEST, &command);
    request = (struct hf_mux_request){
        .id = 2,
        .verb = HF_VERB_DO,
        .remaining_ms = 1000,
        .command = {command.data, command.size},
    };
    hf_mux_request_encode(&request, &bytes);
    add_input(input, conn, bytes.data, bytes.size);
    hf_buf_fini(&command);
    hf_buf_fini(&bytes);
}

static void write_clients(void)
{
    static const char *const texts[] = {
        "PING\r\nECHO a\r\nCOMMAND\r\nHELLO 1\r\nINFO\r\nSTATUS\r\nQUIT\r\n",
        "LOCK k 1000 NONCE 000000000000000000000000000000aa VALUE v NOTE n\r\n"
        "RENEW k 000000000000000000000000000000aa 1 1000\r\n"
        "UPDATE k 000000000000000000000000000000aa 1 w IF v\r\n"
        "UNLOCK k 000000000000000000000000000000aa 1\r\n",
        "LOCK k 1000\r\nREAD k\r\nREAD k LOCAL\r\nLIST\r\n"
        "LIST k AFTER 0 COUNT 1\r\nFORCE k 1\r\nFORCE k 1 NOW\r\n"
        "LOOKUP k 000000000000000000000000000000aa\r\n"
        "CANCEL k 000000000000000000000000000000aa\r\n",
        "LOCK k 60000 WAIT 20000\r\n",
        "WATCH k FROM 1\r\nPING\r\nUNWATCH\r\n",
        "*100000000\r\n",
        "*2\r\n$4\r\nREAD\r\n$100000\r\n",
        "HELLO 1 MUX\r\n1 WATCH 1 k 1 0\r\n2 LIST k 1\r\n3 READ k 0\r\n"
        "4 UNWATCH 1\r\n5 STATUS\r\n6 PING\r\n7 DETACH\r\n8 NONSENSE\r\n"
        "9 LOOKUP k 000000000000000000000000000000aa 1\r\nPING\r\n",
    };
    const size_t count = sizeof(texts) / sizeof(texts[0]);

    for (size_t i = 0; i < 2 * count; i++) {
        struct hf_buf input = {0};

        add_input(&input, 2, "LOCK k 2000\r\n", 13);
        if (i >= count) { /* with a MUX client that waits, and with faults */
            add_mux_client(&input, 3, true);
            add_action(&input, 3, (uint8_t)(i * 37));
        }
        add_input(&input, 1, texts[i % count], strlen(texts[i % count]));
        add_action(&input, 2, (uint8_t)(32 * (i % 3)));
        add_action(&input, 1, 60);
        add_action(&input, 3, 0);
        add_action(&input, 1, 255);
        if (i % 4 == 3)
            hf_buf_u8(&input, 4); /* restore a snapshot */
        write_numbered("fuzz_clients", (int)i, input.data, input.size);
        hf_buf_fini(&input);
    }
}

/* Add a message for fuzz_peers, in a frame of a member. */
static void add_message(struct hf_buf *input, enum hf_packet_kind kind,
                        struct hf_buf *message)
{
    hf_buf_u8(input, (uint8_t)kind);
    hf_buf_u8(input, (uint8_t)message->size);
    hf_buf_raw(input, message->data, message->size);
    message->size = 0;
}

static void add_raft_messages(struct hf_buf *input, struct hf_buf *message,
                              int kind)
{
    static const struct hf_entry entries[] = {{2, HF_ENTRY_BARRIER, {NULL, 0}}};
    struct hf_message raft = {
        .kind = (enum hf_message_kind)kind,
        .term = 2,
        .version = 1,
    };

    if (raft.kind == HF_MESSAGE_APPEND)
        raft.append = (struct hf_message_append){0, 0, 0, entries, 1};
    hf_message_encode(message, &raft);
    add_message(input, HF_PACKET_RAFT, message);
}

static void add_packets(struct hf_buf *input, struct hf_buf *message)
{
    const struct hf_packet_forward forward = {1, 1000, {"\1\3", 2}};
    const struct hf_packet_reply reply = {.number = 1, .is_leader = true};
    const struct hf_packet_read_reply read = {1, true, 1};
    const struct hf_node_grant grant = {.session = 1, .token = 1};
    const struct hf_packet_snapshot part = {2, 5, 2, 100, 0, {"abc", 3}};
    const struct hf_packet_snapshot_ack ack = {5, 3};

    hf_packet_encode_forward(message, &forward);
    add_message(input, HF_PACKET_FORWARD, message);
    hf_packet_encode_reply(message, &reply);
    add_message(input, HF_PACKET_REPLY, message);
    hf_buf_u64(message, 7);
    add_message(input, HF_PACKET_READ, message);
    hf_packet_encode_read_reply(message, &read);
    add_message(input, HF_PACKET_READ_REPLY, message);
    hf_buf_u64(message, 7);
    add_message(input, HF_PACKET_ATTACH, message);
    hf_buf_u64(message, 7);
    add_message(input, HF_PACKET_DETACH, message);
    hf_packet_encode_push(message, &grant);
    add_message(input, HF_PACKET_PUSH, message);
    hf_packet_encode_snapshot(message, &part);
    add_message(input, HF_PACKET_SNAPSHOT, message);
    hf_packet_encode_ack(message, &ack);
    add_message(input, HF_PACKET_SNAPSHOT_ACK, message);
}

/* The first byte selects bytes of a stranger (0 or 2) or messages of a member
 * (1). */
static void write_peers(void)
{
    static const char *const strange[] = {
        "\2\xff\xff\xff\xff",
        "\2\x10\1\1\1 sixteen bytes...",
        "\2PING\r\n",
    };
    struct hf_buf message = {0};
    int number = 0;

    for (; number < 3; number++)
        write_numbered("fuzz_peers", number, strange[number],
                       strlen(strange[number]));
    for (int kind = HF_MESSAGE_HELLO; kind <= HF_MESSAGE_LEADER_LOST + 1;
         kind++) {
        struct hf_buf input = {0};

        hf_buf_u8(&input, 1);
        if (kind > HF_MESSAGE_LEADER_LOST)
            add_packets(&input, &message);
        else
            add_raft_messages(&input, &message, kind);
        add_action(&input, 0, 250); /* time passes */
        add_action(&input, 0, 250);
        add_packets(&input, &message);
        write_numbered("fuzz_peers", number++, input.data, input.size);
        hf_buf_fini(&input);
    }
    hf_buf_fini(&message);
}

/* Add a write for fuzz_arena. The kinds are: 0 an entry, 1 a snapshot, 2 a
 * snapshot without its checksum, 3 an entry with its header, 4 an offset and
 * bytes, 5 the fields of a command. */
static void add_write(struct hf_buf *buf, uint8_t kind, const void *data,
                      size_t size)
{
    const uint8_t head[] = {kind, (uint8_t)size, (uint8_t)(size >> 8)};

    hf_buf_raw(buf, head, sizeof(head));
    hf_buf_raw(buf, data, size);
}

static void write_arena(int number, const struct hf_buf *snapshot)
{
    static const char *const labels[] = {"alice", "bob"};
    /* The offset of the tail in the header, and a value for it: a position
     * beyond the last entry. */
    const uint32_t tail_write[] = {128, 24768 + 4 * (uint32_t)number};
    static const char broken[] = "\x20\0\0\0\x10\0\0\0 and its stamp and bytes";
    struct hf_buf entry = {0};
    struct hf_buf input = {0};

    add_write(&input, 2, snapshot->data, snapshot->size - 8);
    for (size_t i = 0; i < 2; i++) {
        struct hf_command open = {
            .kind = HF_COMMAND_OPEN,
            .nonce = {{(uint8_t)(i + 1)}},
            .note = hf_bytes_of(labels[i]),
        };

        entry.size = 0;
        hf_command_encode(&open, HF_VERSION_NEWEST, &entry);
        add_write(&input, 0, entry.data, entry.size);
    }
    add_write(&input, 3, broken, sizeof(broken));
    add_write(&input, 4, tail_write, sizeof(tail_write));
    write_numbered("fuzz_arena", number, input.data, input.size);
    hf_buf_fini(&entry);
    hf_buf_fini(&input);
}

/* Write random steps for fuzz_table, and the snapshots of the resulting tables
 * for fuzz_snapshot and fuzz_arena. */
static void write_tables(void)
{
    for (int number = 0; number < 24; number++) {
        struct hf_random random;
        struct hf_pair pair;
        struct hf_buf steps = {0};
        struct hf_buf snapshot = {0};
        size_t count = 4 + 4 * (size_t)number;

        hf_random_init(&random, (uint64_t)number + 1);
        hf_pair_init(&pair);
        for (size_t i = 0; i < count; i++) {
            uint8_t chance[24];
            struct hf_reader bytes = {.data = chance, .size = sizeof(chance)};

            if (hf_random_bytes(&random, chance, sizeof(chance)) ||
                hf_pair_step(&pair, &bytes))
                exit(1);
            hf_buf_raw(&steps, chance, sizeof(chance) - bytes.size);
        }
        hf_snapshot_encode(&pair.table, &snapshot);
        write_numbered("fuzz_table", number, steps.data, steps.size);
        write_numbered("fuzz_snapshot", number, snapshot.data, snapshot.size);
        write_arena(number, &snapshot);
        hf_pair_fini(&pair);
        hf_buf_fini(&steps);
        hf_buf_fini(&snapshot);
    }
}

static void write_raft_messages(void)
{
    static const struct hf_entry entries[] = {
        {3, HF_ENTRY_COMMAND, {"abc", 3}},
        {4, HF_ENTRY_BARRIER, {NULL, 0}},
    };
    struct hf_membership members = {{1, 2, 300}, 3};
    struct hf_buf buf = {0};
    int number = 0;

    for (int kind = HF_MESSAGE_HELLO; kind <= HF_MESSAGE_LEADER_LOST; kind++) {
        struct hf_message message = {
            .kind = (enum hf_message_kind)kind,
            .term = 5,
            .version = 2,
        };

        if (message.kind == HF_MESSAGE_APPEND)
            message.append = (struct hf_message_append){7, 3, 6, entries, 2};
        buf.size = 0;
        hf_message_encode(&buf, &message);
        write_numbered("fuzz_raft_message", number++, buf.data, buf.size);
    }
    buf.size = 0;
    hf_membership_encode(&buf, &members);
    write_numbered("fuzz_raft_message", number, buf.data, buf.size);
    hf_buf_fini(&buf);
}

/* Add a record for fuzz_log, which fills in the checksum and the chain. */
static void add_record(struct hf_buf *buf, struct hf_log_state *state,
                       uint64_t index, size_t count)
{
    static const struct hf_seed zero;
    struct hf_log_entry entries[4];
    struct hf_buf record = {0};
    struct hf_record header = {.state = *state};

    for (size_t i = 0; i < count; i++)
        entries[i] = (struct hf_log_entry){state->term, 1, {"command", i * 2}};
    hf_record_start(&record);
    if (count > 0)
        hf_record_add_entries(&record, index, entries, count);
    else if (index > 0)
        hf_record_add_base(&record, index, state->term);
    header.size = (uint32_t)record.size;
    hf_record_pad(&record);
    hf_record_seal(record.data, record.size, &header, &zero);
    hf_buf_raw(buf, record.data, record.size);
    hf_buf_fini(&record);
    if (index > 0) {
        state->last_index = count > 0 ? index + count - 1 : index;
        state->last_term = state->term;
    }
}

static void write_logs(void)
{
    for (int number = 0; number < 8; number++) {
        struct hf_log_state state = {.term = 1, .vote = (uint64_t)number % 3};
        struct hf_buf buf = {0};

        for (int i = 0; i < number + 1; i++) {
            add_record(&buf, &state, state.last_index + 1, 1 + (size_t)i % 4);
            state.term += (uint64_t)i % 2;
        }
        if (number % 2 == 1) {
            add_record(&buf, &state, state.last_index, 2);
            add_record(&buf, &state, 0, 0);
            add_record(&buf, &state, state.last_index + 9, 0);
        }
        write_numbered("fuzz_log", number, buf.data, buf.size);
        hf_buf_fini(&buf);
    }
}

/* Write a message of each kind for fuzz_quorum. */
static void write_quorum_messages(void)
{
    struct hf_claim_data data = {{"value", 5}, {"note", 4}, {"owner", 5}};
    struct hf_buf buf = {0};
    int number = 0;

    for (int kind = 1; kind < HF_QUORUM_REQUEST_KINDS; kind++) {
        struct hf_quorum_request request = {
            .kind = (enum hf_quorum_request_kind)kind,
            .key = {"nightly", 7},
            .nonce = {"0123456789abcde"},
            .number = 9,
            .token = 7,
            .ballot = 8,
            .ticket = 5,
            .serial = 3,
            .lease_ms = 10675,
            .fast = true,
        };

        if (kind == HF_QUORUM_ASK || kind == HF_QUORUM_COMMIT)
            request.data = data;
        buf.size = 0;
        hf_message_encode_request(&request, &buf);
        write_numbered("fuzz_quorum", number++, buf.data, buf.size);
    }
    for (int kind = 1; kind < HF_QUORUM_REPLY_KINDS; kind++) {
        struct hf_quorum_reply reply = {
            .kind = (enum hf_quorum_reply_kind)kind,
            .number = 9,
            .highest = 10,
            .serial = 3,
            .report = {.promised = 9,
                       .state = (enum hf_report_state)(kind % 4),
                       .ballot = kind % 4 ? 8 : 0,
                       .token = kind % 4 ? 7 : 0,
                       .has_vote = kind % 3 == 0,
                       .vote_number = kind % 3 == 0 ? 6 : 0,
                       .ended_count = (uint8_t)(kind % 3),
                       .data = data},
        };

        buf.size = 0;
        hf_message_encode_reply(&reply, &buf);
        write_numbered("fuzz_quorum", number++, buf.data, buf.size);
    }
    hf_buf_fini(&buf);
}

/* Write random steps for the master of fuzz_quorum. */
static void write_quorum_steps(void)
{
    for (int number = 20; number < 36; number++) {
        struct hf_random random;
        uint8_t bytes[400];
        size_t size = 0;

        hf_random_init(&random, (uint64_t)number);
        while (size + 12 < sizeof(bytes)) {
            uint8_t claim = (uint8_t)hf_random_below(&random, 4);
            uint8_t step[12] = {
                (uint8_t)(hf_random_below(&random, 16) << 4 | claim),
                (uint8_t)(1 + hf_random_below(&random, 7)),
                (uint8_t)hf_random_below(&random, 64),
                0,
                claim,
                (uint8_t)(1 + size / 12 + hf_random_below(&random, 3)),
                (uint8_t)(1 + size / 24),
                (uint8_t)(size / 24),
                (uint8_t)(1 + size / 24),
                (uint8_t)(1 + size / 12),
                25,
            };

            memcpy(bytes + size, step, sizeof(step));
            size += step[0] >> 4 == 1   ? 1
                    : step[0] >> 4 <= 2 ? 2
                                        : sizeof(step) - 1;
        }
        write_numbered("fuzz_quorum", number, bytes, size);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: seeds FOLDER\n");
        return 64;
    }
    folder = argv[1];
    write_commands();
    write_quorum_messages();
    write_quorum_steps();
    write_urls();
    write_streams();
    write_clients();
    write_peers();
    write_tables();
    write_raft_messages();
    write_logs();
    return 0;
}
