#include "lib/faulty.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "client/call.h"

enum {
    CUES_MAX = 32,
    RECEIVED_MAX = 16
};

enum packet_kind {
    REQUEST, /* in transit to the server, or being executed */
    ANSWER,
    LOSS,    /* the client notices that its connection has failed */
    CLOSING, /* close the session, and report that to the client */
    GRANT,
    EVENT
};

/* A message in transit. The packet of a request is used again for its
 * answer. */
struct packet {
    struct hf_dlist link; /* in `packets` of the network, or in `arrivals` */
    struct hf_dlist all;  /* in `packets` of its client */
    struct hf_faulty *faulty;
    enum packet_kind kind;
    hf_time due;
    uint64_t order; /* among packets that are due at the same time */
    hf_time sent;

    struct hf_request request; /* for the inner strategy */
    /* The client's request, or NULL if nobody awaits an answer. */
    struct hf_request *asked;
    bool lose_answer, hide_anchor;
    bool close_session; /* after the request is executed */
    uint32_t answer_ms;

    struct hf_push_grant grant;
    struct hf_push_event event;
    uint8_t bytes[]; /* copies of what `request` or `event` points to */
};

struct cue {
    enum hf_faulty_what what;
    enum hf_fault fault;
    unsigned count;
    uint32_t ms;
};

/* A request that the server received: when it was sent, by the client's clock,
 * and when it arrived, by the server's. */
struct received {
    hf_time sent;
    hf_time received;
};

struct hf_faulty {
    struct hf_host host; /* of the inner strategy */
    struct hf_host *outer;
    struct hf_faulty_net *net;
    struct hf_dlist link; /* in `clients` of the network */
    const struct hf_strategy *inner;
    void *self;
    uint64_t session; /* counts the sessions of this client, from 1 */
    char url[64];
    struct hf_timer timer;    /* due at the first arrival */
    struct hf_dlist arrivals; /* packets in transit to the client, by time */
    struct hf_dlist packets;  /* every packet of this client */
    hf_time last_event;       /* when the newest event is due */
    /* Set by hf_faulty_step(), which runs outside of the client's turn: answers
     * and pushes then wait for the client's timer. */
    bool outside;
    enum hf_faulty_cut cut;
    struct hf_faulty_odds odds;
    struct cue cues[CUES_MAX];
    unsigned cue_count;
    struct received received[RECEIVED_MAX];
    unsigned received_count;
    unsigned sent[HF_ON_KINDS + 1];
    struct hf_command last[HF_ON_KINDS + 1];
};

static struct hf_faulty_net *current;

hf_time hf_faulty_real_clock(void *arg)
{
    (void)arg;
    return hf_time_now();
}

void hf_faulty_use(struct hf_faulty_net *net)
{
    current = net;
    if (!net)
        return;
    hf_random_init(&net->random, net->seed ? net->seed : 1);
    hf_dlist_init(&net->packets);
    hf_dlist_init(&net->clients);
}

struct hf_faulty *hf_faulty_of(struct hf_client *client)
{
    HF_ASSERT(client->strategy == &hf_strategy_faulty ||
              client->strategy == &hf_strategy_faulty_without_lookup);
    return client->self;
}

static struct hf_faulty *faulty_of(struct hf_host *host)
{
    return HF_CONTAINER(host, struct hf_faulty, host);
}

static hf_time clock_of(const struct hf_faulty_net *net)
{
    return net->clock(net->arg);
}

static hf_time server_clock(const struct hf_faulty_net *net)
{
    hf_time now = clock_of(net);

    return now + now / 1000 * net->rate_ppm / 1000 +
           now % 1000 * net->rate_ppm / 1000000;
}

/* ---- Chance and cues ----------------------------------------------------*/

static bool is_drawn(struct hf_faulty *faulty, unsigned in_a_thousand)
{
    if (in_a_thousand == 0 ||
        hf_random_below(&faulty->net->random, 1000) >= in_a_thousand)
        return false;
    faulty->net->faults++;
    return true;
}

