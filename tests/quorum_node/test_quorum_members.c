/* test_quorum_members.c - the file of a master. */
#include <stdlib.h>
#include <string.h>

#include "lib/alloc.h"
#include "lib/runner.h"
#include "quorum/members.h"

static const char sound[] = "holdfast-master 1\n"
                            "cluster 112233445566778899aabbccddeeff00\n"
                            "node 2\n"
                            "lease_max_ms 60000\n"
                            "set 3\n"
                            "master 1 127.0.0.1:7001\n"
                            "master 2 [::1]:7002\n"
                            "mark 4294967296\n";

/* The file as text, with its checksum. */
static struct hf_buf encode(const struct hf_members_file *file)
{
    struct hf_buf buf = {0};

    hf_members_encode_file(file, &buf);
    assert_false(buf.failed);
    return buf;
}

static struct hf_members_file example(void)
{
    return (struct hf_members_file){
        .members = {.cluster = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
                                0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff},
                    .set = 3,
                    .lease_max_ms = 60000,
                    .masters = {{1, "127.0.0.1:7001"}, {2, "[::1]:7002"}},
                    .count = 2},
        .node = 2,
        .mark = UINT64_C(4294967296),
    };
}

static enum hf_err decode(const void *data, size_t size)
{
    struct hf_members_file file;

    return hf_members_decode_file(&file, (struct hf_bytes){data, size});
}

static void a_file_is_read_as_it_was_written(void **state)
{
    struct hf_members_file file = example();
    struct hf_members_file found;
    struct hf_buf buf = encode(&file);

    (void)state;
    assert_memory_equal(buf.data, sound, strlen(sound));
    assert_int_equal(
        hf_members_decode_file(&found, (struct hf_bytes){buf.data, buf.size}),
        HF_OK);
    assert_memory_equal(&found, &file, sizeof(file));
    assert_true(buf.size < HF_MEMBERS_FILE_MAX);
    hf_buf_fini(&buf);
}

static void any_damage_is_noticed(void **state)
{
    struct hf_members_file file = example();
    struct hf_buf buf = encode(&file);

    (void)state;
    for (size_t size = 0; size < buf.size; size++)
        assert_int_equal(decode(buf.data, size), HF_EPROTO);
    for (size_t at = 0; at < buf.size; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            enum hf_err err;

            buf.data[at] ^= (uint8_t)(1U << bit);
            err = decode(buf.data, buf.size);
            if (err != HF_EPROTO && err != HF_EUNSUPPORTED)
                fail_msg("byte %zu, bit %u: %d", at, bit, err);
            buf.data[at] ^= (uint8_t)(1U << bit);
        }
    }
    hf_buf_raw(&buf, "\n", 1);
    assert_int_equal(decode(buf.data, buf.size), HF_EPROTO);
    hf_buf_fini(&buf);
}

/* With a checksum that fits. */
static void content_that_makes_no_sense_is_refused(void **state)
{
    struct hf_members_file files[] = {example(), example(), example(),
                                      example(), example(), example()};

    (void)state;
    files[0].node = 3;
    files[1].members.count = 0;
    files[2].members.set = 0;
    files[3].members.lease_max_ms = 0;
    files[4].members.masters[1].id = 1;
    files[5].members.masters[0].id = 0;
    for (size_t i = 0; i < HF_TEST_COUNT(files); i++) {
        struct hf_buf buf = encode(&files[i]);

        assert_int_equal(decode(buf.data, buf.size), HF_EPROTO);
        hf_buf_fini(&buf);
    }
}

static void a_newer_version_is_unsupported(void **state)
{
    static const char newer[] = "holdfast-master 2\nwhatever\n";
    static const char not_newer[] = "holdfast-master 2x\nwhatever\n";

    (void)state;
    assert_int_equal(decode(newer, strlen(newer)), HF_EUNSUPPORTED);
    assert_int_equal(decode(not_newer, strlen(not_newer)), HF_EPROTO);
}

static void the_largest_file_fits(void **state)
{
    struct hf_members_file file = example();
    struct hf_buf buf;

    (void)state;
    file.mark = UINT64_MAX;
    file.members.set = UINT64_MAX;
    file.members.count = HF_QUORUM_MASTERS_MAX;
    file.node = UINT64_MAX;
    for (size_t i = 0; i < HF_QUORUM_MASTERS_MAX; i++) {
        struct hf_member *member = &file.members.masters[i];

        member->id = UINT64_MAX - HF_QUORUM_MASTERS_MAX + 1 + i;
        memset(member->address, 'x', sizeof(member->address) - 1);
    }
    buf = encode(&file);
    assert_true(buf.size < HF_MEMBERS_FILE_MAX);
    assert_int_equal(decode(buf.data, buf.size), HF_OK);
    hf_buf_fini(&buf);
}

static void without_memory_a_file_is_not_damaged(void **state)
{
    struct hf_members_file file = example();
    struct hf_buf buf = encode(&file);

    (void)state;
    hf_alloc_fail(1, 1);
    assert_int_equal(decode(buf.data, buf.size), HF_ENOMEM);
    assert_true(hf_alloc_failed());
    hf_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_file_is_read_as_it_was_written),
        cmocka_unit_test(any_damage_is_noticed),
        cmocka_unit_test(content_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_newer_version_is_unsupported),
        cmocka_unit_test(the_largest_file_fits),
        cmocka_unit_test(without_memory_a_file_is_not_damaged),
    };

    return hf_test_main("quorum members", cases, HF_TEST_COUNT(cases), 0);
}
