/* doctor.c - show which store is used and why, and whether it works. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timex.h>
#include <unistd.h>

#include "failure.h"
#include "json.h"
#include "loop.h"
#include "store.h"
#include "text.h"
#include "url.h"

#define FACTS_MAX 32
#define FINDINGS_MAX 12
#define PROBE_MS 5000

struct fact {
    char *name, *text;
};

/* A fact that the user should know, and what to do about it. A problem changes
 * the exit status; other findings are notes. */
struct finding {
    bool problem;
    const char *text;
};

struct report {
    const struct args *args;
    char *url;          /* the URL of the store, with its password hidden */
    const char *source; /* where `url` is from: "--url", "HOLDFAST_URL", ... */
    bool reachable;
    uint32_t caps;
    int64_t open_ms, lock_ms;
    struct hf_error error; /* from opening the store, or from the test lock */
    struct fact facts[FACTS_MAX];
    size_t fact_count;
    struct finding findings[FINDINGS_MAX];
    size_t finding_count;
};

static const enum hf_cap all_caps[] = {
#define CAP(name, text, bit) HF_CAP_##name,
    HF_CAPS(CAP)
#undef CAP
};
#define CAP_COUNT (sizeof(all_caps) / sizeof(all_caps[0]))

/* ---- Examining ----------------------------------------------------------*/

static void add_fact(const char *name, const char *text, void *arg)
{
    struct report *report = arg;

    if (report->fact_count < FACTS_MAX)
        report->facts[report->fact_count++] =
            (struct fact){text_copy(name), text_copy(text)};
}

static void add_finding(struct report *report, bool problem, const char *text)
{
    if (report->finding_count < FINDINGS_MAX)
        report->findings[report->finding_count++] =
            (struct finding){problem, text};
}

static void examine_machine(struct report *report)
{
    struct timex clock = {0};
    char text[64];

    (void)snprintf(text, sizeof(text), "uid %u, gid %u", (unsigned)geteuid(),
                   (unsigned)getegid());
    add_fact("user", text, report);
    add_fact("clock",
             adjtimex(&clock) == TIME_ERROR ? "not synchronized"
                                            : "synchronized",
             report);
}

/* Write a key that no other process uses. Host name and pid are not enough:
 * containers on one machine may share a host name and all run as process 1. */
static void write_test_key(char *key, size_t size)
{
    char host[65] = "";
    uint64_t number = 0;

    (void)gethostname(host, sizeof(host) - 1);
    if (getrandom(&number, sizeof(number), 0) < 0)
        number = (uint64_t)loop_now();
    (void)snprintf(key, size, "holdfast-doctor/%s/%ld/%llx", host,
                   (long)getpid(), (unsigned long long)number);
}

/* Take and release a lock, because only a write shows that the store is
 * writable. */
static void try_lock(struct report *report, struct hf_client *client)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock = NULL;
    char key[128];
    int64_t begun = loop_now();
    enum hf_err err;

    write_test_key(key, sizeof(key));
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    opts.timeout_ms = PROBE_MS;
    opts.error = &report->error;
    err = hf_acquire(client, hf_key_of(key), &opts, &lock);
    if (err)
        return;
    err = hf_release(lock);
    if (err)
        hf_lock_error(lock, &report->error);
    hf_lock_free(lock);
    report->lock_ms = loop_now() - begun;
}

/* Open the URL as it is, without the checks of url_take(): a report on a URL
 * that other commands refuse is useful too. */
static enum hf_err open_examined_store(const struct args *args,
                                       const struct hf_client_opts *opts,
                                       struct hf_client **client)
{
    char *url = text_copy(url_find(args));
    enum hf_err err;

    if (args->url)
        url_hide_password(args->url);
    err = hf_open(url, opts, client);
    url_free(url);
    return err;
}

static void examine_store(struct report *report)
{
    struct hf_client_opts opts;
    struct hf_client *client = NULL;
    int64_t begun = loop_now();

    hf_client_opts_init(&opts);
    opts.error = &report->error;
    if (open_examined_store(report->args, &opts, &client))
        return;
    report->reachable = true;
    report->error = (struct hf_error){.code = HF_OK};
    report->open_ms = loop_now() - begun;
    report->caps = hf_caps(client);
    (void)hf_describe(client, add_fact, report);
    try_lock(report, client);
    store_close(client);
}

