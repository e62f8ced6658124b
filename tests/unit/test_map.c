#include "base/map.h"

#include <stdlib.h>

#include "base/random.h"
#include "lib/alloc.h"
#include "lib/death.h"
#include "lib/runner.h"

enum {
    COUNT = 3000,
};

struct item {
    struct hf_map_link link;
    uint64_t hash;
    bool in_map;
    unsigned seen;
};

static struct item items[COUNT];

/* An iteration must visit every item in the map once, and no other item. */
static void check_walk(const struct hf_map *map)
{
    struct hf_map_link *link = NULL;
    size_t count = 0;

    for (size_t i = 0; i < COUNT; i++)
        items[i].seen = 0;
    while ((link = hf_map_next(map, link))) {
        struct item *item = HF_CONTAINER(link, struct item, link);

        assert_true(item->in_map);
        assert_int_equal(item->seen++, 0);
        count++;
    }
    assert_int_equal(count, map->count);
}

static bool find_item(const struct hf_map *map, const struct item *item)
{
    struct hf_map_link *link = hf_map_find(map, item->hash);

    while (link && link != &item->link) {
        assert_true(link->hash == item->hash);
        link = hf_map_find_next(link);
    }
    return link != NULL;
}

/* There are fewer hashes than items, so some items share a hash. */
static void map_agrees_with_an_array(void **state)
{
    struct hf_random random;
    struct hf_map map;
    size_t count = 0;

    (void)state;
    hf_random_init(&random, 1);
    hf_map_init(&map);
    for (size_t i = 0; i < COUNT; i++)
        items[i].hash = UINT64_C(7919) * hf_random_below(&random, 2000);
    for (unsigned step = 0; step < 200000; step++) {
        struct item *item = &items[hf_random_below(&random, COUNT)];
        bool growing = (step / 20000) % 2 == 0;

        assert_int_equal(find_item(&map, item), item->in_map);
        if (item->in_map && (!growing || hf_random_below(&random, 4) == 0)) {
            hf_map_remove(&map, &item->link);
            item->in_map = false;
            count--;
        } else if (!item->in_map &&
                   (growing || hf_random_below(&random, 4) == 0)) {
            hf_map_insert(&map, &item->link, item->hash);
            item->in_map = true;
            count++;
        }
        assert_int_equal(map.count, count);
        if (step % 10000 == 0)
            check_walk(&map);
    }
    hf_map_fini(&map);
}

static void insert_all(struct hf_map *map)
{
    for (size_t i = 0; i < COUNT; i++) {
        hf_map_insert(map, &items[i].link, i * UINT64_C(0x9e3779b97f4a7c15));
        items[i].in_map = true;
        items[i].hash = items[i].link.hash;
    }
}

/* MJ-11: the map frees its memory in whatever order the items are removed. */
static void emptied_map_frees_its_memory(void **state)
{
    long bytes = hf_alloc_bytes();
    struct hf_map map;

    (void)state;
    hf_map_init(&map);
    insert_all(&map);
    assert_true(hf_alloc_bytes() > bytes);
    for (size_t i = 0; i < COUNT; i++)
        hf_map_remove(&map, &items[i].link);
    assert_int_equal(map.buckets, HF_MAP_FIRST);
    assert_int_equal(hf_alloc_bytes(), bytes);

    insert_all(&map);
    for (size_t i = COUNT; i-- > 0;)
        hf_map_remove(&map, &items[i].link);
    assert_int_equal(hf_alloc_bytes(), bytes);
    hf_map_fini(&map);
    assert_int_equal(hf_alloc_bytes(), bytes);
}

static void map_has_a_bucket_for_each_link(void **state)
{
    struct hf_map map;

    (void)state;
    hf_map_init(&map);
    insert_all(&map);
    assert_true(map.buckets >= COUNT);
    for (size_t i = 0; i < COUNT / 2; i++)
        hf_map_remove(&map, &items[i].link);
    assert_true(map.buckets >= COUNT / 2);
    for (size_t i = COUNT / 2; i < COUNT; i++)
        assert_true(find_item(&map, &items[i]));
    hf_map_fini(&map);
}

static void map_works_without_memory_to_grow(void **state)
{
    struct hf_map map;

    (void)state;
    hf_map_init(&map);
    hf_alloc_fail(1, 1000000);
    insert_all(&map);
    assert_true(hf_alloc_failed());
    assert_int_equal(map.buckets, HF_MAP_FIRST);
    check_walk(&map);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(find_item(&map, &items[i]));
        hf_map_remove(&map, &items[i].link);
    }
    assert_null(hf_map_next(&map, NULL));
    hf_map_fini(&map);
}

static void links_can_be_freed_during_iteration(void **state)
{
    struct hf_map map;
    struct hf_map_link *link;

    (void)state;
    hf_map_init(&map);
    for (uint64_t i = 0; i < 100; i++) {
        struct item *item = malloc(sizeof(*item));

        assert_non_null(item);
        hf_map_insert(&map, &item->link, i);
    }
    link = hf_map_next(&map, NULL);
    while (link) {
        struct hf_map_link *next = hf_map_next(&map, link);

        free(HF_CONTAINER(link, struct item, link));
        link = next;
    }
    hf_map_fini(&map);
}

static void reserved_map_works_like_any_other(void **state)
{
    static const size_t counts[] = {0, 1, 16, 17, 32, 33, 1000, 2048, COUNT};

    (void)state;
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        struct hf_map map;

        hf_map_init(&map);
        hf_map_reserve(&map, counts[n]);
        assert_int_equal(map.buckets, counts[n] > 16 ? counts[n] : 16);
        for (size_t i = 0; i < COUNT; i++) {
            items[i] = (struct item){.hash = i * UINT64_C(0x9e3779b97f4a7c15)};
            hf_map_insert(&map, &items[i].link, items[i].hash);
            items[i].in_map = true;
        }
        check_walk(&map);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(find_item(&map, &items[i]));
            hf_map_remove(&map, &items[i].link);
            items[i].in_map = false;
        }
        assert_int_equal(map.buckets, HF_MAP_FIRST);
        hf_map_fini(&map);
    }
}

static void remove_unknown_link(void *arg)
{
    hf_map_remove(arg, &items[0].link);
}

static void removing_an_unknown_link_aborts(void **state)
{
    struct hf_map map;

    (void)state;
    hf_map_init(&map);
    assert_true(hf_test_dies(remove_unknown_link, &map));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(map_agrees_with_an_array),
        cmocka_unit_test(emptied_map_frees_its_memory),
        cmocka_unit_test(map_has_a_bucket_for_each_link),
        cmocka_unit_test(map_works_without_memory_to_grow),
        cmocka_unit_test(reserved_map_works_like_any_other),
        cmocka_unit_test(links_can_be_freed_during_iteration),
        cmocka_unit_test(removing_an_unknown_link_aborts),
    };

    return hf_test_main("map", cases, HF_TEST_COUNT(cases), 0);
}
