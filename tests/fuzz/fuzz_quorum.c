/* fuzz_quorum.c - a decoded message of the quorum encodes to the same bytes
 * again, and no sequence of requests breaks a master.
 *
 * For the master, the input is a list of steps: a byte that selects the step
 * and its connection, and the bytes of a request, each member of which is a
 * byte. Requests that cannot be decoded are not sent. */
#include <stdlib.h>

#include "core/quorum/master.h"
#include "core/quorum/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    STEPS_MAX = 400,
    KEYS = 3,
    CONNS = 4,
    LEASE_MAX_MS = 60000,
};

static void check(bool is_true)
{
    if (!is_true)
        abort();
}

/* ---- Messages -----------------------------------------------------------*/

static void check_same(const struct hf_buf *buf, const uint8_t *data,
                       size_t size)
{
    check(buf->size == size && memcmp(buf->data, data, size) == 0);
}

static void check_messages(const uint8_t *data, size_t size)
{
    struct hf_bytes bytes = {data, size};
    struct hf_quorum_request request;
    struct hf_quorum_reply reply;
    struct hf_buf buf = {0};

    if (!hf_message_decode_request(&request, bytes)) {
        hf_message_encode_request(&request, &buf);
        check_same(&buf, data, size);
    }
    buf.size = 0;
    if (!hf_message_decode_reply(&reply, bytes)) {
        hf_message_encode_reply(&reply, &buf);
        check_same(&buf, data, size);
    }
    hf_buf_fini(&buf);
}

/* What a master sends can be decoded. */
static void check_reply(const struct hf_quorum_reply *reply)
{
    struct hf_quorum_reply decoded;
    struct hf_buf buf = {0}, again = {0};

    hf_message_encode_reply(reply, &buf);
    check(!hf_message_decode_reply(&decoded,
                                   (struct hf_bytes){buf.data, buf.size}));
    hf_message_encode_reply(&decoded, &again);
    check_same(&again, buf.data, buf.size);
    hf_buf_fini(&buf);
    hf_buf_fini(&again);
}

/* ---- The master ---------------------------------------------------------*/

static const char keys[KEYS][2] = {"a", "b", "c"};

struct run {
    struct hf_master master;
    hf_time now;
    uint64_t promised[KEYS];
    uint64_t highest;
};

static void on_push(void *arg, uint64_t conn, const struct hf_claim_id *id,
                    const struct hf_quorum_reply *reply)
{
    (void)arg;
    (void)id;
    check(conn < CONNS);
    check(reply->kind == HF_QUORUM_VOTE || reply->kind == HF_QUORUM_LOW);
    check_reply(reply);
}

static const struct hf_master_ops ops = {.push = on_push};

/* A promise and the numbers of a master never fall, and never exceed the mark.
 * A free key has no first claim with a number that is high enough. */
static void check_master(struct run *run)
{
    for (unsigned i = 0; i < KEYS; i++) {
        struct hf_key key = {keys[i], 1};
        struct hf_record *record = hf_master_find(&run->master, key);
        struct hf_bid *first =
            record ? hf_record_first(record, run->master.now) : NULL;
        struct hf_report report;

        hf_master_report(&run->master, key, true, &report);
        check(report.promised >= run->promised[i]);
        check(report.promised <= run->master.mark);
        run->promised[i] = report.promised;
        check(!record || !first || !hf_record_is_free(record) ||
              first->number <= record->promised);
    }
    check(run->master.highest >= run->highest);
    run->highest = run->master.highest;
    check(hf_master_deadline(&run->master) > run->master.now);
}

/* Read a request, in which every number is small. */
static void read_request(struct hf_reader *reader,
                         struct hf_quorum_request *request)
{
    uint8_t kind = hf_reader_u8(reader), flags = hf_reader_u8(reader);
    uint8_t key = hf_reader_u8(reader);

    *request = (struct hf_quorum_request){
        .kind = kind % HF_QUORUM_REQUEST_KINDS,
        .key = {keys[key % KEYS], 1},
        .nonce = {{hf_reader_u8(reader) % 12}},
        .fast = flags & 1,
        .queue = flags & 2,
        .is_queued = flags & 4,
        .keeps_deadline = flags & 8,
        .now = flags & 16,
        .number = hf_reader_u8(reader),
    };
    request->token = hf_reader_u8(reader);
    request->ballot = hf_reader_u8(reader);
    request->ticket = hf_reader_u8(reader);
    request->serial = hf_reader_u8(reader);
    request->lease_ms = (uint32_t)hf_reader_u8(reader) * 40;
    if (request->kind == HF_QUORUM_ASK || request->kind == HF_QUORUM_COMMIT)
        request->data.value = (struct hf_bytes){"a value", flags >> 5};
}

static void send_request(struct run *run, uint64_t conn,
                         struct hf_reader *reader)
{
    struct hf_quorum_request request, decoded;
    struct hf_quorum_reply reply;
    struct hf_buf buf = {0};

    read_request(reader, &request);
    hf_message_encode_request(&request, &buf);
    if (!hf_message_decode_request(&decoded,
                                   (struct hf_bytes){buf.data, buf.size})) {
        hf_master_receive(&run->master, run->now, conn, &decoded, &reply);
        check_reply(&reply);
    }
    hf_buf_fini(&buf);
}

static void run_step(struct run *run, struct hf_reader *reader)
{
    uint8_t step = hf_reader_u8(reader);

    switch (step >> 4) {
    case 0:
        run->now += hf_reader_u8(reader) * 10;
        hf_master_advance(&run->master, run->now);
        break;
    case 1:
        hf_master_disconnect(&run->master, run->now, step % CONNS);
        break;
    case 2:
        hf_master_set_mark(&run->master, hf_reader_u8(reader));
        break;
    default:
        send_request(run, step % CONNS, reader);
        break;
    }
}

/* When all clients are gone and all leases over, nothing is left. */
static void check_end(struct run *run)
{
    for (uint64_t i = 0; i < CONNS; i++)
        hf_master_disconnect(&run->master, run->now, i);
    for (unsigned i = 0; i < 3; i++) {
        run->now += LEASE_MAX_MS + HF_QUORUM_IDLE_MS;
        hf_master_advance(&run->master, run->now);
        check_master(run);
    }
    check(run->master.records.count == 0);
    check(run->master.bytes == 0);
    check(run->master.bids.bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_master_opts opts = {
        .mark = 100,
        .lease_max_ms = LEASE_MAX_MS,
        .bytes_max = 8192,
    };
    struct run run = {.now = 1000};

    check_messages(data, size);
    hf_master_init(&run.master, &opts, &ops, &run);
    for (unsigned i = 0; i < STEPS_MAX && reader.size > 0; i++) {
        run_step(&run, &reader);
        check_master(&run);
    }
    check_end(&run);
    hf_master_fini(&run.master);
    return 0;
}