static uint32_t random_delay(struct hf_faulty *faulty)
{
    const struct hf_faulty_odds *odds = &faulty->odds;
    uint32_t most = odds->quick_ms;

    if (odds->slow > 0 && is_drawn(faulty, odds->slow))
        most = odds->slow_ms;
    return most > 0 ? hf_random_below(&faulty->net->random, most + 1) : 0;
}

void hf_faulty_odds(struct hf_faulty *faulty, const struct hf_faulty_odds *odds)
{
    faulty->odds = odds ? *odds : (struct hf_faulty_odds){0};
}

void hf_faulty_cut(struct hf_faulty *faulty, enum hf_faulty_cut cut)
{
    faulty->cut = cut;
}

void hf_faulty_cue(struct hf_faulty *faulty, enum hf_faulty_what what,
                   enum hf_fault fault, unsigned count, uint32_t ms)
{
    HF_ASSERT(faulty->cue_count < CUES_MAX);
    faulty->cues[faulty->cue_count++] = (struct cue){what, fault, count, ms};
}

/* Use up one count of the first cue for `what`, and copy the cue to `taken`.
 * Returns false if there is none. */
static bool take_cue(struct hf_faulty *faulty, enum hf_faulty_what what,
                     struct cue *taken)
{
    for (unsigned i = 0; i < faulty->cue_count; i++) {
        struct cue *cue = &faulty->cues[i];

        if (cue->count == 0 || (cue->what != HF_ON_ANY && cue->what != what))
            continue;
        cue->count--;
        *taken = *cue;
        return true;
    }
    return false;
}

unsigned hf_faulty_sent(const struct hf_faulty *faulty,
                        enum hf_faulty_what what)
{
    return faulty->sent[what];
}

struct hf_command hf_faulty_last(const struct hf_faulty *faulty,
                                 enum hf_faulty_what what)
{
    return faulty->last[what];
}

/* ---- Packets ------------------------------------------------------------*/

static struct packet *packet_of(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct packet, link);
}

static struct packet *new_packet(struct hf_faulty *faulty,
                                 enum packet_kind kind, size_t size)
{
    struct packet *packet = calloc(1, sizeof(*packet) + size);

    HF_ASSERT(packet);
    packet->faulty = faulty;
    packet->kind = kind;
    packet->sent = clock_of(faulty->net);
    hf_dlist_init(&packet->link);
    hf_dlist_push_back(&faulty->packets, &packet->all);
    return packet;
}

static void free_packet(struct packet *packet)
{
    hf_dlist_remove(&packet->link);
    hf_dlist_remove(&packet->all);
    hf_answer_clear(&packet->request.answer);
    free(packet);
}

/* Insert a packet by its due time, after those that are due at the same
 * time. */
static void insert_packet(struct hf_dlist *list, struct packet *packet,
                          hf_time due)
{
    struct hf_dlist *before = list;

    packet->due = due;
    packet->order = ++packet->faulty->net->order;
    while (before->prev != list && packet_of(before->prev)->due > due)
        before = before->prev;
    hf_dlist_insert(before, &packet->link);
}

static void set_timer(struct hf_faulty *faulty)
{
    struct hf_dlist *first = hf_dlist_first(&faulty->arrivals);

    faulty->outer->ops->timer_set(faulty->outer, &faulty->timer,
                                  first ? packet_of(first)->due : HF_NEVER);
}

static void schedule_arrival(struct packet *packet, uint32_t ms)
{
    struct hf_faulty *faulty = packet->faulty;

    insert_packet(&faulty->arrivals, packet,
                  hf_time_add(clock_of(faulty->net), ms));
    set_timer(faulty);
}

static const void *append_bytes(uint8_t **at, const void *from, size_t size)
{
    uint8_t *start = *at;

    hf_copy(start, from, size);
    *at += size;
    return start;
}

static struct packet *copy_request(struct hf_faulty *faulty,
                                   struct hf_request *request)
{
    const struct hf_command *from = &request->command;
    struct packet *packet =
        new_packet(faulty, REQUEST,
                   from->key.size + from->value.size + from->expected.size +
                       from->note.size);
    struct hf_command *to = &packet->request.command;
    uint8_t *at = packet->bytes;

