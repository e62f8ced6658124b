/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * What was recorded is what is written, read and shown. */
#include "hf-check/check.h"
#include "hf-check/decoder.h"
#include "hf-check/encoder.h"
#include "hf-check/recorder.h"
#include "hf-check/report.h"
#include "hf-check/simulate.h"
#include "hf-check/timeline.h"
#include "lib/runner.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADER "{\"type\":\"history\",\"version\":1,\"fifo\":false}\n"

/* The first operation of a client, on key "k", with these further fields. */
#define OP(client, kind, fields)                                               \
    "{\"type\":\"op\",\"client\":" #client ",\"op\":1,\"kind\":\"" kind        \
    "\",\"key\":\"k\"," fields "}\n"

static const char begun[] = OP(1, "lock", "\"invoke\":0");
static const char granted[] =
    OP(1, "lock",
       "\"nonce\":\"a1\",\"token\":5,\"invoke\":0,\"return\":10,"
       "\"result\":\"ok\",\"deadline\":100");

static int read_text(struct hf_check_history *h, const char *text, size_t len,
                     struct hf_check_fault *fault)
{
    FILE *in = fmemopen((void *)(uintptr_t)text, len ? len : 1, "r");

    assert_non_null(in);
    /* fmemopen() may refuse an empty buffer, so open one byte and skip it. */
    if (!len)
        (void)fgetc(in);
    hf_check_history_init(h, false);
    int answer = hf_decoder_read(h, in, fault);

    fclose(in);
    return answer;
}

static void read_good(struct hf_check_history *h, const char *text)
{
    struct hf_check_fault fault;

    if (read_text(h, text, strlen(text), &fault) < 0)
        fail_msg("line %zu: %s", fault.line, fault.text);
}

/* ---- The reader ---------------------------------------------------------*/

static void assert_fault(const char *text, size_t line, const char *words)
{
    struct hf_check_fault fault = {0};
    struct hf_check_history h;

    assert_int_equal(read_text(&h, text, strlen(text), &fault), -1);
    hf_check_history_fini(&h);
    assert_int_equal(fault.line, line);
    if (!strstr(fault.text, words))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, words);
}

/* Wrong second lines, and the error message of each. */
static const struct {
    const char *line, *message;
} faults[] = {
    {"", "not a JSON object"},
    {"[]", "not a JSON object"},
    {"{}", "a field name is missing"},
    {"{\"type\":\"op\"", "neither a comma"},
    {"{\"type\":\"op\"} x", "extra text"},
    {"{\"type\":\"op\"}", "\"client\" is missing"},
    {"{\"type\":\"no\"}", "unknown type"},
    {"{\"typo\":1}", "\"typo\" is not known"},
    {"{\"type\":\"note\",\"type\":\"note\"}", "twice"},
    {"{\"type\":[]}", "not a string"},
    {"{\"type\":1}", "wrong type"},
    {"{\"op\":1.5}", "neither a comma"},
    {"{\"op\":-1}", "not a string"},
    {"{\"op\":01}", "leading zero"},
    {"{\"op\":18446744073709551616}", "2^64"},
    {"{\"key\":\"\\u0100\"}", "U+00FF"},
    {"{\"key\":\"\xff\"}", "UTF-8"},
    {"{\"key\":\"\t\"}", "control"},
    {"{\"key\":\"\\q\"}", "escape"},
    {"{\"key\":\"k", "cut off"},
    {"{\"type\":\"death\",\"client\":4294967296,\"time\":1}", "2^32"},
    {"{\"type\":\"death\",\"client\":1,\"time\":9223372036854775808}", "2^63"},
    {"{\"type\":\"death\",\"client\":1,\"time\":1,\"op\":1}", "belong"},
    {OP(1, "sing", "\"invoke\":5"), "kind"},
    {OP(1, "lock", "\"invoke\":9223372036854775808"), "2^63"},
    {OP(1, "lock", "\"invoke\":5,\"token\":0"), "token of 0"},
    {OP(1, "lock", "\"invoke\":5,\"nonce\":\"xy\""), "not hexadecimal"},
    {OP(1, "lock", "\"invoke\":5,\"return\":6"), "without a result"},
    {OP(1, "lock", "\"invoke\":5,\"result\":\"ok\""), "without a return"},
    {OP(1, "lock", "\"invoke\":5,\"return\":4,\"result\":\"fail\""),
     "returns before"},
    {OP(1, "lock", "\"invoke\":5,\"return\":6,\"result\":\"ok\""),
     "without a token"},
    {OP(1, "unlock", "\"invoke\":5,\"return\":6,\"result\":\"ok\""),
     "without a token"},
    {OP(1, "write", "\"invoke\":5"), "has a cell"},
};

