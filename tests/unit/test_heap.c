#include "base/heap.h"

#include <stdlib.h>

#include "base/random.h"
#include "lib/alloc.h"
#include "lib/death.h"
#include "lib/runner.h"

enum {
    COUNT = 500,
};

struct item {
    struct hf_heap_link link;
    hf_time key;
};

static struct item items[COUNT];

static hf_time smallest_key(void)
{
    hf_time least = HF_NEVER;

    for (size_t i = 0; i < COUNT; i++) {
        if (hf_heap_has(&items[i].link) && items[i].key < least)
            least = items[i].key;
    }
    return least;
}

/* There are fewer keys than items, so equal keys are common. */
static void top_is_the_smallest_key(void **state)
{
    struct hf_random random;
    struct hf_heap heap = {0};

    (void)state;
    hf_random_init(&random, 1);
    assert_int_equal(hf_heap_reserve(&heap, COUNT), HF_OK);
    for (unsigned step = 0; step < 20000; step++) {
        struct item *item = &items[hf_random_below(&random, COUNT)];

        if (hf_random_below(&random, 3) == 0) {
            hf_heap_drop(&heap, &item->link);
            assert_false(hf_heap_has(&item->link));
        } else {
            item->key = hf_random_below(&random, 100);
            hf_heap_set(&heap, &item->link, item->key);
            assert_true(hf_heap_key(&heap, &item->link) == item->key);
        }
        assert_true(hf_heap_top_key(&heap) == smallest_key());
    }
    hf_heap_fini(&heap);
}

static int compare_times(const void *a, const void *b)
{
    const hf_time *x = a;
    const hf_time *y = b;

    return (*x > *y) - (*x < *y);
}

static void heap_returns_links_in_order(void **state)
{
    struct hf_random random;
    struct hf_heap heap = {0};
    hf_time sorted[COUNT];

    (void)state;
    hf_random_init(&random, 2);
    for (size_t i = 0; i < COUNT; i++) {
        sorted[i] = items[i].key = hf_random_below(&random, 50);
        assert_int_equal(hf_heap_reserve(&heap, i + 1), HF_OK);
        hf_heap_set(&heap, &items[i].link, items[i].key);
    }
    qsort(sorted, COUNT, sizeof(sorted[0]), compare_times);
    for (size_t i = 0; i < COUNT; i++) {
        struct hf_heap_link *top = hf_heap_top(&heap);

        assert_true(HF_CONTAINER(top, struct item, link)->key == sorted[i]);
        hf_heap_drop(&heap, top);
    }
    hf_heap_fini(&heap);
}

static void empty_heap_has_no_top(void **state)
{
    struct hf_heap heap = {0};

    (void)state;
    assert_null(hf_heap_top(&heap));
    assert_true(hf_heap_top_key(&heap) == HF_NEVER);
    hf_heap_drop(&heap, &items[0].link);
    hf_heap_fini(&heap);
}

static void fill_heap(struct hf_heap *heap)
{
    assert_int_equal(hf_heap_reserve(heap, COUNT), HF_OK);
    for (size_t i = 0; i < COUNT; i++)
        hf_heap_set(heap, &items[i].link, (hf_time)i);
}

static void heap_shrinks_to_its_reserved_size(void **state)
{
    long bytes = hf_alloc_bytes();
    struct hf_heap heap = {0};
    size_t capacity;

    (void)state;
    fill_heap(&heap);
    capacity = heap.capacity;
    for (size_t i = 0; i < COUNT; i++)
        hf_heap_drop(&heap, &items[i].link);
    assert_int_equal(heap.capacity, capacity);

    fill_heap(&heap);
    assert_int_equal(hf_heap_reserve(&heap, 0), HF_OK);
    for (size_t i = 0; i < COUNT; i++)
        hf_heap_drop(&heap, &items[i].link);
    assert_true(heap.capacity <= 8);
    hf_heap_fini(&heap);
    assert_int_equal(hf_alloc_bytes(), bytes);
}

static void failed_reserve_changes_nothing(void **state)
{
    struct hf_heap heap = {0};

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_heap_reserve(&heap, 1), HF_ENOMEM);
    assert_int_equal(heap.capacity, 0);
    fill_heap(&heap);
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_heap_reserve(&heap, 100000), HF_ENOMEM);
    assert_int_equal(heap.reserved, COUNT);
    assert_true(hf_heap_top(&heap) == &items[0].link);
    hf_heap_fini(&heap);
}

static void failed_shrink_is_harmless(void **state)
{
    struct hf_heap heap = {0};

    (void)state;
    fill_heap(&heap);
    assert_int_equal(hf_heap_reserve(&heap, 0), HF_OK);
    hf_alloc_fail(1, 1000000);
    for (size_t i = 0; i < COUNT - 1; i++)
        hf_heap_drop(&heap, &items[i].link);
    assert_true(hf_alloc_failed());
    assert_true(hf_heap_top(&heap) == &items[COUNT - 1].link);
    hf_heap_fini(&heap);
}

static void set_without_room(void *arg)
{
    hf_heap_set(arg, &items[0].link, 1);
}

static void adding_without_room_aborts(void **state)
{
    struct hf_heap heap = {0};

    (void)state;
    assert_true(hf_test_dies(set_without_room, &heap));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(top_is_the_smallest_key),
        cmocka_unit_test(heap_returns_links_in_order),
        cmocka_unit_test(empty_heap_has_no_top),
        cmocka_unit_test(heap_shrinks_to_its_reserved_size),
        cmocka_unit_test(failed_reserve_changes_nothing),
        cmocka_unit_test(failed_shrink_is_harmless),
        cmocka_unit_test(adding_without_room_aborts),
    };

    return hf_test_main("heap", cases, HF_TEST_COUNT(cases), 0);
}
