/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * hf-check: check whether a recorded history keeps the promises of a lock. */
#include "check.h"
#include "decoder.h"
#include "encoder.h"
#include "report.h"
#include "timeline.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum status {
    STATUS_GOOD = 0,
    STATUS_VIOLATION = 1,
    STATUS_NO_VERDICT = 2
};

struct options {
    const char *svg;
    const char *key;
    bool json;
    bool time;
    bool no_fence;
};

static const char usage[] =
    "usage: hf-check [--json] [--time] [--no-fence] [--svg FILE [--key KEY]]\n"
    "                HISTORY...\n";

static const char help[] =
    "\n"
    "Reads the recorded calls and answers of the clients of a lock service,\n"
    "and reports whether they keep the promises of a lock: one valid holder,\n"
    "increasing tokens, a linearizable lock, an effective fence, first come\n"
    "first served.\n"
    "\n"
    "  HISTORY      a file of JSON lines, - for standard input; each is\n"
    "               checked on its own. The format is in format.md, beside\n"
    "               the source of hf-check.\n"
    "  --no-fence   the service does not promise that tokens rise: check\n"
    "               everything else, and order grants by their returns\n"
    "  --json       one JSON object a history instead of text\n"
    "  --svg FILE   draw the first violation\n"
    "  --key KEY    with --svg: draw this key instead, violation or not;\n"
    "               KEY is written as in JSON, without its quotes\n"
    "  --time       print how long reading and checking took\n"
    "  --help       print this\n"
    "\n"
    "Exit status: 0 no violation, 1 a violation, 2 no verdict (the history\n"
    "or the usage is wrong); the message names the first wrong line.\n";

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int read_file(struct hf_check_history *h, const char *name)
{
    struct hf_check_fault fault;
    bool standard = strcmp(name, "-") == 0;
    FILE *in = standard ? stdin : fopen(name, "r");
    int answer;

    if (!in) {
        fprintf(stderr, "hf-check: %s: %s\n", name, strerror(errno));
        return -1;
    }
    answer = hf_decoder_read(h, in, &fault);
    if (!standard)
        fclose(in);
    if (answer < 0)
        fprintf(stderr, "hf-check: %s:%zu: %s\n", name, fault.line, fault.text);
    return answer;
}

/* Return the interned string of a key written as in JSON, or 0 if no operation
 * has this key. Compares the encoded forms. */
static uint32_t find_key(const struct hf_check_history *h, const char *key)
{
    char quoted[6 * HF_OP_TEXT_MAX + 3];

    for (size_t i = 0; i < h->op_count; i++) {
        size_t len = hf_encoder_quote(h, h->ops[i].key, quoted);

        quoted[len - 1] = '\0';
        if (strcmp(quoted + 1, key) == 0)
            return h->ops[i].key;
    }
    return 0;
}

static int draw_timeline(const struct hf_check_history *h,
                         const struct hf_check_report *report,
                         const struct options *options)
{
    uint32_t key = options->key ? find_key(h, options->key) : 0;
    FILE *out;
    int answer;

    if (options->key && !key) {
        fprintf(stderr, "hf-check: key \"%s\" is not in the history\n",
                options->key);
        return -1;
    }
    if (!key && !report->violation_count)
        return 0;
    out = fopen(options->svg, "w");
    if (!out) {
        fprintf(stderr, "hf-check: %s: %s\n", options->svg, strerror(errno));
        return -1;
    }
    answer = key ? hf_timeline_draw_key(h, key, out)
                 : hf_timeline_draw_violation(h, &report->violations[0], out);
    if (fclose(out) || answer < 0) {
        fprintf(stderr, "hf-check: %s: %s\n", options->svg, strerror(errno));
        return -1;
    }
    return 0;
}

static enum status check_one(const struct hf_check_history *h, const char *name,
                             struct options *options)
{
    struct hf_check_report report;
    double start = now_seconds();

    hf_check_run(h, &report);
    if (options->time)
        fprintf(stderr, "%s: checked in %.3f s\n", name, now_seconds() - start);
    if (options->json)
        hf_report_json(h, &report, name, stdout);
    else
        hf_report_text(h, &report, name, stdout);
    if (options->svg) {
        if (draw_timeline(h, &report, options) < 0)
            return STATUS_NO_VERDICT;
        /* Draw once: the first violation of all files, or --key of the first
         * file. */
        if (options->key || report.violation_count)
            options->svg = NULL;
    }
    return report.violation_count ? STATUS_VIOLATION : STATUS_GOOD;
}

static enum status check_file(const char *name, struct options *options)
{
    struct hf_check_history h;
    enum status status = STATUS_NO_VERDICT;
    double start = now_seconds();

    hf_check_history_init(&h, false);
    if (read_file(&h, name) == 0) {
        if (options->time)
            fprintf(stderr, "%s: read in %.3f s\n", name,
                    now_seconds() - start);
        h.no_fence = options->no_fence;
        status = check_one(&h, name, options);
    }
    hf_check_history_fini(&h);
    return status;
}

static int print_usage_error(void)
{
    fputs(usage, stderr);
    fputs("See hf-check --help.\n", stderr);
    return STATUS_NO_VERDICT;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"json", no_argument, NULL, 'j'},
        {"svg", required_argument, NULL, 's'},
        {"key", required_argument, NULL, 'k'},
        {"time", no_argument, NULL, 't'},
        {"no-fence", no_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {0};
    enum status worst = STATUS_GOOD;
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (option == 'j') {
            options.json = true;
        } else if (option == 's') {
            options.svg = optarg;
        } else if (option == 'k') {
            options.key = optarg;
        } else if (option == 't') {
            options.time = true;
        } else if (option == 'n') {
            options.no_fence = true;
        } else if (option == 'h') {
            fputs(usage, stdout);
            fputs(help, stdout);
            return STATUS_GOOD;
        } else {
            return print_usage_error();
        }
    }
    if (optind == argc || (options.key && !options.svg))
        return print_usage_error();
    for (int i = optind; i < argc; i++) {
        enum status status = check_file(argv[i], &options);

        /* A violation in any file determines the exit status. */
        if (worst != STATUS_VIOLATION && status != STATUS_GOOD)
            worst = status;
    }
    return (int)worst;
}
