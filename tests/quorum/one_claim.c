#include "quorum/one_claim.h"

#include "lib/runner.h"

static void on_send(void *arg, struct hf_coordinator *coordinator,
                    unsigned master, const struct hf_quorum_request *request)
{
    struct one_claim *one = arg;
    size_t size = request->data.value.size;

    assert_true(coordinator == one->c);
    assert_true(one->common.usable >> master & 1);
    assert_true(size <= sizeof(one->value));
    one->sent[master] = *request;
    one->sent[master].data.value = (struct hf_bytes){one->value, size};
    hf_copy(one->value, request->data.value.data, size);
    one->sent_to |= 1U << master;
}

static void on_event(void *arg, struct hf_coordinator *coordinator,
                     const struct hf_coordinator_event *event)
{
    struct one_claim *one = arg;

    assert_true(coordinator == one->c);
    assert_true(one->event_count < CLAIM_EVENTS_MAX);
    one->events[one->event_count++] = *event;
}

static struct hf_nonce nonce_of(unsigned claim)
{
    return (struct hf_nonce){{(uint8_t)claim}};
}

struct hf_claim_id one_claim_id(unsigned claim)
{
    struct hf_nonce nonce = nonce_of(claim);

    return hf_claim_id_of(&nonce);
}

/* ---- The coordinator ----------------------------------------------------*/

void one_claim_init(struct one_claim *one, unsigned masters)
{
    static const struct hf_coordinator_ops ops = {
        .send = on_send,
        .event = on_event,
    };
    struct hf_claim_data data = {hf_bytes_of("first"), hf_bytes_of("note"),
                                 hf_bytes_of("owner")};
    struct hf_nonce nonce = nonce_of(1);

    *one = (struct one_claim){
        .common = {.quorum = hf_quorum_of(masters),
                   .usable = (1U << masters) - 1,
                   .patience_ms = CLAIM_PATIENCE_MS,
                   .chance = 1},
        .now = 7000000,
    };
    one->c = hf_coordinator_new(&one->common, &ops, one, hf_key_of("k"), &nonce,
                                &data);
    assert_non_null(one->c);
}

void one_claim_fini(struct one_claim *one)
{
    hf_coordinator_free(one->c);
}

void one_claim_lock(struct one_claim *one, bool queue)
{
    hf_coordinator_lock(one->c, one->now, CLAIM_LEASE_MS, queue);
}

void one_claim_hold(struct one_claim *one)
{
    one_claim_lock(one, true);
    (void)one_claim_take_request(one, HF_QUORUM_ASK);
    for (unsigned i = 0; i < one->common.quorum.masters; i++)
        one_claim_vote(one, i);
    assert_int_equal(one_claim_take_event(one, HF_COORDINATOR_GRANTED).token,
                     1);
}

const struct hf_quorum_request *one_claim_take_request(
    struct one_claim *one, enum hf_quorum_request_kind kind)
{
    const struct hf_quorum_request *request = NULL;

    assert_int_equal(one->sent_to, one->common.usable);
    one->sent_to = 0;
    for (unsigned i = 0; i < one->common.quorum.masters; i++) {
        if (!(one->common.usable >> i & 1))
            continue;
        request = &one->sent[i];
        assert_int_equal(request->kind, kind);
    }
    return request;
}

void one_claim_expect_silence(struct one_claim *one)
{
    assert_int_equal(one->sent_to, 0);
}

struct hf_coordinator_event one_claim_take_event(
    struct one_claim *one, enum hf_coordinator_event_kind kind)
{
    assert_int_equal(one->event_count, 1);
    one->event_count = 0;
    assert_int_equal(one->events[0].kind, kind);
    return one->events[0];
}

void one_claim_expect_no_event(struct one_claim *one)
{
    assert_int_equal(one->event_count, 0);
}

void one_claim_advance(struct one_claim *one, hf_time ms)
{
    one->now += ms;
    hf_coordinator_tick(one->c, one->now);
    assert_true(hf_coordinator_deadline(one->c) > one->now);
}

void one_claim_wait(struct one_claim *one)
{
    hf_time deadline = hf_coordinator_deadline(one->c);

    assert_true(deadline < HF_NEVER);
    one_claim_advance(one, deadline - one->now);
}