    packet->asked = request;
    packet->request = (struct hf_request){
        .kind = request->kind,
        .command = *from,
        .how = request->how,
        .watch = request->watch,
        .from = request->from,
    };
    to->key.data = append_bytes(&at, from->key.data, from->key.size);
    to->value.data = append_bytes(&at, from->value.data, from->value.size);
    to->expected.data =
        append_bytes(&at, from->expected.data, from->expected.size);
    to->note.data = append_bytes(&at, from->note.data, from->note.size);
    return packet;
}

/* ---- To the server ------------------------------------------------------*/

/* Detach all packets from `request`, which is answered or given up. */
static void detach_request(struct hf_faulty *faulty,
                           const struct hf_request *request)
{
    for (struct hf_dlist *link = faulty->packets.next; link != &faulty->packets;
         link = link->next) {
        struct packet *packet = HF_CONTAINER(link, struct packet, all);

        if (packet->asked == request)
            packet->asked = NULL;
    }
}

static void answer_now(struct hf_faulty *faulty, struct hf_request *request,
                       const struct hf_answer *answer)
{
    detach_request(faulty, request);
    hf_answer_clear(&request->answer);
    request->answer = *answer;
    faulty->outer->ops->answer(faulty->outer, request);
}

static void answer_error(struct hf_faulty *faulty, struct hf_request *request,
                         enum hf_err err)
{
    struct hf_answer answer = {.result.err = err};

    answer_now(faulty, request, &answer);
}

static const struct hf_answer answer_gone = {
    .result.err = HF_EINDOUBT,
    .session_gone = true,
};

/* The request, or its answer, was lost. Report that to the client after
 * HF_FAULTY_NOTICE_MS. */
static void notice_loss(struct hf_faulty *faulty, struct hf_request *request)
{
    struct packet *packet;

    if (!request)
        return;
    packet = new_packet(faulty, LOSS, 0);
    packet->asked = request;
    schedule_arrival(packet, HF_FAULTY_NOTICE_MS);
}

static void return_answer(struct packet *packet);

/* Close the session later, because the inner strategy may be executing a
 * request, and answer `request` then. */
static void close_session_soon(struct hf_faulty *faulty,
                               struct hf_request *request, uint32_t ms)
{
    struct packet *packet = new_packet(faulty, CLOSING, 0);

    packet->asked = request;
    schedule_arrival(packet, ms);
}

/* Whether the command was sent in a session that is closed. */
static bool is_session_gone(const struct hf_faulty *faulty,
                            const struct hf_request *request)
{
    return request->kind == HF_REQUEST_COMMAND &&
           request->command.session != faulty->session;
}

/* Deliver a request to the server. Its packet is not in `packets` of the
 * network. */
static void deliver_request(struct packet *packet)
{
    struct hf_faulty *faulty = packet->faulty;

    if (faulty->cut == HF_CUT_ALL || faulty->cut == HF_CUT_REFUSE) {
        notice_loss(faulty, packet->asked);
        free_packet(packet);
        return;
    }
    faulty->received[faulty->received_count++ % RECEIVED_MAX] =
        (struct received){packet->sent, server_clock(faulty->net)};
    if (is_session_gone(faulty, &packet->request)) {
        packet->request.answer = answer_gone;
        return_answer(packet);
        return;
    }
    faulty->inner->submit(faulty->self, &packet->request);
}

static void send_request(struct packet *packet, uint32_t ms)
{
    struct hf_faulty_net *net = packet->faulty->net;

    if (ms == 0)
        deliver_request(packet);
    else
        insert_packet(&net->packets, packet, hf_time_add(clock_of(net), ms));
}

hf_time hf_faulty_next(const struct hf_faulty_net *net)
{
    struct hf_dlist *first = hf_dlist_first(&net->packets);

    return first ? packet_of(first)->due : HF_NEVER;
}

