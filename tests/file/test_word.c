/* The arena lock in every interleaving of three clients that may die between
 * any two accesses to shared memory, and whose slots are then used by other
 * clients.
 *
 * The steps are those of the product (word.c). The environment is a model:
 * slots that the kernel frees with a process, and clients that start, take the
 * lock, release it, die and start again. The search visits every reachable
 * state once. In each state
 *   - at most one client owns the lock;
 *   - if all clients died now, a new client could take the lock. */
#include "strategy/file/word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"

#define CLIENTS 3
#define SLOTS 3
#define PATH_MAX_STEPS 256

/* A client that dies or finishes becomes ABSENT, and starts again as another
 * process if it has lives left. */
enum phase {
    ABSENT,
    UNNAMED, /* has locked its slot, but not recorded its pid */
    IDLE,
    LOCKING,
    OWNER
};

struct client {
    enum phase phase;
    unsigned lives;    /* processes that this client can still start */
    unsigned attempts; /* attempts that this process has left */
    unsigned slot;
    struct hf_word_attempt attempt;
};

/* The whole state. All of its bytes are hashed, so padding is zeroed. */
struct world {
    _Atomic uint64_t word;
    _Atomic uint64_t tag[SLOTS];
    bool locked[SLOTS];  /* a client has locked the slot */
    bool has_pid[SLOTS]; /* the pid in the slot is that of its client */
    struct client client[CLIENTS];
};

/* Limits that keep the number of states small. */
static struct bounds {
    unsigned lives, attempts, spins, retries;
} bounds;

/* ---- Visited states -----------------------------------------------------*/

static uint64_t *visited;
static size_t visited_capacity, visited_count;