/* ---- Findings -----------------------------------------------------------*/

static const char *advice_for(enum hf_err err, bool is_file)
{
    switch (err) {
    case HF_EUNAVAIL:
        if (is_file)
            return "the directory cannot be used at the moment: see the error";
        return "no server answers: start it, or check host, port and firewall";
    case HF_EDENIED:
        return "the server refuses this user: check name, password and the "
               "rights that holdfast(3) names";
    case HF_EINVAL:
        return "the URL is refused: see URLs in holdfast(3)";
    case HF_EUNSUPPORTED:
        return "this build or this server lacks a feature that the URL requires: "
               "change the URL, the server's configuration or the build";
    case HF_ESYSTEM:
        return "the operating system refused: check owner, mode and free space "
               "of the directory";
    default:
        return "see ERRORS in holdfast(3)";
    }
}

/* Explain what a missing capability means in practice. */
static void add_caps_findings(struct report *report)
{
    uint32_t lacks = ~report->caps;
    bool fleet = report->caps & HF_CAP_FLEET;

    if (!fleet)
        add_finding(report, false,
                    "locks hold on this machine only: for several machines use "
                    "servers that all of them reach (see URLs in holdfast(3)), "
                    "with ?require=fleet");
    if (lacks & HF_CAP_FENCE)
        add_finding(report, false,
                    "tokens may repeat: a resource that checks them is not "
                    "protected");
    if (fleet && (lacks & HF_CAP_DURABLE))
        add_finding(report, false,
                    "a server that restarts may forget held locks: in Redis, "
                    "set appendonly yes and appendfsync always, or add ?grace= "
                    "to the URL; of a quorum, restart one master at a time");
    if (lacks & HF_CAP_STEADY)
        add_finding(report, false,
                    "leases end early when a server's clock is set forward: "
                    "let NTP slew that clock, and never step it");
    if (fleet && (lacks & HF_CAP_FAILOVER_SAFE))
        add_finding(report, false,
                    "a failover may lose locks: send the token with each write "
                    "that the lock protects, and refuse smaller ones");
}

static void add_findings(struct report *report)
{
    if (report->error.code)
        add_finding(
            report, true,
            advice_for(report->error.code, !strncmp(report->url, "file:", 5)));
    if (!strncmp(report->url, "memory:", 7))
        add_finding(
            report, true,
            "no other process sees locks in memory:, so they exclude no "
            "other command: use file: or a server");
    if (!*report->url)
        add_finding(report, true,
                    "the URL is empty: name a store, or leave it out for the "
                    "locks of this user on this machine");
    if (strcmp(HF_VERSION, hf_version()) != 0)
        add_finding(report, false,
                    "the command and its library have different versions");
    if (report->reachable)
        add_caps_findings(report);
}

/* ---- Printing -----------------------------------------------------------*/

static void put_caps(struct json *json, const char *name, uint32_t caps)
{
    json_begin_array(json, name);
    for (size_t i = 0; i < CAP_COUNT; i++) {
        if (caps & (uint32_t)all_caps[i])
            json_element(json, hf_cap_name(all_caps[i]));
    }
    json_end_array(json);
}

static void put_findings(struct json *json, const struct report *report,
                         const char *name, bool problems)
{
    json_begin_array(json, name);
    for (size_t i = 0; i < report->finding_count; i++) {
        if (report->findings[i].problem == problems)
            json_element(json, report->findings[i].text);
    }
    json_end_array(json);
}

static void put_facts(struct json *json, const struct report *report)
{
    json_begin_array(json, "facts");
    for (size_t i = 0; i < report->fact_count; i++) {
        char *text;

        if (asprintf(&text, "%s: %s", report->facts[i].name,
                     report->facts[i].text) < 0)
            failure_no_memory();
        json_element(json, text);
        free(text);
    }
    json_end_array(json);
}

