/* The lock word in every interleaving of three clients that may die between any
 * two accesses to shared memory, and whose slots other clients take again.
 *
 * The steps are those of the product (word.c). The world around them is a model:
 * slots that the kernel frees with a process, and clients that come, go inside,
 * leave, die and come again. The search visits every state that can be reached,
 * once. In each of them
 *   - at most one client is inside;
 *   - if all died now, a new client could go inside. */
#include "strategy/file/word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"

#define CLIENTS 3
#define SLOTS 3
#define PATH_MAX_STEPS 256

/* A client dies, or is done, and another takes its place. */
enum phase {
    ABSENT,
    UNSIGNED,
    IDLE,
    ENTERING,
    INSIDE
};

struct client {
    enum phase phase;
    unsigned lives; /* left */
    unsigned goes;  /* inside, left in this life */
    unsigned slot;
    struct hf_word_attempt attempt;
};

/* Everything, without padding that is not zeroed: it is compared by bytes. */
struct world {
    _Atomic uint64_t word;
    _Atomic uint64_t turn[SLOTS];
    bool locked[SLOTS]; /* a client has it, by a lock of the kernel's */
    bool signs[SLOTS];  /* and the number in it is that of a living process */
    struct client client[CLIENTS];
};

/* How much is searched. */
static struct bounds {
    unsigned lives, goes, spins, naps;
} bounds;

/* ---- States that were visited -------------------------------------------*/

static uint64_t *visited;
static size_t visited_room, visited_count;

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

static bool insert(uint64_t hash)
{
    size_t at = hash & (visited_room - 1);

    while (visited[at] != 0 && visited[at] != hash)
        at = (at + 1) & (visited_room - 1);
    if (visited[at] == hash)
        return false;
    visited[at] = hash;
    visited_count++;
    return true;
}

static void make_visited(size_t room)
{
    free(visited);
    visited = calloc(room, sizeof(*visited));
    assert_non_null(visited);
    visited_room = room;
    visited_count = 0;
}

static void grow_visited(void)
{
    uint64_t *old = visited;
    size_t room = visited_room;

    visited = NULL;
    make_visited(room * 2);
    for (size_t i = 0; i < room; i++) {
        if (old[i] != 0)
            (void)insert(old[i]);
    }
    free(old);
}

static bool is_new(const struct world *world)
{
    if (visited_count * 2 > visited_room)
        grow_visited();
    return insert(digest(world));
}

/* ---- What a client does -------------------------------------------------*/

/* The kernel frees its slot. The next client there is another process. */
static void die(struct world *world, struct client *client)
{
    world->locked[client->slot] = false;
    world->signs[client->slot] = false;
    memset(&client->attempt, 0, sizeof(client->attempt));
    client->phase = ABSENT;
    client->goes = 0;
    client->slot = 0;
}

static void come(struct world *world, struct client *client)
{
    while (world->locked[client->slot])
        client->slot++;
    world->locked[client->slot] = true;
    client->phase = UNSIGNED;
    client->lives--;
    client->goes = bounds.goes;
}

static void start_attempt(struct world *world, struct client *client)
{
    hf_word_start(&client->attempt, client->slot, &world->turn[client->slot]);
    client->attempt.spins = bounds.spins;
    client->attempt.naps = bounds.naps;
    client->phase = ENTERING;
    client->goes--;
}

/* What does not matter any more is forgotten: fewer states differ. */
static void end_attempt(struct client *client)
{
    uint64_t turn = client->attempt.turn;

    client->phase = client->attempt.state == HF_WORD_INSIDE ? INSIDE : IDLE;
    assert_int_not_equal(client->attempt.state, HF_WORD_BROKEN);
    memset(&client->attempt, 0, sizeof(client->attempt));
    client->attempt.turn = turn;
}