static uint64_t digest(const struct world *world)
{
    const unsigned char *bytes = (const unsigned char *)world;
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t part;

    _Static_assert(sizeof(*world) % sizeof(part) == 0, "whole parts");
    for (size_t i = 0; i < sizeof(*world); i += sizeof(part)) {
        memcpy(&part, bytes + i, sizeof(part));
        hash = (hash ^ part) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    return hash ? hash : 1;
}

static bool insert_visited(uint64_t hash)
{
    size_t at = hash & (visited_capacity - 1);

    while (visited[at] != 0 && visited[at] != hash)
        at = (at + 1) & (visited_capacity - 1);
    if (visited[at] == hash)
        return false;
    visited[at] = hash;
    visited_count++;
    return true;
}

static void allocate_visited(size_t room)
{
    free(visited);
    visited = calloc(room, sizeof(*visited));
    assert_non_null(visited);
    visited_capacity = room;
    visited_count = 0;
}

static void grow_visited(void)
{
    uint64_t *old = visited;
    size_t room = visited_capacity;

    visited = NULL;
    allocate_visited(room * 2);
    for (size_t i = 0; i < room; i++) {
        if (old[i] != 0)
            (void)insert_visited(old[i]);
    }
    free(old);
}

static bool is_new(const struct world *world)
{
    if (visited_count * 2 > visited_capacity)
        grow_visited();
    return insert_visited(digest(world));
}

/* ---- Clients ------------------------------------------------------------*/

/* The kernel unlocks the slot of a dead client. */
static void client_die(struct world *world, struct client *client)
{
    world->locked[client->slot] = false;
    world->has_pid[client->slot] = false;
    memset(&client->attempt, 0, sizeof(client->attempt));
    client->phase = ABSENT;
    client->attempts = 0;
    client->slot = 0;
}

static void client_start(struct world *world, struct client *client)
{
    while (world->locked[client->slot])
        client->slot++;
    world->locked[client->slot] = true;
    client->phase = UNNAMED;
    client->lives--;
    client->attempts = bounds.attempts;
}

static void start_attempt(struct world *world, struct client *client)
{
    hf_word_start(&client->attempt, client->slot, &world->tag[client->slot]);
    client->attempt.spins = bounds.spins;
    client->attempt.retries = bounds.retries;
    client->phase = LOCKING;
    client->attempts--;
}

/* Clear members that no longer matter, so that the search visits fewer
 * states. */
static void end_attempt(struct client *client)
{
    uint64_t tag = client->attempt.tag;

    client->phase = client->attempt.state == HF_WORD_OWNED ? OWNER : IDLE;
    assert_int_not_equal(client->attempt.state, HF_WORD_BROKEN);
    memset(&client->attempt, 0, sizeof(client->attempt));
    client->attempt.tag = tag;
}

static void client_step(struct world *world, struct client *client)
{
    struct hf_word_attempt *attempt = &client->attempt;

    if (attempt->state == HF_WORD_CHECK_OWNER) {
        unsigned owner = hf_word_owner(attempt->seen);

        hf_word_set_owner_alive(attempt,
                                world->locked[owner] && world->has_pid[owner]);
    } else {
        hf_word_step(attempt, &world->word);
    }
    if (attempt->state >= HF_WORD_OWNED)
        end_attempt(client);
}

/* Clients that have not started are interchangeable, so they start in the order
 * of their numbers: that leaves fewer states to search. */
static bool can_act(const struct world *world, unsigned number)
{
    const struct client *client = &world->client[number];

    if (client->phase != ABSENT)
        return true;
    return client->lives > 0 &&
           (number == 0 || client[-1].lives < bounds.lives);
}

static void client_act(struct world *world, struct client *client)
{
    switch (client->phase) {
    case ABSENT:
        client_start(world, client);
        break;
    case UNNAMED:
        world->has_pid[client->slot] = true;
        client->phase = IDLE;
        break;
    case IDLE:
        if (client->attempts > 0)
            start_attempt(world, client);
        else
            client_die(
                world,
                client); /* or closes, which looks the same to the others */
        break;
    case LOCKING:
        client_step(world, client);
        break;
    case OWNER:
        (void)hf_word_release(&world->word);
        client->phase = IDLE;
        break;
    }
}

/* ---- The search ---------------------------------------------------------*/

static struct {
    unsigned char client;
    bool dies;
} path[PATH_MAX_STEPS];

static void print_path(unsigned length)
{
    for (unsigned i = 0; i < length; i++)
        print_message("%u%s ", path[i].client, path[i].dies ? " dies," : "");
    print_message("\n");
}

static void expect_one_owner(const struct world *world, unsigned length)
{
    unsigned owners = 0;

    for (int i = 0; i < CLIENTS; i++)
        owners += world->client[i].phase == OWNER;
    if (owners <= 1)
        return;
    print_path(length);
    fail_msg("%u clients own the lock after the steps above", owners);
}

static void expect_not_wedged(const struct world *now, unsigned length)
{
    struct world world = *now;
    struct client *client = &world.client[0];

    for (int i = 0; i < CLIENTS; i++) {
        if (world.client[i].phase != ABSENT)
            client_die(&world, &world.client[i]);
    }
    client->lives = 1;
    for (int i = 0; i < 100 && client->phase != OWNER; i++) {
        if (client->phase == IDLE)
            client->attempts = 1;
        client_act(&world, client);
    }
    if (client->phase == OWNER)
        return;
    print_path(length);
    fail_msg("no client can take the lock after the steps above");
}

static void search(const struct world *world, unsigned length)
{
    assert_true(length < PATH_MAX_STEPS);
    if (!is_new(world))
        return;
    expect_one_owner(world, length);
    expect_not_wedged(world, length);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct world next;

        if (!can_act(world, i))
            continue;
        path[length].client = (unsigned char)i;
        path[length].dies = false;
        memcpy(&next, world, sizeof(next));
        client_act(&next, &next.client[i]);
        search(&next, length + 1);
        if (world->client[i].phase == ABSENT)
            continue;
        path[length].dies = true;
        memcpy(&next, world, sizeof(next));
        client_die(&next, &next.client[i]);
        search(&next, length + 1);
    }
}

static void search_all(struct bounds limits, uint64_t tag)
{
    struct world world;

    bounds = limits;
    memset(&world, 0, sizeof(world));
    for (int i = 0; i < CLIENTS; i++)
        world.client[i].lives = bounds.lives;
    for (int i = 0; i < SLOTS; i++)
        world.tag[i] = tag;
    allocate_visited(1 << 16);
    search(&world, 0);
    print_message("%zu states\n", visited_count);
    assert_true(visited_count > 1000);
    free(visited);
    visited = NULL;
}

static void one_owner_at_a_time_when_clients_die_and_restart(void **state)
{
    (void)state;
    search_all((struct bounds){.lives = 2, .attempts = 1, .retries = 2}, 0);
}

static void one_owner_at_a_time_when_clients_lock_repeatedly(void **state)
{
    (void)state;
    search_all((struct bounds){.lives = 1, .attempts = 2, .retries = 2}, 0);
}

static void one_owner_at_a_time_when_the_low_half_of_the_tag_overflows(
    void **state)
{
    (void)state;
    search_all((struct bounds){.lives = 1, .attempts = 2, .retries = 2},
               0xffffe);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(one_owner_at_a_time_when_clients_die_and_restart),
        cmocka_unit_test(one_owner_at_a_time_when_clients_lock_repeatedly),
        cmocka_unit_test(
            one_owner_at_a_time_when_the_low_half_of_the_tag_overflows),
    };

    return hf_test_main("word", cases, HF_TEST_COUNT(cases), 0);
}
