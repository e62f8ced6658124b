#include "sim/lock_clients.h"

#include <stdio.h>

#include "lib/runner.h"
#include "node/state.h"
#include "sim/lock_history.h"

#define MARGIN_PPM 20000 /* two clocks, each up to 1 percent wrong */

static uint32_t below(struct lock_client *client, uint32_t bound)
{
    return hf_random_below(&client->all->random, bound);
}

static hf_time local_now(const struct lock_client *client)
{
    hf_time now = client->all->nodes->schedule.now;

    return now + now * client->drift / 1000000;
}

static void wake_in(struct lock_client *client, hf_time ms)
{
    struct sim_schedule *schedule = &client->all->nodes->schedule;

    sim_schedule_set(schedule, &client->wake, schedule->now + ms);
}

static struct sim_node *node_of(const struct lock_client *client)
{
    return &client->all->nodes->list[client->node];
}

/* ---- Asking -------------------------------------------------------------*/

static uint64_t conn_of(const struct lock_client *client)
{
    return client->number + 1;
}

/* Handle the outcome later, because the node is in the middle of its turn. */
static void on_done(struct hf_node_request *request,
                    const struct hf_node_outcome *outcome)
{
    struct lock_client *client =
        HF_CONTAINER(request, struct lock_client, request);

    assert_true(client->is_asking);
    client->is_asking = false;
    client->is_answered = true;
    client->outcome = *outcome;
    wake_in(client, 0);
}

/* Detach the session from its node, and attach it to a random one. A node that
 * is down is not notified. */
static void move(struct lock_client *client)
{
    struct sim_nodes *nodes = client->all->nodes;

    if (node_of(client)->node && client->session)
        hf_attachments_remove(node_of(client)->node, client->session,
                              conn_of(client));
    client->node = below(client, nodes->count);
    if (node_of(client)->node && client->session)
        (void)hf_attachments_add(node_of(client)->node, client->session,
                                 conn_of(client));
}

static void move_and_wait(struct lock_client *client)
{
    move(client);
    wake_in(client, 10);
}

/* Send the request, for the first time or again. If the node is down, choose
 * a random node and retry later. */
static void submit_request(struct lock_client *client)
{
    struct sim_node *node = node_of(client);

    if (!node->node) {
        move(client);
        wake_in(client, 5 + below(client, 50));
        return;
    }
    client->request.deadline = sim_node_now(node) + 100 + below(client, 2000);
    client->request.done = on_done;
    client->is_asking = true;
    assert_int_equal(hf_requests_submit(node->node, &client->request), HF_OK);
    sim_nodes_wake(client->all->nodes, client->node);
}

static void send(struct lock_client *client, struct hf_command *command,
                 enum lock_step step)
{
    client->step = step;
    client->give_up = local_now(client) + 20000;
    if (command->kind != HF_COMMAND_OPEN) {
        command->session = client->session;
        command->sequence = command->done = ++client->sequence;
    }
    client->bytes.size = 0;
    hf_command_encode(command, HF_VERSION_FIRST, &client->bytes);
    client->request.kind = HF_NODE_COMMAND;
    client->request.command =
        (struct hf_bytes){client->bytes.data, client->bytes.size};
    submit_request(client);
}

/* ---- Steps --------------------------------------------------------------*/

static void go_idle(struct lock_client *client)
{
    client->step = STEP_IDLE;
    client->has_lock_op = false; /* the result of a LOCK may stay unknown */
    wake_in(client, 1 + below(client, 100));
}

static struct hf_command command_of(const struct lock_client *client,
                                    enum hf_command_kind kind)
{
    return (struct hf_command){
        .kind = kind,
        .key = {lock_keys[client->key], strlen(lock_keys[client->key])},
        .nonce = client->nonce,
        .token = client->token,
        .lease_ms = client->lease_ms,
        .queue = true,
    };
}

static void open_session(struct lock_client *client)
{
    struct hf_command command = {.kind = HF_COMMAND_OPEN};

    (void)hf_random_bytes(&client->all->random, &client->secret,
                          sizeof(client->secret));
    client->sequence = 0;
    command.nonce = client->secret;
    send(client, &command, STEP_OPEN);
}

static void start_lock(struct lock_client *client)
{
    struct hf_command command;

    client->key = below(client, client->all->key_count);
    client->ttl_ms = 300 + below(client, LOCK_TTL_MAX_MS - 300);
    client->lease_ms = client->ttl_ms + client->ttl_ms / 16 + 50;
    client->token = 0;
    (void)hf_random_bytes(&client->all->random, &client->nonce,
                          sizeof(client->nonce));
    client->lock_sent = local_now(client);
    client->wait_until = client->lock_sent + 12000;
    lock_history_begin(client, HF_OP_LOCK);
    client->has_lock_op = true;
    command = command_of(client, HF_COMMAND_LOCK);
    command.token = 0;
    send(client, &command, STEP_LOCK);
}

