#include "base/ring.h"

#include "base/random.h"
#include "lib/alloc.h"
#include "lib/death.h"
#include "lib/runner.h"

/* A size that is not a power of two. */
struct element {
    uint64_t number;
    uint8_t bytes[5];
};

static struct element *element_at(const struct hf_ring *ring, size_t i)
{
    return hf_ring_at(ring, sizeof(struct element), i);
}

static void push_number(struct hf_ring *ring, uint64_t number)
{
    struct element *element;

    assert_int_equal(hf_ring_reserve(ring, sizeof(*element)), HF_OK);
    element = hf_ring_push(ring, sizeof(*element));
    *element = (struct element){number, {(uint8_t)number}};
}

/* The ring contains the numbers from `first` on. */
static void expect_numbers(const struct hf_ring *ring, uint64_t first)
{
    for (size_t i = 0; i < ring->count; i++) {
        assert_int_equal(element_at(ring, i)->number, first + i);
        assert_int_equal(element_at(ring, i)->bytes[0], (uint8_t)(first + i));
    }
}

static void elements_leave_at_both_ends_in_order(void **state)
{
    struct hf_random random;
    struct hf_ring ring = {0};
    uint64_t first = 1, next = 1;

    (void)state;
    hf_random_init(&random, 1);
    for (unsigned step = 0; step < 20000; step++) {
        switch (hf_random_below(&random, 5)) {
        case 0:
            if (first < next) {
                hf_ring_drop_first(&ring);
                first++;
            }
            break;
        case 1:
            if (first < next) {
                hf_ring_drop_last(&ring);
                next--;
            }
            break;
        default:
            if (next - first < 100)
                push_number(&ring, next++);
        }
        assert_int_equal(ring.count, next - first);
        expect_numbers(&ring, first);
    }
    assert_int_equal(ring.capacity, 128);
    hf_ring_fini(&ring);
}

/* The first element is not in the first slot when the array grows. */
static void growing_keeps_the_order(void **state)
{
    struct hf_ring ring = {0};

    (void)state;
    for (uint64_t i = 1; i <= 16; i++)
        push_number(&ring, i);
    for (unsigned i = 0; i < 7; i++)
        hf_ring_drop_first(&ring);
    for (uint64_t i = 17; i <= 23; i++)
        push_number(&ring, i);
    assert_int_equal(ring.count, ring.capacity);
    assert_true(ring.head > 0);
    push_number(&ring, 24);
    assert_int_equal(ring.capacity, 32);
    assert_int_equal(ring.count, 17);
    expect_numbers(&ring, 8);
    hf_ring_fini(&ring);
}

static void a_cleared_ring_keeps_its_array(void **state)
{
    long bytes = hf_alloc_bytes();
    struct hf_ring ring = {0};

    (void)state;
    for (uint64_t i = 1; i <= 40; i++)
        push_number(&ring, i);
    hf_ring_clear(&ring);
    assert_int_equal(ring.count, 0);
    assert_int_equal(ring.capacity, 64);
    push_number(&ring, 9);
    expect_numbers(&ring, 9);
    hf_ring_fini(&ring);
    assert_int_equal(ring.capacity, 0);
    assert_int_equal(hf_alloc_bytes(), bytes);
}

static void failed_reserve_changes_nothing(void **state)
{
    struct hf_ring ring = {0};

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_ring_reserve(&ring, sizeof(struct element)), HF_ENOMEM);
    assert_int_equal(ring.capacity, 0);
    for (uint64_t i = 1; i <= 16; i++)
        push_number(&ring, i);
    hf_ring_drop_first(&ring);
    push_number(&ring, 17);
    hf_alloc_fail(1, 1);
    assert_int_equal(hf_ring_reserve(&ring, sizeof(struct element)), HF_ENOMEM);
    assert_true(hf_alloc_failed());
    assert_int_equal(ring.count, 16);
    assert_int_equal(ring.capacity, 16);
    expect_numbers(&ring, 2);
    push_number(&ring, 18);
    expect_numbers(&ring, 2);
    hf_ring_fini(&ring);
}

static void push_without_room(void *arg)
{
    (void)hf_ring_push(arg, sizeof(struct element));
}

static void drop_from_empty(void *arg)
{
    hf_ring_drop_first(arg);
}

static void read_after_the_end(void *arg)
{
    (void)element_at(arg, 1);
}

static void misuse_aborts(void **state)
{
    struct hf_ring ring = {0};

    (void)state;
    assert_true(hf_test_dies(push_without_room, &ring));
    assert_true(hf_test_dies(drop_from_empty, &ring));
    push_number(&ring, 1);
    assert_true(hf_test_dies(read_after_the_end, &ring));
    hf_ring_fini(&ring);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(elements_leave_at_both_ends_in_order),
        cmocka_unit_test(growing_keeps_the_order),
        cmocka_unit_test(a_cleared_ring_keeps_its_array),
        cmocka_unit_test(failed_reserve_changes_nothing),
        cmocka_unit_test(misuse_aborts),
    };

    return hf_test_main("ring", cases, HF_TEST_COUNT(cases), 0);
}