static void reader_names_line_and_fault(void **state)
{
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        snprintf(text, sizeof text, HEADER "%s\n", faults[i].line);
        assert_fault(text, 2, faults[i].message);
    }
}

static void reader_wants_a_header_it_knows(void **state)
{
    (void)state;
    assert_fault("", 0, "no lines");
    assert_fault(granted, 1, "does not belong");
    assert_fault("{\"type\":\"note\",\"version\":1,\"fifo\":true}\n", 1,
                 "header");
    assert_fault("{\"type\":\"history\",\"version\":2,\"fifo\":true}\n", 1,
                 "version");
}

static void reader_limits_lines_and_strings(void **state)
{
    const size_t len = (size_t)2 * HF_ENCODER_LINE_MAX;
    char *text = malloc(len + 1);

    (void)state;
    assert_non_null(text);
    memset(text, ' ', len);
    text[len] = '\0';
    assert_fault(text, 1, "a line of more than");
    sprintf(text, HEADER "{\"key\":\"%0*d\"}\n", HF_OP_TEXT_MAX + 1, 0);
    assert_fault(text, 2, "a string of more than");
    free(text);
}

/* A good history that is cut off or changed at any byte is either read or
 * refused, without a crash. */
static void reader_survives_any_input(void **state)
{
    static const char good[] =
        "{\"type\":\"history\",\"version\":1,\"fifo\":false}\n"
        "{\"type\":\"op\",\"client\":1,\"op\":1,\"kind\":\"lock\","
        "\"key\":\"k\",\"invoke\":0,\"return\":10,\"result\":\"unknown\"}\n"
        "{\"type\":\"death\",\"client\":1,\"time\":40}\n"
        "{\"type\":\"note\",\"time\":1,\"text\":\"\\u00e9\\n\xc3\xa9\"}\n";
    static const char spoilers[] = "\"\\{}:,0u\xff\n";
    char text[sizeof good];
    struct hf_check_fault fault;
    struct hf_check_history h;

    (void)state;
    for (size_t i = 0; i < sizeof good - 1; i++) {
        (void)read_text(&h, good, i, &fault);
        hf_check_history_fini(&h);
        for (const char *c = spoilers; *c; c++) {
            memcpy(text, good, sizeof good);
            text[i] = *c;
            (void)read_text(&h, text, sizeof good - 1, &fault);
            hf_check_history_fini(&h);
        }
    }
}

static void every_byte_of_a_key_survives_writing(void **state)
{
    char key[256], line[HF_ENCODER_LINE_MAX], text[2 * HF_ENCODER_LINE_MAX];
    struct hf_check_history h, copy;
    struct hf_op op = hf_op_make(HF_OP_LOCK, 1, 5);
    size_t len;

    (void)state;
    for (int i = 0; i < 256; i++)
        key[i] = (char)i;
    hf_check_history_init(&h, false);
    op.key = hf_intern_add(&h.strings, key, sizeof key);
    hf_encoder_put_op(&h, &op, line);
    snprintf(text, sizeof text, "%s%s", HEADER, line);
    read_good(&copy, text);
    assert_int_equal(copy.op_count, 1);
    assert_memory_equal(hf_intern_bytes(&copy.strings, copy.ops[0].key, &len),
                        key, sizeof key);
    assert_int_equal(len, sizeof key);
    hf_check_history_fini(&h);
    hf_check_history_fini(&copy);
}