static void renew(struct lock_client *client, enum lock_step step)
{
    struct hf_command command = command_of(client, HF_COMMAND_RENEW);

    client->renew_sent = local_now(client);
    client->is_confirming = step == STEP_CONFIRM;
    if (step == STEP_RENEW)
        lock_history_begin(client, HF_OP_RENEW);
    send(client, &command, step);
}

static void unlock(struct lock_client *client)
{
    struct hf_command command = command_of(client, HF_COMMAND_UNLOCK);

    lock_history_begin(client, HF_OP_UNLOCK);
    send(client, &command, STEP_UNLOCK);
}

static void cancel_claim(struct lock_client *client)
{
    struct hf_command command = command_of(client, HF_COMMAND_CANCEL);

    send(client, &command, STEP_CANCEL);
}

/* ---- Grants -------------------------------------------------------------*/

/* Set `valid_until` for a lease that started at `base` or later; see
 * docs/semantics.md. */
static void count_validity(struct lock_client *client, hf_time base)
{
    hf_time end =
        base + (hf_time)client->lease_ms * (1000000 - MARGIN_PPM) / 1000000;
    hf_time full = local_now(client) + client->ttl_ms;

    client->valid_until = end < full ? end : full;
}

static void hold(struct lock_client *client)
{
    client->step = STEP_HOLD;
    client->hold_until = local_now(client) + below(client, 1000);
    wake_in(client, 1 + below(client, client->ttl_ms / 2));
}

/* Hold the lock if its lease, which began at `base` or later, is still valid.
 * Otherwise renew it first. */
static void on_granted(struct lock_client *client, hf_time base)
{
    count_validity(client, base);
    if (client->valid_until <= local_now(client)) {
        renew(client, STEP_CONFIRM);
        return;
    }
    client->all->grants++;
    lock_history_end(client, HF_OP_LOCK, HF_OK);
    hold(client);
}

static void on_push(void *arg, uint64_t conn, const struct hf_node_grant *grant)
{
    struct sim_node *node = arg;
    struct lock_clients *clients = node->nodes->arg;
    struct lock_client *client = &clients->list[conn - 1];

    if (client->step != STEP_WAIT ||
        !hf_nonce_equal(&client->nonce, &grant->nonce))
        return;
    clients->handovers++;
    client->token = grant->token;
    client->step = STEP_CONFIRM;
    client->is_confirming = false;
    client->has_base = false;
    if (grant->age_ms >= 0) {
        clients->anchors++;
        client->pushed_base = client->lock_sent +
                              grant->age_ms * (1000000 - MARGIN_PPM) / 1000000;
        client->has_base = true;
    }
    wake_in(client, 0);
}

static void confirm_grant(struct lock_client *client)
{
    if (client->has_base) {
        client->has_base = false;
        on_granted(client, client->pushed_base);
    } else {
        renew(client, STEP_CONFIRM);
    }
}

/* ---- Answers ------------------------------------------------------------*/

/* Without its session, the client cannot learn the result of its command. */
static void forget_session(struct lock_client *client)
{
    struct sim_node *node = node_of(client);

    if (node->node)
        hf_attachments_remove(node->node, client->session, conn_of(client));
    client->session = 0;
    go_idle(client);
}

static void on_opened(struct lock_client *client)
{
    client->session = client->outcome.result.session;
    if (node_of(client)->node)
        (void)hf_attachments_add(node_of(client)->node, client->session,
                                 conn_of(client));
    go_idle(client);
}

static void on_locked(struct lock_client *client)
{
    const struct hf_result *result = &client->outcome.result;

    client->token = result->token;
    if (result->err == HF_OK) {
        on_granted(client, client->lock_sent);
    } else if (result->err == HF_EBUSY && result->position > 0) {
        hf_recorder_queued(&client->all->recorder, client->lock_op,
                           lock_history_now(client->all));
        client->step = STEP_WAIT;
        wake_in(client, 200 + below(client, 1000));
    } else {
        go_idle(client);
    }
}

static void on_renewed(struct lock_client *client)
{
    enum hf_err err = client->outcome.result.err;
    bool is_first = client->step == STEP_CONFIRM;

    client->all->renewals++;
    if (!err)
        count_validity(client, client->renew_sent);
    if (!err && client->valid_until <= local_now(client)) {
        go_idle(client); /* the validity has ended already */
        return;
    }
    if (!is_first || !err)
        lock_history_end(client, is_first ? HF_OP_LOCK : HF_OP_RENEW, err);
    if (err)
        go_idle(client);
    else
        hold(client);
}

static void on_lookup(struct lock_client *client)
{
    const struct sim_node *node = node_of(client);
    struct hf_key key = {lock_keys[client->key],
                         strlen(lock_keys[client->key])};
    struct hf_lookup lookup;

    client->all->reads++;
    if (!node->node) {
        client->step = STEP_WAIT;
        wake_in(client, 10);
        return;
    }
    lookup =
        hf_table_lookup(&node->node->machine.store->table, key, &client->nonce);
    if (lookup.state == HF_LOOKUP_HELD) {
        client->token = lookup.token;
        renew(client, STEP_CONFIRM);
    } else if (lookup.state == HF_LOOKUP_QUEUED) {
        client->step = STEP_WAIT;
        wake_in(client, 200 + below(client, 1000));
    } else {
        go_idle(client);
    }
}