void hf_faulty_step(struct hf_faulty_net *net)
{
    while (hf_faulty_next(net) <= clock_of(net)) {
        struct packet *packet = packet_of(hf_dlist_take(&net->packets));
        struct hf_faulty *faulty = packet->faulty;

        faulty->outside = true;
        deliver_request(packet);
        faulty->outside = false;
    }
}

static void repeat_request(struct hf_faulty *faulty, struct hf_request *request,
                           uint32_t ms)
{
    struct packet *copy = copy_request(faulty, request);

    copy->asked = NULL;
    copy->lose_answer = true;
    insert_packet(&faulty->net->packets, copy,
                  hf_time_add(clock_of(faulty->net), ms));
}

static bool is_local_lookup(const struct hf_request *request)
{
    return request->kind == HF_REQUEST_LOOKUP && request->how == HF_LOCAL;
}

static void submit_on_cue(struct hf_faulty *faulty, struct hf_request *request,
                          const struct cue *cue)
{
    struct packet *packet;

    faulty->net->faults++;
    switch (cue->fault) {
    case HF_LOSE:
        notice_loss(faulty, request);
        return;
    case HF_REFUSE:
        answer_error(faulty, request, HF_EUNAVAIL);
        return;
    case HF_FORGET:
        answer_error(faulty, request, HF_EINDOUBT);
        return;
    case HF_NO_MEMORY:
        answer_error(faulty, request, HF_ENOMEM);
        return;
    case HF_CLOSE_SESSION:
        close_session_soon(faulty, request, 0);
        return;
    case HF_STALE:
        HF_ASSERT(is_local_lookup(request));
        answer_error(faulty, request, HF_ENOTHELD);
        return;
    case HF_STRAND:
        repeat_request(faulty, request, cue->ms);
        notice_loss(faulty, request);
        return;
    case HF_REPEAT:
        repeat_request(faulty, request, cue->ms);
        break;
    default:
        break;
    }
    if (cue->fault == HF_STALL)
        faulty->net->stall(faulty->net->arg, cue->ms);
    packet = copy_request(faulty, request);
    packet->lose_answer = cue->fault == HF_LOSE_ANSWER;
    packet->close_session = cue->fault == HF_CLOSE_SESSION_AFTER;
    packet->hide_anchor = cue->fault == HF_HIDE_ANCHOR;
    packet->answer_ms = cue->fault == HF_DELAY_ANSWER ? cue->ms : 0;
    send_request(packet, cue->fault == HF_DELAY ? cue->ms : 0);
}

static void submit_at_random(struct hf_faulty *faulty,
                             struct hf_request *request)
{
    const struct hf_faulty_odds *odds = &faulty->odds;
    struct packet *packet;
    bool closes;

    if (is_drawn(faulty, odds->refuse)) {
        answer_error(faulty, request, HF_EUNAVAIL);
        return;
    }
    if (is_drawn(faulty, odds->forget)) {
        answer_error(faulty, request, HF_EINDOUBT);
        return;
    }
    if (is_local_lookup(request) && is_drawn(faulty, odds->stale)) {
        answer_error(faulty, request, HF_ENOTHELD);
        return;
    }
    if (is_drawn(faulty, odds->lose)) {
        notice_loss(faulty, request);
        return;
    }
    if (is_drawn(faulty, odds->strand)) {
        repeat_request(faulty, request, random_delay(faulty) + 1);
        notice_loss(faulty, request);
        return;
    }
    if (is_drawn(faulty, odds->repeat))
        repeat_request(faulty, request, random_delay(faulty) + 1);
    closes = request->kind == HF_REQUEST_COMMAND &&
             is_drawn(faulty, odds->close_session);
    if (closes && is_drawn(faulty, 500)) {
        close_session_soon(faulty, request, random_delay(faulty));
        return;
    }
    packet = copy_request(faulty, request);
    packet->close_session = closes;
    packet->lose_answer = is_drawn(faulty, odds->lose_answer);
    packet->hide_anchor = is_drawn(faulty, odds->hide_anchor);
    packet->answer_ms = random_delay(faulty);
    send_request(packet, random_delay(faulty));
}

