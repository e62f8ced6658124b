#include "core/session.h"

#include "base/limits.h"
#include "lib/alloc.h"
#include "lib/commands.h"
#include "lib/death.h"
#include "lib/runner.h"

static const struct hf_nonce secret = {{7}};

static struct hf_session *new_session(void)
{
    struct hf_session *session = hf_session_new(1, &secret, hf_bytes_of("me"));

    assert_non_null(session);
    return session;
}

static struct hf_command numbered(struct hf_command command, uint64_t sequence,
                                  uint64_t done)
{
    command.sequence = sequence;
    command.done = done;
    return command;
}

/* Admit a new command and keep a result with `token` for it. */
static void keep_result(struct hf_session *session, struct hf_command command,
                        uint64_t token)
{
    struct hf_result result = {.token = token};

    assert_int_equal(hf_session_admit(session, &command, &result),
                     HF_ADMISSION_NEW);
    hf_session_keep(session, &command, &result);
}

static void keep_lock(struct hf_session *session, uint64_t sequence,
                      uint64_t done)
{
    keep_result(session, numbered(hf_test_lock(1, "k", 1), sequence, done),
                sequence);
}

static enum hf_admission admit(struct hf_session *session,
                               struct hf_command command,
                               struct hf_result *result)
{
    return hf_session_admit(session, &command, result);
}

static void label_is_nul_terminated(void **state)
{
    char longest[HF_NOTE_MAX];
    struct hf_session *session = new_session();

    (void)state;
    assert_string_equal(session->label, "me");
    hf_session_free(session);
    memset(longest, 'x', sizeof(longest));
    session =
        hf_session_new(1, &secret, (struct hf_bytes){longest, sizeof(longest)});
    assert_int_equal(session->label_size, HF_NOTE_MAX);
    assert_int_equal(strlen(session->label), HF_NOTE_MAX);
    hf_session_free(session);
    hf_session_free(NULL);
}

static void make_long_label(void *arg)
{
    hf_session_free(
        hf_session_new(1, &secret, (struct hf_bytes){arg, HF_NOTE_MAX + 1}));
}

static void label_above_the_limit_aborts(void **state)
{
    static char label[HF_NOTE_MAX + 1];

    (void)state;
    assert_true(hf_test_dies(make_long_label, label));
}

static void repeated_command_returns_the_kept_result(void **state)
{
    struct hf_session *session = new_session();
    struct hf_command command = numbered(hf_test_lock(1, "k", 1), 1, 0);
    struct hf_result result;

    (void)state;
    keep_result(session, command, 99);
    for (int i = 0; i < 3; i++) {
        result = (struct hf_result){0};
        assert_int_equal(admit(session, command, &result),
                         HF_ADMISSION_ANSWERED);
        assert_int_equal(result.token, 99);
    }
    hf_session_free(session);
}

static void commands_below_done_are_refused(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    keep_lock(session, 1, 0);
    keep_lock(session, 2, 2);
    assert_null(hf_session_find(session, 1));
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 1, 0), &result),
        HF_ADMISSION_ANSWERED);
    assert_int_equal(result.err, HF_ECANCELED);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 0, 0), &result),
        HF_ADMISSION_ANSWERED);
    assert_int_equal(result.err, HF_ECANCELED);
    hf_session_free(session);
}

/* `done` means that the client has settled all commands below it, even if the
 * command that contains `done` is refused. */
static void refused_command_still_raises_done(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    keep_lock(session, 1, 0);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 1, 2), &result),
        HF_ADMISSION_ANSWERED);
    assert_int_equal(result.err, HF_ECANCELED);
    assert_int_equal(session->done, 2);
    assert_null(hf_session_find(session, 1));
    hf_session_free(session);
}

static void done_never_decreases(void **state)
{
    struct hf_session *session = new_session();

    (void)state;
    keep_lock(session, 5, 5);
    keep_lock(session, 6, 1);
    assert_int_equal(session->done, 5);
    hf_session_free(session);
}

/* Admitting a command must not change the session, because the command may
 * still fail. */