static void on_answer(struct lock_client *client)
{
    client->is_answered = false;
    if (client->outcome.err) {
        if (client->step == STEP_LOOKUP) {
            client->step = STEP_WAIT;
            wake_in(client, 10);
        } else if (local_now(client) >= client->give_up) {
            forget_session(client);
        } else {
            if (below(client, 2) == 0)
                move(client);
            wake_in(client, 1 + below(client, 50)); /* then ask again */
        }
        return;
    }
    if (client->step != STEP_LOOKUP && client->step != STEP_OPEN &&
        client->outcome.result.err == HF_EINDOUBT) {
        forget_session(client);
        return;
    }
    switch (client->step) {
    case STEP_OPEN:
        on_opened(client);
        break;
    case STEP_LOCK:
        on_locked(client);
        break;
    case STEP_LOOKUP:
        on_lookup(client);
        break;
    case STEP_CONFIRM:
    case STEP_RENEW:
        on_renewed(client);
        break;
    case STEP_UNLOCK:
        lock_history_end(client, HF_OP_UNLOCK, client->outcome.result.err);
        go_idle(client);
        break;
    default:
        go_idle(client);
        break;
    }
}

/* ---- Wake-ups -----------------------------------------------------------*/

static void on_idle(struct lock_client *client)
{
    if (client->all->is_ending)
        return;
    if (!client->session)
        open_session(client);
    else if (below(client, 20) == 0)
        move_and_wait(client);
    else
        start_lock(client);
}

static void on_waiting(struct lock_client *client)
{
    if (!node_of(client)->node)
        move(client);
    if (local_now(client) >= client->wait_until || client->all->is_ending) {
        cancel_claim(client);
        return;
    }
    client->step = STEP_LOOKUP;
    client->request.kind = HF_NODE_READ_INDEX;
    submit_request(client);
}

/* Release the lock, let it expire, or renew it. */
static void on_holding(struct lock_client *client)
{
    hf_time now = local_now(client);

    if (now >= client->valid_until || below(client, 10) == 0)
        go_idle(client);
    else if (now >= client->hold_until || client->all->is_ending)
        unlock(client);
    else
        renew(client, STEP_RENEW);
}

static void on_wake(struct sim_event *event)
{
    struct lock_client *client = HF_CONTAINER(event, struct lock_client, wake);

    if (client->is_asking)
        return;
    if (client->is_answered)
        on_answer(client);
    else if (client->step == STEP_IDLE)
        on_idle(client);
    else if (client->step == STEP_WAIT)
        on_waiting(client);
    else if (client->step == STEP_HOLD)
        on_holding(client);
    else if (client->step == STEP_CONFIRM && !client->is_confirming)
        confirm_grant(client);
    else
        submit_request(
            client); /* again: the node was down, or the request failed */
}

/* ---- Nodes --------------------------------------------------------------*/

static const struct hf_node_hooks hooks = {.on_grant = on_push};

void lock_clients_on_start(struct lock_clients *clients, struct sim_node *node)
{
    (void)clients;
    hf_node_set_hooks(node->node, &hooks, node);
}

void lock_clients_on_down(struct lock_clients *clients, struct sim_node *node)
{
    for (unsigned i = 0; i < clients->count; i++) {
        struct lock_client *client = &clients->list[i];

        if (client->node != node->number || !client->is_asking)
            continue;
        client->is_asking = false;
        wake_in(client, 10 + below(client, 100));
    }
}

/* ---- Init and fini ------------------------------------------------------*/

void lock_clients_init(struct lock_clients *clients, struct sim_nodes *nodes,
                       uint64_t seed, unsigned count)
{
    memset(clients, 0, sizeof(*clients));
    clients->nodes = nodes;
    hf_random_init(&clients->random, seed * 2 + 777);
    hf_recorder_init(&clients->recorder, true);
    clients->count =
        2 + hf_random_below(&clients->random, LOCK_CLIENTS_MAX - 1);
    if (clients->count > count)
        clients->count = count;
    clients->key_count = 1 + hf_random_below(&clients->random, LOCK_KEYS_MAX);
    for (unsigned i = 0; i < clients->count; i++) {
        struct lock_client *client = &clients->list[i];

        client->all = clients;
        client->number = i;
        client->wake.fire = on_wake;
        client->node = below(client, nodes->count);
        wake_in(client, below(client, 500));
    }
}

void lock_clients_fini(struct lock_clients *clients)
{
    for (unsigned i = 0; i < clients->count; i++)
        hf_buf_fini(&clients->list[i].bytes);
    hf_recorder_fini(&clients->recorder);
}

bool lock_clients_are_idle(const struct lock_clients *clients)
{
    for (unsigned i = 0; i < clients->count; i++) {
        if (clients->list[i].step != STEP_IDLE)
            return false;
    }
    return true;
}