static enum hf_faulty_what classify_request(const struct hf_request *request)
{
    if (request->kind == HF_REQUEST_COMMAND)
        return (enum hf_faulty_what)request->command.kind;
    return (enum hf_faulty_what)(HF_ON_READ + request->kind - HF_REQUEST_READ);
}

static void record_sent(struct hf_faulty *faulty, enum hf_faulty_what what,
                        const struct hf_command *command)
{
    struct hf_command *last = &faulty->last[what];

    faulty->sent[what]++;
    faulty->sent[HF_ON_ANY]++;
    *last = *command;
    last->key = (struct hf_key){0};
    last->value = last->expected = last->note = (struct hf_bytes){0};
}

/* Set the session of a command that is sent for the first time. Returns true if
 * the command was sent before, in a session that is closed. */
static bool is_in_old_session(const struct hf_faulty *faulty,
                              struct hf_request *request)
{
    if (request->kind == HF_REQUEST_COMMAND && request->command.session == 0)
        request->command.session = faulty->session;
    return is_session_gone(faulty, request);
}

static void faulty_submit(void *self, struct hf_request *request)
{
    struct hf_faulty *faulty = self;
    enum hf_faulty_what what = classify_request(request);
    struct cue cue;

    record_sent(faulty, what, &request->command);
    if (faulty->cut == HF_CUT_REFUSE)
        answer_error(faulty, request, HF_EUNAVAIL);
    else if (faulty->cut == HF_CUT_ALL)
        notice_loss(faulty, request);
    else if (is_in_old_session(faulty, request))
        answer_now(faulty, request, &answer_gone);
    else if (take_cue(faulty, what, &cue))
        submit_on_cue(faulty, request, &cue);
    else
        submit_at_random(faulty, request);
}

static void faulty_cancel(void *self, struct hf_request *request)
{
    answer_error(self, request, HF_EINDOUBT);
}

/* ---- To the client ------------------------------------------------------*/

/* Unless the clock is shared, replace the server's time in `anchor` with what
 * a remote server can know: which message of this client was the last to arrive
 * by then, and how long before. Round the age down, because both readings of
 * the server's clock are rounded. */
static void translate_anchor(const struct hf_faulty *faulty,
                             struct hf_anchor *anchor)
{
    const struct received *best = NULL;
    hf_time stamp = anchor->sent;

    if (faulty->net->shared_clock || !anchor->known)
        return;
    for (unsigned i = 0; i < RECEIVED_MAX && i < faulty->received_count; i++) {
        const struct received *received = &faulty->received[i];

        if (received->received <= stamp &&
            (!best || received->received > best->received))
            best = received;
    }
    *anchor = (struct hf_anchor){.known = best != NULL};
    if (!best)
        return;
    anchor->sent = best->sent;
    if (stamp > best->received)
        anchor->age_ms = (uint32_t)(stamp - best->received - 1);
}

/* Deliver an arrival to the client. The packet is not in `arrivals`. */
static void deliver_arrival(struct packet *packet)
{
    struct hf_faulty *faulty = packet->faulty;
    struct hf_host *outer = faulty->outer;

    if (packet->kind == CLOSING) {
        hf_faulty_close_session(faulty);
        if (packet->asked)
            answer_now(faulty, packet->asked, &answer_gone);
    } else if (packet->kind == LOSS) {
        if (packet->asked)
            answer_error(faulty, packet->asked, HF_EINDOUBT);
    } else if (faulty->cut == HF_CUT_ALL || faulty->cut == HF_CUT_ANSWERS) {
        notice_loss(faulty, packet->asked);
    } else if (packet->kind == GRANT) {
        outer->ops->grant(outer, &packet->grant);
    } else if (packet->kind == EVENT) {
        outer->ops->event(outer, &packet->event);
    } else if (packet->asked) {
        answer_now(faulty, packet->asked, &packet->request.answer);
        packet->request.answer = (struct hf_answer){0};
    }
    free_packet(packet);
}