static void admitting_changes_nothing(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    for (uint64_t i = 1; i <= 4; i++)
        keep_lock(session, i, 1);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 300, 200), &result),
        HF_ADMISSION_NEW);
    assert_int_equal(session->done, 1);
    assert_int_equal(session->highest, 4);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(hf_session_find(session, i)->result.token, i);
    hf_session_free(session);
}

static void late_lock_is_refused(void **state)
{
    static const enum hf_command_kind ends[] = {HF_COMMAND_UNLOCK,
                                                HF_COMMAND_CANCEL};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(ends); i++) {
        struct hf_session *session = new_session();
        struct hf_command end = numbered(hf_test_cancel(1, "k", 1), 3, 0);
        struct hf_result result;

        end.kind = ends[i];
        keep_result(session, end, 0);
        assert_int_equal(
            admit(session, numbered(hf_test_lock(1, "k", 1), 1, 0), &result),
            HF_ADMISSION_ANSWERED);
        assert_int_equal(result.err, HF_ECANCELED);
        assert_int_equal(
            admit(session, numbered(hf_test_lock(1, "k", 2), 2, 0), &result),
            HF_ADMISSION_NEW);
        assert_int_equal(
            admit(session, numbered(hf_test_lock(1, "k", 1), 4, 0), &result),
            HF_ADMISSION_NEW);
        hf_session_free(session);
    }
}

static void lock_before_a_later_lock_is_admitted(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    keep_lock(session, 2, 0);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 1, 0), &result),
        HF_ADMISSION_NEW);
    hf_session_free(session);
}

static void window_has_a_limit(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    for (uint64_t i = 1; i <= HF_WINDOW_MAX; i++)
        keep_lock(session, i, 1);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), HF_WINDOW_MAX + 1, 1),
              &result),
        HF_ADMISSION_ANSWERED);
    assert_int_equal(result.err, HF_ELIMIT);
    for (uint64_t i = 1; i <= HF_WINDOW_MAX; i++)
        assert_int_equal(hf_session_find(session, i)->result.token, i);
    keep_lock(session, HF_WINDOW_MAX + 1, 2);
    assert_null(hf_session_find(session, 1));
    assert_int_equal(session->capacity, HF_WINDOW_MAX);
    hf_session_free(session);
}

static void settled_results_need_no_memory(void **state)
{
    struct hf_session *session = new_session();

    (void)state;
    for (uint64_t i = 1; i <= 100000; i++)
        keep_lock(session, i, i);
    assert_true(session->capacity <= 4);
    hf_session_free(session);
}

/* A burst of commands is over, and the client has settled all of them but the
 * last few. */
static void memory_shrinks_with_the_window(void **state)
{
    struct hf_session *session = new_session();
    long bytes;

    (void)state;
    keep_lock(session, 1, 1);
    bytes = hf_alloc_bytes();
    for (uint64_t i = 2; i <= HF_WINDOW_MAX; i++)
        keep_lock(session, i, 1);
    assert_true(hf_alloc_bytes() >= bytes + 32L * HF_WINDOW_MAX);
    keep_lock(session, HF_WINDOW_MAX + 1, HF_WINDOW_MAX - 2);
    assert_true(session->capacity <= 16);
    for (uint64_t i = HF_WINDOW_MAX - 2; i <= HF_WINDOW_MAX + 1; i++)
        assert_int_equal(hf_session_find(session, i)->result.token, i);
    assert_null(hf_session_find(session, HF_WINDOW_MAX - 3));
    keep_lock(session, HF_WINDOW_MAX + 2, HF_WINDOW_MAX + 2);
    assert_true(hf_alloc_bytes() < bytes + 512);
    hf_session_free(session);
}

/* The `done` of a command counts even if the command is refused. Here it is
 * above all kept results, so the window becomes empty. */
static void memory_shrinks_when_the_window_is_empty(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    for (uint64_t i = 1; i <= 100; i++)
        keep_lock(session, i, 1);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 7, 200), &result),
        HF_ADMISSION_ANSWERED);
    assert_int_equal(session->capacity, 8);
    keep_lock(session, 300, 200);
    assert_non_null(hf_session_find(session, 300));
    hf_session_free(session);
}

