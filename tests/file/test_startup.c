/* Many clients start at once, while others keep the arena locked for long: all
 * of them can be opened, however long that takes. */
#include <stdatomic.h>
#include <time.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/site.h"
#include "strategy/file/arena.h"

#define HOGS 40
#define STARTS 40
#define LOCKED_MS 40

static struct {
    atomic_bool over;
} * shared;

static int set_up(void **state)
{
    shared = hf_child_share(sizeof(*shared));
    return hf_site_set_up(state);
}

/* Lock the arena for LOCKED_MS, again and again, in turn with the other
 * hogs. */
static void hog_main(void *arg)
{
    const struct timespec locked = {.tv_nsec = LOCKED_MS * 1000000L};
    const struct timespec unlocked = {.tv_nsec = 1000000};
    struct hf_error error = {.text = ""};
    struct hf_arena arena;
    pid_t other;

    (void)arg;
    if (hf_arena_open(&arena, hf_site_path("locks"), 0700, &error))
        fail_msg("%s", error.text);
    while (!atomic_load(&shared->over)) {
        if (hf_arena_lock(&arena, &other) != HF_ARENA_LOCKED)
            continue;
        nanosleep(&locked, NULL);
        hf_arena_unlock(&arena);
        nanosleep(&unlocked, NULL);
    }
    hf_arena_close(&arena);
}

static void open_and_close(void *arg)
{
    struct hf_client *client = hf_site_open();

    (void)arg;
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void all_clients_open_while_others_take_turns(void **state)
{
    pid_t hogs[HOGS], starts[STARTS];

    (void)state;
    assert_int_equal(hf_close(hf_site_open(), HF_TEST_TIMEOUT_MS), HF_OK);
    for (int i = 0; i < HOGS; i++)
        hogs[i] = hf_child_start(hog_main, NULL);
    for (int i = 0; i < STARTS; i++)
        starts[i] = hf_child_start(open_and_close, NULL);
    for (int i = 0; i < STARTS; i++)
        hf_child_join(starts[i]);
    atomic_store(&shared->over, true);
    for (int i = 0; i < HOGS; i++)
        hf_child_join(hogs[i]);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(all_clients_open_while_others_take_turns),
    };

    return hf_test_main("startup", cases, HF_TEST_COUNT(cases), 0);
}