static void on_timer(struct hf_timer *timer)
{
    struct hf_faulty *faulty = HF_CONTAINER(timer, struct hf_faulty, timer);
    struct hf_dlist *first;

    while ((first = hf_dlist_first(&faulty->arrivals)) &&
           packet_of(first)->due <= clock_of(faulty->net))
        deliver_arrival(packet_of(hf_dlist_take(&faulty->arrivals)));
    set_timer(faulty);
}

static void record_ended(struct hf_faulty_net *net,
                         const struct hf_request *request)
{
    enum hf_command_kind kind = request->command.kind;

    if (request->kind == HF_REQUEST_COMMAND && !request->answer.result.err &&
        (kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_CANCEL))
        net->ended[net->ended_count++ % HF_FAULTY_ENDED_MAX] =
            request->command.nonce;
}

bool hf_faulty_has_ended(const struct hf_faulty_net *net,
                         const uint8_t nonce[HF_NONCE_SIZE])
{
    for (unsigned i = 0; i < HF_FAULTY_ENDED_MAX && i < net->ended_count; i++) {
        if (memcmp(net->ended[i].bytes, nonce, HF_NONCE_SIZE) == 0)
            return true;
    }
    return false;
}

static void on_inner_answer(struct hf_host *host, struct hf_request *request)
{
    struct hf_faulty *faulty = faulty_of(host);
    struct packet *packet = HF_CONTAINER(request, struct packet, request);

    record_ended(faulty->net, request);
    if (packet->hide_anchor)
        request->answer.anchor = (struct hf_anchor){0};
    translate_anchor(faulty, &request->answer.anchor);
    if (packet->close_session) {
        close_session_soon(faulty, packet->asked, packet->answer_ms);
        free_packet(packet);
    } else {
        return_answer(packet);
    }
}

static void return_answer(struct packet *packet)
{
    struct hf_faulty *faulty = packet->faulty;

    packet->kind = ANSWER;
    if (packet->lose_answer) {
        notice_loss(faulty, packet->asked);
        free_packet(packet);
    } else if (packet->answer_ms == 0 && !faulty->outside) {
        deliver_arrival(packet);
    } else {
        schedule_arrival(packet, packet->answer_ms);
    }
}

static void push_grant(struct hf_faulty *faulty,
                       const struct hf_push_grant *grant, uint32_t ms)
{
    struct packet *packet = new_packet(faulty, GRANT, 0);

    packet->grant = *grant;
    if (ms == 0 && !faulty->outside)
        deliver_arrival(packet);
    else
        schedule_arrival(packet, ms);
}

static void on_inner_grant(struct hf_host *host,
                           const struct hf_push_grant *from)
{
    struct hf_faulty *faulty = faulty_of(host);
    struct hf_push_grant pushed = *from;
    struct cue cue = {.fault = HF_DELAY, .ms = random_delay(faulty)};
    bool on_cue = take_cue(faulty, HF_ON_GRANT, &cue);

    faulty->sent[HF_ON_GRANT]++;
    if ((on_cue && cue.fault == HF_HIDE_ANCHOR) ||
        is_drawn(faulty, faulty->odds.hide_anchor))
        pushed.anchor.known = false;
    translate_anchor(faulty, &pushed.anchor);
    if ((on_cue && cue.fault == HF_LOSE) ||
        is_drawn(faulty, faulty->odds.lose_grant))
        return;
    if ((on_cue && cue.fault == HF_REPEAT) ||
        is_drawn(faulty, faulty->odds.repeat_grant))
        push_grant(faulty, &pushed, cue.ms + random_delay(faulty) + 1);
    push_grant(faulty, &pushed, cue.fault == HF_DELAY ? cue.ms : 0);
}

/* Events of a watch arrive in order or not at all, so an event is never due
 * before the previous one. */