static void results_stay_if_there_is_no_memory_to_shrink(void **state)
{
    struct hf_session *session = new_session();

    (void)state;
    for (uint64_t i = 1; i <= 100; i++)
        keep_lock(session, i, 1);
    hf_alloc_fail(1, 1);
    keep_lock(session, 101, 100);
    assert_true(hf_alloc_failed());
    assert_int_equal(session->capacity, 128);
    assert_int_equal(hf_session_find(session, 100)->result.token, 100);
    assert_int_equal(hf_session_find(session, 101)->result.token, 101);
    assert_null(hf_session_find(session, 99));
    hf_session_free(session);
}

/* A window that grows and shrinks a little does not allocate each time. */
static void window_that_varies_needs_few_allocations(void **state)
{
    struct hf_session *session = new_session();
    unsigned long calls = hf_alloc_calls();
    uint64_t next = 1;

    (void)state;
    for (int round = 0; round < 1000; round++) {
        uint64_t done = next;

        for (int i = 0; i < 8; i++)
            keep_lock(session, next++, done);
    }
    assert_true(hf_alloc_calls() - calls < 10);
    hf_session_free(session);
}

/* The client chooses the sequence numbers, so no sequence number may cause an
 * overflow. */
static void highest_sequence_numbers_work(void **state)
{
    struct hf_session *session = new_session();
    struct hf_result result;

    (void)state;
    keep_result(
        session,
        numbered(hf_test_cancel(1, "k", 2), UINT64_MAX, UINT64_MAX - 1000), 0);
    keep_lock(session, UINT64_MAX - 5, 0);
    assert_int_equal(admit(session,
                           numbered(hf_test_lock(1, "k", 1), UINT64_MAX, 0),
                           &result),
                     HF_ADMISSION_ANSWERED);
    assert_int_equal(admit(session,
                           numbered(hf_test_lock(1, "k", 2), UINT64_MAX - 1, 0),
                           &result),
                     HF_ADMISSION_ANSWERED);
    assert_int_equal(result.err, HF_ECANCELED);
    assert_non_null(hf_session_find(session, UINT64_MAX - 5));
    hf_session_free(session);
}

static void new_session_has_no_results(void **state)
{
    struct hf_session *session = new_session();

    (void)state;
    assert_null(hf_session_find(session, 0));
    assert_null(hf_session_find(session, 1));
    hf_session_free(session);
}

static void out_of_memory_changes_nothing(void **state)
{
    struct hf_session *session;
    struct hf_result result;

    (void)state;
    hf_alloc_fail(1, 1);
    assert_null(hf_session_new(1, &secret, hf_bytes_of("me")));
    session = new_session();
    for (uint64_t i = 1; i <= 4; i++)
        keep_lock(session, i, 1);
    hf_alloc_fail(1, 1);
    assert_int_equal(
        admit(session, numbered(hf_test_lock(1, "k", 1), 9, 2), &result),
        HF_ADMISSION_NO_MEMORY);
    assert_int_equal(session->done, 1);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(hf_session_find(session, i)->result.token, i);
    hf_session_free(session);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(label_is_nul_terminated),
        cmocka_unit_test(label_above_the_limit_aborts),
        cmocka_unit_test(repeated_command_returns_the_kept_result),
        cmocka_unit_test(commands_below_done_are_refused),
        cmocka_unit_test(refused_command_still_raises_done),
        cmocka_unit_test(done_never_decreases),
        cmocka_unit_test(admitting_changes_nothing),
        cmocka_unit_test(late_lock_is_refused),
        cmocka_unit_test(lock_before_a_later_lock_is_admitted),
        cmocka_unit_test(window_has_a_limit),
        cmocka_unit_test(settled_results_need_no_memory),
        cmocka_unit_test(memory_shrinks_with_the_window),
        cmocka_unit_test(memory_shrinks_when_the_window_is_empty),
        cmocka_unit_test(results_stay_if_there_is_no_memory_to_shrink),
        cmocka_unit_test(window_that_varies_needs_few_allocations),
        cmocka_unit_test(highest_sequence_numbers_work),
        cmocka_unit_test(new_session_has_no_results),
        cmocka_unit_test(out_of_memory_changes_nothing),
    };

    return hf_test_main("session", cases, HF_TEST_COUNT(cases), 0);
}