static void advance(struct world *world, struct client *client)
{
    struct hf_word_attempt *attempt = &client->attempt;

    if (attempt->state == HF_WORD_ASK) {
        unsigned owner = hf_word_owner(attempt->seen);

        hf_word_set_owner_alive(attempt,
                                world->locked[owner] && world->signs[owner]);
    } else {
        hf_word_step(attempt, &world->word);
    }
    if (attempt->state >= HF_WORD_INSIDE)
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

static void act(struct world *world, struct client *client)
{
    switch (client->phase) {
    case ABSENT:
        come(world, client);
        break;
    case UNSIGNED:
        world->signs[client->slot] = true;
        client->phase = IDLE;
        break;
    case IDLE:
        if (client->goes > 0)
            start_attempt(world, client);
        else
            die(world, client); /* or closes: the same to the others */
        break;
    case ENTERING:
        advance(world, client);
        break;
    case INSIDE:
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

static void expect_one_inside(const struct world *world, unsigned length)
{
    unsigned inside = 0;

    for (int i = 0; i < CLIENTS; i++)
        inside += world->client[i].phase == INSIDE;
    if (inside <= 1)
        return;
    print_path(length);
    fail_msg("%u clients are inside, after the steps above", inside);
}

static void expect_not_wedged(const struct world *now, unsigned length)
{
    struct world world = *now;
    struct client *client = &world.client[0];

    for (int i = 0; i < CLIENTS; i++) {
        if (world.client[i].phase != ABSENT)
            die(&world, &world.client[i]);
    }
    client->lives = 1;
    for (int i = 0; i < 100 && client->phase != INSIDE; i++) {
        if (client->phase == IDLE)
            client->goes = 1;
        act(&world, client);
    }
    if (client->phase == INSIDE)
        return;
    print_path(length);
    fail_msg("nobody can go inside, after the steps above");
}

static void search(const struct world *world, unsigned length)
{
    assert_true(length < PATH_MAX_STEPS);
    if (!is_new(world))
        return;
    expect_one_inside(world, length);
    expect_not_wedged(world, length);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct world next;

        if (!can_act(world, i))
            continue;
        path[length].client = (unsigned char)i;
        path[length].dies = false;
        memcpy(&next, world, sizeof(next));
        act(&next, &next.client[i]);
        search(&next, length + 1);
        if (world->client[i].phase == ABSENT)
            continue;
        path[length].dies = true;
        memcpy(&next, world, sizeof(next));
        die(&next, &next.client[i]);
        search(&next, length + 1);
    }
}

static void search_all(struct bounds how_far, uint64_t turn)
{
    struct world world;

    bounds = how_far;
    memset(&world, 0, sizeof(world));
    for (int i = 0; i < CLIENTS; i++)
        world.client[i].lives = bounds.lives;
    for (int i = 0; i < SLOTS; i++)
        world.turn[i] = turn;
    make_visited(1 << 16);
    search(&world, 0);
    print_message("%zu states\n", visited_count);
    assert_true(visited_count > 1000);
    free(visited);
    visited = NULL;
}

static void one_client_is_inside_whoever_dies_and_comes_again(void **state)
{
    (void)state;
    search_all((struct bounds){.lives = 2, .goes = 1, .naps = 2}, 0);
}

static void one_client_is_inside_however_often_each_goes_in(void **state)
{
    (void)state;
    search_all((struct bounds){.lives = 1, .goes = 2, .naps = 2}, 0);
}

static void turns_go_on_where_the_low_half_of_the_word_ends(void **state)
{
    (void)state;
    search_all((struct bounds){.lives = 1, .goes = 2, .naps = 2}, 0xffffe);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(one_client_is_inside_whoever_dies_and_comes_again),
        cmocka_unit_test(one_client_is_inside_however_often_each_goes_in),
        cmocka_unit_test(turns_go_on_where_the_low_half_of_the_word_ends),
    };

    return hf_test_main("word", cases, HF_TEST_COUNT(cases), 0);
}
