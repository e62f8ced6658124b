#include "base/buf.h"

#include "lib/alloc.h"
#include "lib/runner.h"

static void reader_returns_what_was_written(void **state)
{
    struct hf_buf buf = {0};
    struct hf_reader reader;
    struct hf_bytes bytes;
    char raw[3];

    (void)state;
    hf_buf_u8(&buf, 0xfe);
    hf_buf_u32(&buf, 0xdeadbeef);
    hf_buf_u64(&buf, UINT64_C(0x0123456789abcdef));
    hf_buf_raw(&buf, "raw", 3);
    hf_buf_bytes(&buf, "a\0b", 3);
    hf_buf_bytes(&buf, NULL, 0);

    reader = (struct hf_reader){.data = buf.data, .size = buf.size};
    assert_int_equal(hf_reader_u8(&reader), 0xfe);
    assert_int_equal(hf_reader_u32(&reader), 0xdeadbeef);
    assert_true(hf_reader_u64(&reader) == UINT64_C(0x0123456789abcdef));
    hf_reader_raw(&reader, raw, sizeof(raw));
    assert_memory_equal(raw, "raw", 3);
    bytes = hf_reader_bytes(&reader, 3);
    assert_int_equal(bytes.size, 3);
    assert_memory_equal(bytes.data, "a\0b", 3);
    assert_int_equal(hf_reader_bytes(&reader, 0).size, 0);
    assert_int_equal(reader.size, 0);
    assert_false(reader.failed);
    hf_buf_fini(&buf);
}

static void numbers_are_little_endian(void **state)
{
    static const uint8_t expected[] = {1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1};
    struct hf_buf buf = {0};

    (void)state;
    hf_buf_u8(&buf, 1);
    hf_buf_u32(&buf, 0x01020304);
    hf_buf_u64(&buf, UINT64_C(0x0102030405060708));
    assert_int_equal(buf.size, sizeof(expected));
    assert_memory_equal(buf.data, expected, sizeof(expected));
    hf_buf_fini(&buf);
}

static void buffer_grows_as_needed(void **state)
{
    static uint8_t block[5000];
    struct hf_buf buf = {0};

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        hf_buf_u8(&buf, (uint8_t)i);
    hf_buf_raw(&buf, block, sizeof(block));
    assert_int_equal(buf.size, 6000);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(buf.data[i], i & 0xff);
    hf_buf_fini(&buf);
    assert_null(buf.data);
}

/* A failed buffer stays failed, even if memory is available again. */
static void failed_buffer_ignores_later_writes(void **state)
{
    struct hf_buf buf = {0};

    (void)state;
    hf_buf_u64(&buf, 1);
    hf_alloc_fail(1, 1);
    for (int i = 0; i < 20; i++)
        hf_buf_u64(&buf, 2);
    assert_true(hf_alloc_failed());
    assert_true(buf.failed);
    assert_int_equal(buf.size, 64);
    hf_buf_fini(&buf);
    assert_false(buf.failed);
}

static void failed_reader_stays_failed(void **state)
{
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6};
    struct hf_reader reader = {.data = data, .size = sizeof(data)};
    uint32_t raw = 7;

    (void)state;
    assert_int_equal(hf_reader_u64(&reader), 0);
    assert_true(reader.failed);
    assert_int_equal(hf_reader_u8(&reader), 0);
    hf_reader_raw(&reader, &raw, sizeof(raw));
    assert_int_equal(raw, 0);
    assert_null(hf_reader_bytes(&reader, 10).data);
}

static void reader_rejects_a_length_above_the_limit(void **state)
{
    static const uint8_t data[] = {3, 0, 0, 0, 'a', 'b', 'c'};
    struct hf_reader reader = {.data = data, .size = sizeof(data)};

    (void)state;
    assert_int_equal(hf_reader_bytes(&reader, 2).size, 0);
    assert_true(reader.failed);

    reader = (struct hf_reader){.data = data, .size = sizeof(data) - 1};
    assert_int_equal(hf_reader_bytes(&reader, 3).size, 0);
    assert_true(reader.failed);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(reader_returns_what_was_written),
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(buffer_grows_as_needed),
        cmocka_unit_test(failed_buffer_ignores_later_writes),
        cmocka_unit_test(failed_reader_stays_failed),
        cmocka_unit_test(reader_rejects_a_length_above_the_limit),
    };

    return hf_test_main("buf", cases, HF_TEST_COUNT(cases), 0);
}