static void on_inner_event(struct hf_host *host,
                           const struct hf_push_event *from)
{
    struct hf_faulty *faulty = faulty_of(host);
    size_t owner_size = strlen(from->event.owner) + 1;
    struct cue cue = {.fault = HF_DELAY, .ms = random_delay(faulty)};
    bool on_cue = take_cue(faulty, HF_ON_EVENT, &cue);
    hf_time now = clock_of(faulty->net);
    hf_time due = hf_time_add(now, cue.fault == HF_DELAY ? cue.ms : 0);
    struct packet *packet;
    uint8_t *at;

    faulty->sent[HF_ON_EVENT]++;
    if ((on_cue && cue.fault == HF_LOSE) ||
        is_drawn(faulty, faulty->odds.lose_event))
        return;
    packet = new_packet(faulty, EVENT, from->event.key.size + owner_size);
    at = packet->bytes;
    packet->event = *from;
    packet->event.event.key.data =
        append_bytes(&at, from->event.key.data, from->event.key.size);
    packet->event.event.owner =
        append_bytes(&at, from->event.owner, owner_size);
    if (due < faulty->last_event)
        due = faulty->last_event;
    faulty->last_event = due;
    if (due <= now && !faulty->outside)
        deliver_arrival(packet);
    else
        schedule_arrival(packet, hf_time_left(due, now));
}

/* ---- The host of the inner strategy -------------------------------------*/

static hf_time now(struct hf_host *host)
{
    return server_clock(faulty_of(host)->net);
}

static enum hf_err timer_add(struct hf_host *host, struct hf_timer *timer)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->timer_add(outer, timer);
}

/* The inner strategy uses the server's clock, so convert `at`. Add 2 ms, so
 * that rounding never makes the timer fire early. */
static void timer_set(struct hf_host *host, struct hf_timer *timer, hf_time at)
{
    struct hf_faulty *faulty = faulty_of(host);
    hf_time here = clock_of(faulty->net);
    hf_time there = server_clock(faulty->net);

    if (at != HF_NEVER && faulty->net->rate_ppm != 0 && at > there)
        at = here + (at - there) * 1000000 / (1000000 + faulty->net->rate_ppm) +
             2;
    else if (at != HF_NEVER && faulty->net->rate_ppm != 0)
        at = here;
    faulty->outer->ops->timer_set(faulty->outer, timer, at);
}

static void timer_remove(struct hf_host *host, struct hf_timer *timer)
{
    struct hf_host *outer = faulty_of(host)->outer;

    outer->ops->timer_remove(outer, timer);
}

static enum hf_err fd_add(struct hf_host *host, struct hf_fd *fd)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->fd_add(outer, fd);
}

static enum hf_err fd_change(struct hf_host *host, struct hf_fd *fd)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->fd_change(outer, fd);
}

static void fd_remove(struct hf_host *host, struct hf_fd *fd)
{
    struct hf_host *outer = faulty_of(host)->outer;

    outer->ops->fd_remove(outer, fd);
}

static struct hf_waker *post(struct hf_host *host, struct hf_post *posted)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->post(outer, posted);
}

static void unpost(struct hf_host *host, struct hf_post *posted)
{
    struct hf_host *outer = faulty_of(host)->outer;

    outer->ops->unpost(outer, posted);
}

static void defer(struct hf_host *host, struct hf_post *posted)
{
    struct hf_host *outer = faulty_of(host)->outer;

    outer->ops->defer(outer, posted);
}

static void nudge(struct hf_host *host, const struct hf_nonce *nonce)
{
    struct hf_host *outer = faulty_of(host)->outer;

    outer->ops->nudge(outer, nonce);
}

static void recheck(struct hf_host *host, uint64_t token)
{
    struct hf_host *outer = faulty_of(host)->outer;

    outer->ops->recheck(outer, token);
}

static const char *owner(struct hf_host *host)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->owner(outer);
}

static bool inherit(struct hf_host *host)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->inherit(outer);
}

static struct hf_random *get_random(struct hf_host *host)
{
    struct hf_host *outer = faulty_of(host)->outer;

    return outer->ops->random(outer);
}

static const struct hf_host_ops host_ops = {
    .now = now,
    .timer_add = timer_add,
    .timer_set = timer_set,
    .timer_remove = timer_remove,
    .fd_add = fd_add,
    .fd_change = fd_change,
    .fd_remove = fd_remove,
    .post = post,
    .unpost = unpost,
    .defer = defer,
    .answer = on_inner_answer,
    .grant = on_inner_grant,
    .nudge = nudge,
    .recheck = recheck,
    .event = on_inner_event,
    .owner = owner,
    .inherit = inherit,
    .random = get_random,
};