static void end_of_an_operation_replaces_its_beginning(void **state)
{
    struct hf_check_history h;
    char text[1024];

    (void)state;
    snprintf(text, sizeof text, HEADER "%s%s%s", begun, granted, begun);
    read_good(&h, text);
    assert_int_equal(h.op_count, 1);
    assert_int_equal(h.ops[0].token, 5);
    hf_check_history_fini(&h);
    snprintf(text, sizeof text, HEADER "%s%s", granted, granted);
    assert_fault(text, 3, "has a result already");
    snprintf(text, sizeof text, HEADER "%s%s", granted,
             OP(1, "lock", "\"invoke\":1"));
    assert_fault(text, 3, "differs");
}

static void fields_of_others_are_passed_over(void **state)
{
    struct hf_check_history h;

    (void)state;
    read_good(&h, HEADER OP(1, "lock", "\"invoke\":1,\"x_term\":7"));
    assert_int_equal(h.op_count, 1);
    hf_check_history_fini(&h);
}

static void simulated_history_survives_writing(void **state)
{
    struct hf_simulate_opts opts = {.seed = 1,
                                    .ops = 5000,
                                    .clients = 8,
                                    .keys = 3,
                                    .lease_max = 40,
                                    .unit_ns = 1000,
                                    .trouble = 50};
    struct hf_check_history h, copy;
    char *first = NULL, *second = NULL;
    size_t len;

    (void)state;
    hf_check_history_init(&h, false);
    hf_simulate_run(&h, &opts);
    FILE *out = open_memstream(&first, &len);

    assert_int_equal(hf_encoder_write(&h, out), 0);
    fclose(out);
    read_good(&copy, first);
    out = open_memstream(&second, &len);
    assert_int_equal(hf_encoder_write(&copy, out), 0);
    fclose(out);
    assert_string_equal(first, second);
    hf_check_history_fini(&h);
    hf_check_history_fini(&copy);
    free(first);
    free(second);
}

/* ---- The recorder -------------------------------------------------------*/

#define THREADS 4
#define ROUNDS 500

struct worker {
    struct hf_recorder *r;
    uint32_t client;
};

/* Each thread uses its own key, so that it records a correct history. */
static void *record_rounds(void *arg)
{
    struct worker *w = arg;
    char key = (char)('a' + w->client);

    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct hf_recorder_call call = {.kind = HF_OP_LOCK,
                                        .client = w->client,
                                        .key = &key,
                                        .key_len = 1,
                                        .now = 10 * i};
        struct hf_recorder_answer answer = {.result = HF_OP_OK,
                                            .nonce = "a1",
                                            .token = i + 1,
                                            .deadline = 10 * i + 8,
                                            .now = 10 * i + 1};

        hf_recorder_end(w->r, hf_recorder_begin(w->r, &call), &answer);
        call = (struct hf_recorder_call){.kind = HF_OP_UNLOCK,
                                         .client = w->client,
                                         .key = &key,
                                         .key_len = 1,
                                         .nonce = "a1",
                                         .token = i + 1,
                                         .now = 10 * i + 2};
        answer =
            (struct hf_recorder_answer){.result = HF_OP_OK, .now = 10 * i + 3};
        hf_recorder_end(w->r, hf_recorder_begin(w->r, &call), &answer);
    }
    return NULL;
}

static void threads_record_at_once(void **state)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct hf_check_report report;
    struct hf_recorder r;

    (void)state;
    hf_recorder_init(&r, true);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.r = &r, .client = i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, record_rounds, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    hf_check_run(hf_recorder_history(&r), &report);
    assert_int_equal(report.violation_count, 0);
    assert_int_equal(report.grant_count, THREADS * ROUNDS);
    hf_recorder_fini(&r);
}