static void print_report_json(const struct report *report)
{
    struct json json;

    json_open(&json, stdout);
    json_text(&json, "url", report->url);
    json_text(&json, "source", report->source);
    json_text(&json, "version", HF_VERSION);
    json_text(&json, "library", hf_version());
    json_bool(&json, "reachable", report->reachable);
    json_number(&json, "open_ms", (uint64_t)report->open_ms);
    json_number(&json, "lock_ms", (uint64_t)report->lock_ms);
    put_caps(&json, "capabilities", report->caps);
    put_caps(&json, "missing", report->reachable ? ~report->caps : 0);
    put_facts(&json, report);
    put_findings(&json, report, "problems", true);
    put_findings(&json, report, "notes", false);
    if (report->error.code) {
        json_begin(&json, "error");
        json_signed(&json, "code", report->error.code);
        json_text(&json, "name", hf_err_name(report->error.code));
        json_text(&json, "message", report->error.text);
        json_end(&json);
    }
    json_close(&json);
}

static void print_line(const char *name, const char *text)
{
    char *label = text_label(text);

    (void)printf("%-13s %s\n", name, label);
    free(label);
}

static void print_caps(const char *name, uint32_t caps)
{
    (void)printf("%-13s", name);
    for (size_t i = 0; i < CAP_COUNT; i++) {
        if (caps & (uint32_t)all_caps[i])
            (void)printf(" %s", hf_cap_name(all_caps[i]));
    }
    (void)putchar('\n');
}

static void print_state(const struct report *report)
{
    char open[TEXT_SPAN_SIZE], lock[TEXT_SPAN_SIZE];

    if (report->error.code)
        print_line("error", report->error.text);
    if (!report->reachable)
        return;
    text_span((uint64_t)report->open_ms, open);
    text_span((uint64_t)report->lock_ms, lock);
    (void)printf("%-13s in %s\n", "opened", open);
    if (!report->error.code)
        (void)printf("%-13s a lock was taken and released in %s\n", "works",
                     lock);
    print_caps("capabilities", report->caps);
    print_caps("missing", ~report->caps);
}

static void print_text(const struct report *report)
{
    print_line("store", report->url);
    print_line("chosen by", report->source);
    (void)printf("%-13s %s, library %s\n", "version", HF_VERSION, hf_version());
    for (size_t i = 0; i < report->fact_count; i++)
        print_line(report->facts[i].name, report->facts[i].text);
    print_state(report);
    for (size_t i = 0; i < report->finding_count; i++)
        print_line(report->findings[i].problem ? "problem" : "note",
                   report->findings[i].text);
}

/* ---- The verb -----------------------------------------------------------*/

static int report_status(const struct report *report)
{
    if (report->error.code)
        return failure_status(report->error.code);
    for (size_t i = 0; i < report->finding_count; i++) {
        if (report->findings[i].problem)
            return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int doctor_main(struct args *args)
{
    struct report report = {.args = args};

    if (args->word_count > 0 && args->url)
        return failure_usage(args, "give the URL as an argument or with --url, "
                                   "not both");
    if (args->word_count > 0)
        args->url = args->words[0];
    report.url = text_copy(url_find(args));
    url_hide_password(report.url);
    report.source = args->word_count > 0 ? "argument" : url_source(args);
    examine_machine(&report);
    examine_store(&report);
    add_findings(&report);
    if (args->json)
        print_report_json(&report);
    else
        print_text(&report);
    for (size_t i = 0; i < report.fact_count; i++) {
        free(report.facts[i].name);
        free(report.facts[i].text);
    }
    free(report.url);
    return report_status(&report);
}

const struct verb verb_doctor = {
    .name = "doctor",
    .words = "[URL]",
    .summary = "show which store is used, why, and whether it works",
    .text =
        "Opens the store at URL, or the one that other verbs would use, then\n"
        "takes and releases a lock on a key that nobody else uses. Prints\n"
        "the store and what selected it, its capabilities, problems and\n"
        "their remedies. The status is 0 if locks can be taken, else that of\n"
        "the failure: 69 if no server was reached.\n",
    .examples = "  holdfast doctor\n"
                "  holdfast doctor redis://db1/0\n"
                "\n"
                "Start a service only if its locks hold across machines:\n"
                "  holdfast doctor --json |\n"
                "      jq -e '.capabilities | index(\"fleet\")' || exit 1\n",
    .words_min = 0,
    .words_max = 1,
    .main = doctor_main,
};