/* ---- The strategy -------------------------------------------------------*/

/* Each incarnation of the server is a separate store, so that a restart loses
 * all data. */
static enum hf_err open_inner(struct hf_faulty *faulty, struct hf_error *error)
{
    struct hf_url url;
    char text[96];
    enum hf_err err;

    (void)snprintf(text, sizeof(text), "%s~%u", faulty->url,
                   faulty->net->incarnation);
    err = hf_url_parse(&url, text, error);
    HF_ASSERT(!err);
    err = faulty->inner->open(faulty->self, &url, &faulty->host, error);
    hf_url_fini(&url);
    return err;
}

/* Closing the inner strategy closes its session. Open the next one first, so
 * that the store is not freed. */
void hf_faulty_close_session(struct hf_faulty *faulty)
{
    void *old = faulty->self;

    faulty->self = calloc(1, faulty->inner->size);
    HF_ASSERT(faulty->self);
    HF_ASSERT(!open_inner(faulty, NULL));
    faulty->inner->close(old);
    free(old);
    faulty->session++;
}

void hf_faulty_forget(struct hf_faulty_net *net)
{
    net->incarnation++;
    for (struct hf_dlist *link = net->clients.next; link != &net->clients;
         link = link->next) {
        struct hf_faulty *faulty = HF_CONTAINER(link, struct hf_faulty, link);

        faulty->inner->close(faulty->self);
        memset(faulty->self, 0, faulty->inner->size);
        HF_ASSERT(!open_inner(faulty, NULL));
    }
}

static enum hf_err faulty_open(void *self, struct hf_url *url,
                               struct hf_host *outer, struct hf_error *error)
{
    struct hf_faulty *faulty = self;
    enum hf_err err;

    HF_ASSERT(current);
    faulty->host.ops = &host_ops;
    faulty->outer = outer;
    faulty->net = current;
    faulty->session = 1;
    faulty->timer.fire = on_timer;
    hf_dlist_init(&faulty->arrivals);
    hf_dlist_init(&faulty->packets);
    err = hf_registry_find(url->scheme, &faulty->inner, error);
    HF_ASSERT(!err);
    err = outer->ops->timer_add(outer, &faulty->timer);
    if (err)
        return hf_error_set_code(error, err);
    (void)snprintf(faulty->url, sizeof(faulty->url), "%s:%s", url->scheme,
                   url->path);
    faulty->self = calloc(1, faulty->inner->size);
    if (faulty->self)
        err = open_inner(faulty, error);
    else
        err = hf_error_set_code(error, HF_ENOMEM);
    if (err) {
        free(faulty->self);
        outer->ops->timer_remove(outer, &faulty->timer);
        return err;
    }
    hf_dlist_push_back(&faulty->net->clients, &faulty->link);
    return HF_OK;
}

static uint32_t faulty_caps(const void *self)
{
    const struct hf_faulty *faulty = self;

    return faulty->inner->caps(faulty->self);
}

static void faulty_close(void *self)
{
    struct hf_faulty *faulty = self;
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&faulty->packets)))
        free_packet(HF_CONTAINER(link, struct packet, all));
    faulty->inner->close(faulty->self);
    free(faulty->self);
    hf_dlist_remove(&faulty->link);
    faulty->outer->ops->timer_remove(faulty->outer, &faulty->timer);
}

#define STRATEGY(lookup)                                                       \
    {                                                                          \
        .scheme = "faulty", .size = sizeof(struct hf_faulty),                  \
        .looks_up = (lookup), .open = faulty_open, .caps = faulty_caps,        \
        .submit = faulty_submit, .cancel = faulty_cancel,                      \
        .close = faulty_close,                                                 \
    }

const struct hf_strategy hf_strategy_faulty = STRATEGY(true);
const struct hf_strategy hf_strategy_faulty_without_lookup = STRATEGY(false);
