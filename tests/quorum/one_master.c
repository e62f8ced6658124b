#include "quorum/one_master.h"

#include "lib/runner.h"

/* ---- The master ---------------------------------------------------------*/

static void on_push(void *arg, uint64_t conn, const struct hf_claim_id *id,
                    const struct hf_quorum_reply *reply)
{
    struct one_master *one = arg;

    assert_true(one->pushed < ONE_PUSHES_MAX);
    one->pushes[one->pushed++] = (struct one_push){conn, *id, *reply};
}

static void on_changed(void *arg, const struct hf_record *record)
{
    struct one_master *one = arg;

    assert_non_null(record);
    one->changes++;
}

struct hf_master_opts one_master_opts(void)
{
    return (struct hf_master_opts){
        .mark = HF_QUORUM_MARK_STEP,
        .lease_max_ms = ONE_LEASE_MAX_MS,
        .bytes_max = 1 << 20,
    };
}

void one_master_init(struct one_master *one, const struct hf_master_opts *opts)
{
    static const struct hf_master_ops ops = {
        .push = on_push,
        .changed = on_changed,
    };
    struct hf_master_opts usual = one_master_opts();

    *one = (struct one_master){.now = 5000000};
    hf_master_init(&one->master, opts ? opts : &usual, &ops, one);
}

void one_master_fini(struct one_master *one)
{
    hf_master_fini(&one->master);
}

/* ---- Requests -----------------------------------------------------------*/

struct hf_nonce one_nonce(unsigned claim)
{
    return (struct hf_nonce){
        {(uint8_t)claim, (uint8_t)(claim >> 8), (uint8_t)(claim >> 16)}};
}

struct hf_claim_id one_id(unsigned claim)
{
    struct hf_nonce nonce = one_nonce(claim);

    return hf_claim_id_of(&nonce);
}

static struct hf_quorum_request make_request(enum hf_quorum_request_kind kind,
                                             unsigned claim)
{
    static const char digits[] = "0123456789";

    return (struct hf_quorum_request){
        .kind = kind,
        .key = hf_key_of("k"),
        .nonce = one_nonce(claim),
        .data = {.value = {&digits[claim % 10], 1}},
    };
}

struct hf_quorum_request one_ask(unsigned claim, uint64_t number)
{
    struct hf_quorum_request request = make_request(HF_QUORUM_ASK, claim);

    request.number = number;
    request.ticket = number;
    request.lease_ms = ONE_LEASE_MS;
    return request;
}

struct hf_quorum_request one_wait(unsigned claim, uint64_t number)
{
    struct hf_quorum_request request = one_ask(claim, number);

    request.queue = true;
    return request;
}

struct hf_quorum_request one_fast(unsigned claim, uint64_t number)
{
    struct hf_quorum_request request = one_ask(claim, number);

    request.fast = true;
    return request;
}

struct hf_quorum_request one_prepare(unsigned claim, uint64_t number)
{
    struct hf_quorum_request request = make_request(HF_QUORUM_PREPARE, claim);

    request.number = number;
    return request;
}

struct hf_quorum_request one_commit(unsigned claim, uint64_t number)
{
    return one_repair(claim, number, number);
}

struct hf_quorum_request one_repair(unsigned claim, uint64_t number,
                                    uint64_t token)
{
    struct hf_quorum_request request = make_request(HF_QUORUM_COMMIT, claim);

    request.number = number;
    request.token = token;
    request.lease_ms = ONE_LEASE_MS;
    return request;
}

struct hf_quorum_request one_renew(unsigned claim, uint64_t token)
{
    struct hf_quorum_request request = make_request(HF_QUORUM_RENEW, claim);

    request.token = token;
    request.lease_ms = ONE_LEASE_MS;
    return request;
}

struct hf_quorum_request one_end(unsigned claim, uint64_t number,
                                 uint64_t ballot)
{
    struct hf_quorum_request request = make_request(HF_QUORUM_END, claim);

    request.number = number;
    request.ballot = ballot;
    return request;
}

struct hf_quorum_request one_force(uint64_t token, bool now)
{
    struct hf_quorum_request request = make_request(HF_QUORUM_FORCE, 0);

    request.token = token;
    request.now = now;
    return request;
}

struct hf_quorum_request one_read(void)
{
    return make_request(HF_QUORUM_READ, 0);
}

/* ---- Steps --------------------------------------------------------------*/

enum hf_quorum_reply_kind one_send_over(struct one_master *one, uint64_t conn,
                                        struct hf_quorum_request request)
{
    if (request.serial == 0)
        request.serial = ++one->serial;
    hf_master_receive(&one->master, one->now, conn, &request, &one->reply);
    assert_true(one->reply.number == request.number);
    assert_int_equal(one->reply.serial, request.serial);
    return one->reply.kind;
}

enum hf_quorum_reply_kind one_send(struct one_master *one,
                                   struct hf_quorum_request request)
{
    return one_send_over(one, request.nonce.bytes[0], request);
}

void one_advance(struct one_master *one, hf_time ms)
{
    one->now += ms;
    hf_master_advance(&one->master, one->now);
    assert_true(hf_master_deadline(&one->master) > one->now);
}

struct hf_report one_report(struct one_master *one)
{
    struct hf_report report;

    hf_master_report(&one->master, hf_key_of("k"), true, &report);
    return report;
}

struct hf_quorum_reply one_take_push(struct one_master *one, unsigned claim,
                                     enum hf_quorum_reply_kind kind)
{
    struct hf_claim_id id = one_id(claim);
    struct one_push *push = &one->pushes[one->pushed - 1];

    assert_true(one->pushed > 0);
    one->pushed = 0;
    assert_int_equal(push->reply.kind, kind);
    assert_int_equal(push->reply.serial, 0);
    assert_true(hf_claim_id_equal(&push->id, &id));
    return push->reply;
}