void one_claim_connect(struct one_claim *one, unsigned master)
{
    one->common.usable |= 1U << master;
    hf_coordinator_connect(one->c, one->now, master);
}

void one_claim_disconnect(struct one_claim *one, unsigned master)
{
    one->common.usable &= ~(1U << master);
    hf_coordinator_disconnect(one->c, one->now, master);
}

/* ---- Replies ------------------------------------------------------------*/

void one_claim_reply(struct one_claim *one, unsigned master,
                     struct hf_quorum_reply reply)
{
    const struct hf_quorum_request *request = &one->sent[master];

    if (reply.number == 0)
        reply.number = request->number;
    if (reply.serial == 0)
        reply.serial = request->serial;
    hf_coordinator_receive(one->c, one->now, master, &reply);
}

void one_claim_reply_kind(struct one_claim *one, unsigned master,
                          enum hf_quorum_reply_kind kind)
{
    one_claim_reply(
        one, master,
        (struct hf_quorum_reply){
            .kind = kind,
            .report.ballot = kind == HF_QUORUM_OK ? one->c->ballot : 0});
}

void one_claim_vote(struct one_claim *one, unsigned master)
{
    const struct hf_quorum_request *ask = &one->sent[master];

    one_claim_reply(one, master,
                    (struct hf_quorum_reply){
                        .kind = HF_QUORUM_VOTE,
                        .anchor = ask->serial,
                        .report = one_claim_voted(1, ask->number, ask->fast)});
}

void one_claim_low(struct one_claim *one, unsigned master, uint64_t highest)
{
    one_claim_reply(one, master,
                    (struct hf_quorum_reply){.kind = HF_QUORUM_LOW,
                                             .highest = highest,
                                             .report = {.promised = highest}});
}

void one_claim_busy(struct one_claim *one, unsigned master, uint32_t position,
                    struct hf_report report)
{
    one_claim_reply(one, master,
                    (struct hf_quorum_reply){.kind = HF_QUORUM_BUSY,
                                             .position = position,
                                             .report = report});
}

void one_claim_report(struct one_claim *one, unsigned master,
                      enum hf_quorum_reply_kind kind, struct hf_report report)
{
    one_claim_reply(one, master,
                    (struct hf_quorum_reply){.kind = kind, .report = report});
}

void one_claim_refuse(struct one_claim *one, unsigned master, enum hf_err err)
{
    one_claim_reply(
        one, master,
        (struct hf_quorum_reply){.kind = HF_QUORUM_REFUSED, .err = err});
}

void one_claim_ended(struct one_claim *one, unsigned master,
                     enum hf_quorum_end end)
{
    one_claim_reply(
        one, master,
        (struct hf_quorum_reply){.kind = HF_QUORUM_ENDED, .end = end});
}

void one_claim_push(struct one_claim *one, unsigned master, uint32_t anchor,
                    uint32_t age_ms)
{
    struct hf_quorum_reply reply = {
        .kind = HF_QUORUM_VOTE,
        .number = one->c->number,
        .anchor = anchor,
        .age_ms = age_ms,
        .report = one_claim_voted(1, one->c->number, one->c->fast),
    };

    hf_coordinator_receive(one->c, one->now, master, &reply);
}

struct hf_report one_claim_held(unsigned claim, uint64_t token, uint64_t ballot,
                                const char *value)
{
    return (struct hf_report){
        .promised = ballot,
        .state = HF_REPORT_HELD,
        .ballot = ballot,
        .token = token,
        .holder = one_claim_id(claim),
        .left_ms = 500,
        .data = {hf_bytes_of(value), hf_bytes_of("note"), hf_bytes_of("owner")},
    };
}

struct hf_report one_claim_voted(unsigned claim, uint64_t number, bool fast)
{
    return (struct hf_report){
        .promised = number,
        .has_vote = true,
        .vote_is_fast = fast,
        .vote_number = number,
        .voter = one_claim_id(claim),
        .vote_left_ms = 400,
        .data = {hf_bytes_of("first"), hf_bytes_of("note"),
                 hf_bytes_of("owner")},
    };
}
