#include "base/dlist.h"

#include "lib/runner.h"

struct item {
    int number;
    struct hf_dlist link;
};

static int number_of(const struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct item, link)->number;
}

static void list_keeps_its_order(void **state)
{
    struct item items[4] = {
        {.number = 1}, {.number = 2}, {.number = 3}, {.number = 0}};
    struct hf_dlist list;

    (void)state;
    hf_dlist_init(&list);
    for (int i = 0; i < 3; i++)
        hf_dlist_push_back(&list, &items[i].link);
    hf_dlist_push_front(&list, &items[3].link);
    for (int i = 0; i < 4; i++)
        assert_int_equal(number_of(hf_dlist_take(&list)), i);
    assert_null(hf_dlist_take(&list));
}

static void insert_puts_a_link_before_another(void **state)
{
    struct item items[3] = {{.number = 1}, {.number = 3}, {.number = 2}};
    struct hf_dlist list;

    (void)state;
    hf_dlist_init(&list);
    hf_dlist_push_back(&list, &items[0].link);
    hf_dlist_push_back(&list, &items[1].link);
    hf_dlist_insert(&items[1].link, &items[2].link);
    for (int i = 1; i < 4; i++)
        assert_int_equal(number_of(hf_dlist_take(&list)), i);
}

static void link_in_the_middle_can_be_removed(void **state)
{
    struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    struct hf_dlist list;

    (void)state;
    hf_dlist_init(&list);
    for (int i = 0; i < 3; i++)
        hf_dlist_push_back(&list, &items[i].link);
    assert_true(hf_dlist_is_linked(&items[1].link));
    hf_dlist_remove(&items[1].link);
    hf_dlist_remove(&items[1].link);
    assert_false(hf_dlist_is_linked(&items[1].link));
    assert_int_equal(number_of(hf_dlist_first(&list)), 1);
    assert_int_equal(number_of(hf_dlist_take(&list)), 1);
    assert_int_equal(number_of(hf_dlist_take(&list)), 3);
    assert_true(hf_dlist_is_empty(&list));
}

static void zeroed_link_is_in_no_list(void **state)
{
    struct hf_dlist link = {0};

    (void)state;
    assert_true(hf_dlist_is_empty(&link));
    assert_false(hf_dlist_is_linked(&link));
    assert_null(hf_dlist_first(&link));
    hf_dlist_remove(&link);
    assert_null(link.next);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(list_keeps_its_order),
        cmocka_unit_test(insert_puts_a_link_before_another),
        cmocka_unit_test(link_in_the_middle_can_be_removed),
        cmocka_unit_test(zeroed_link_is_in_no_list),
    };

    return hf_test_main("dlist", cases, HF_TEST_COUNT(cases), 0);
}