static void record_in_child(const char *path, uint32_t client)
{
    struct hf_recorder r;

    hf_recorder_init(&r, true);
    if (hf_recorder_open(&r, path) < 0)
        _exit(1);
    record_rounds(&(struct worker){.r = &r, .client = client});
    /* This operation begins and never ends, because the process exits. */
    hf_recorder_begin(&r, &(struct hf_recorder_call){.kind = HF_OP_LOCK,
                                                     .client = client,
                                                     .key = "z",
                                                     .key_len = 1,
                                                     .now = 1});
    _exit(hf_recorder_error(&r) != 0);
}

static void processes_share_a_file(void **state)
{
    char path[] = "/tmp/hf-check-XXXXXX";
    int file = mkstemp(path);
    struct hf_check_fault fault;
    struct hf_check_report report;
    struct hf_check_history h;

    (void)state;
    assert_true(file >= 0);
    close(file);
    for (uint32_t i = 0; i < THREADS; i++) {
        pid_t child = fork();

        assert_true(child >= 0);
        if (!child)
            record_in_child(path, i);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        int status;

        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    FILE *in = fopen(path, "r");

    hf_check_history_init(&h, false);
    assert_non_null(in);
    assert_int_equal(hf_decoder_read(&h, in, &fault), 0);
    hf_check_run(&h, &report);
    assert_true(h.fifo);
    assert_int_equal(report.violation_count, 0);
    assert_int_equal(report.grant_count, THREADS * ROUNDS);
    assert_int_equal(report.unknown_count, THREADS);
    fclose(in);
    hf_check_history_fini(&h);
    unlink(path);
}

static void recorder_keeps_all_kinds_of_events(void **state)
{
    struct hf_recorder r;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    hf_recorder_init(&r, false);
    size_t op =
        hf_recorder_begin(&r, &(struct hf_recorder_call){.kind = HF_OP_LOCK,
                                                         .client = 1,
                                                         .key = "k",
                                                         .key_len = 1,
                                                         .lease = 50,
                                                         .now = 1});
    hf_recorder_queued(&r, op, 2);
    hf_recorder_end(&r, op,
                    &(struct hf_recorder_answer){.result = HF_OP_OK,
                                                 .nonce = "a1",
                                                 .token = 5,
                                                 .deadline = 40,
                                                 .now = 3});
    hf_recorder_death(&r, 1, 4);
    hf_recorder_lost(&r, 1, "k", 1, 5, 6);
    hf_recorder_note(&r, 7, "cut");
    assert_int_equal(hf_recorder_write(&r, out), 0);
    fclose(out);
    assert_string_equal(
        text,
        HEADER "{\"type\":\"op\",\"client\":1,\"op\":0,\"kind\":\"lock\","
               "\"key\":\"k\",\"nonce\":\"a1\",\"token\":5,\"invoke\":1,"
               "\"queued\":2,\"return\":3,\"result\":\"ok\",\"deadline\":40,"
               "\"lease\":50}\n"
               "{\"type\":\"death\",\"client\":1,\"time\":4}\n"
               "{\"type\":\"lost\",\"client\":1,\"key\":\"k\",\"token\":5,"
               "\"time\":6}\n"
               "{\"type\":\"note\",\"time\":7,\"text\":\"cut\"}\n");
    free(text);
    hf_recorder_fini(&r);
}

/* ---- Output for people and programs -------------------------------------*/

static char *render_history(const char *history,
                            void (*show)(const struct hf_check_history *,
                                         const struct hf_check_report *,
                                         FILE *))
{
    struct hf_check_report report;
    struct hf_check_history h;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    read_good(&h, history);
    hf_check_run(&h, &report);
    assert_int_not_equal(report.violation_count, 0);
    show(&h, &report, out);
    fclose(out);
    hf_check_history_fini(&h);
    return text;
}

static void show_text(const struct hf_check_history *h,
                      const struct hf_check_report *report, FILE *out)
{
    hf_report_text(h, report, "h", out);
}

static void show_json(const struct hf_check_history *h,
                      const struct hf_check_report *report, FILE *out)
{
    hf_report_json(h, report, "h", out);
}

static void show_svg(const struct hf_check_history *h,
                     const struct hf_check_report *report, FILE *out)
{
    assert_int_equal(hf_timeline_draw_violation(h, &report->violations[0], out),
                     0);
}

/* The locks of clients 1 and 2 are both valid from 60 to 90. */
static const char overlap[] =
    "{\"type\":\"history\",\"version\":1,\"fifo\":false}\n"
    "{\"type\":\"op\",\"client\":1,\"op\":1,\"kind\":\"lock\",\"key\":\"k\","
    "\"nonce\":\"a1\",\"token\":5,\"invoke\":0,\"return\":10,"
    "\"result\":\"ok\",\"deadline\":100}\n"
    "{\"type\":\"op\",\"client\":2,\"op\":1,\"kind\":\"lock\",\"key\":\"k\","
    "\"nonce\":\"b1\",\"token\":6,\"invoke\":5,\"return\":60,"
    "\"result\":\"ok\",\"deadline\":2500}\n"
    "{\"type\":\"op\",\"client\":3,\"op\":1,\"kind\":\"lock\",\"key\":\"k\","
    "\"invoke\":11,\"return\":12,\"result\":\"fail\","
    "\"error\":\"HF_EBUSY\"}\n"
    "{\"type\":\"death\",\"client\":3,\"time\":70}\n"
    "{\"type\":\"lost\",\"client\":2,\"key\":\"k\",\"token\":6,"
    "\"time\":90}\n"
    "{\"type\":\"note\",\"time\":30,\"text\":\"a<b\"}\n";

static void assert_has(const char *text, const char *words)
{
    assert_non_null(text);
    if (!strstr(text, words))
        fail_msg("no \"%s\" in:\n%s", words, text);
}

static void report_tells_who_and_when(void **state)
{
    char *text = render_history(overlap, show_text);

    (void)state;
    assert_has(text, "VIOLATION exclusion");
    assert_has(text, "key     \"k\"");
    assert_has(text, "first   client 1, lock ok (operation 1), token 5, "
                     "nonce a1");
    assert_has(text, "second  client 2, lock ok (operation 1), token 6, "
                     "nonce b1");
    assert_has(text, "note \"a<b\"");
    free(text);
    text = render_history(overlap, show_json);
    assert_has(text, "\"kind\":\"exclusion\"");
    assert_has(text, "\"from\":60,\"until\":90}");
    free(text);
}

static void picture_marks_both(void **state)
{
    char *text = render_history(overlap, show_svg);

    (void)state;
    assert_has(text, "<svg");
    assert_has(text, ">first<");
    assert_has(text, ">second<");
    assert_has(text, "both valid for");
    assert_has(text, "a&lt;b");
    assert_has(text, "</svg>");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader_names_line_and_fault),
        cmocka_unit_test(reader_wants_a_header_it_knows),
        cmocka_unit_test(reader_limits_lines_and_strings),
        cmocka_unit_test(reader_survives_any_input),
        cmocka_unit_test(every_byte_of_a_key_survives_writing),
        cmocka_unit_test(end_of_an_operation_replaces_its_beginning),
        cmocka_unit_test(fields_of_others_are_passed_over),
        cmocka_unit_test(simulated_history_survives_writing),
        cmocka_unit_test(threads_record_at_once),
        cmocka_unit_test(processes_share_a_file),
        cmocka_unit_test(recorder_keeps_all_kinds_of_events),
        cmocka_unit_test(report_tells_who_and_when),
        cmocka_unit_test(picture_marks_both),
    };

    return hf_test_main("record", tests, HF_TEST_COUNT(tests), 0);
}
