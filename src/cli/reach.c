#include "reach.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "failure.h"
#include "url.h"

#define REACH_MIN_MS 1000 /* time to connect, however short --wait is */
#define PAUSE_MIN_MS 50   /* pause between attempts; doubles each time */
#define PAUSE_MAX_MS 1000

/* ---- Sleeping, with a loop or without -----------------------------------*/

static void handle_signals(struct reach *reach)
{
    int signal;

    while ((signal = loop_signal(reach->loop))) {
        if (loop_is_stop(signal))
            loop_stop(signal, false);
        else if (loop_is_fatal(signal))
            reach->signal = signal;
    }
}

/* Wait until on_open() is called, a fatal signal arrives, or `until` has
 * passed. */
static void wait_in_loop(struct reach *reach, int64_t until)
{
    while (!reach->answered && !reach->signal && loop_now() < until) {
        (void)loop_sleep(reach->loop, reach->client, -1, until, NULL, NULL);
        handle_signals(reach);
    }
}

static uint32_t ms_until(int64_t until)
{
    int64_t now = loop_now();

    if (until == LOOP_NEVER)
        return HF_FOREVER;
    return until > now ? (uint32_t)(until - now) : 0;
}

static void sleep_until(struct reach *reach, int64_t at)
{
    uint32_t left = ms_until(at);
    struct timespec span = {
        .tv_sec = left / 1000,
        .tv_nsec = left % 1000 * 1000000L,
    };

    if (!reach->loop)
        (void)nanosleep(&span, NULL);
    while (reach->loop && !reach->signal && loop_now() < at) {
        (void)loop_sleep(reach->loop, NULL, -1, at, NULL, NULL);
        handle_signals(reach);
    }
}

/* ---- One attempt --------------------------------------------------------*/

static void on_open(enum hf_err err, void *arg)
{
    struct reach *reach = arg;

    reach->answered = true;
    reach->err = err;
}

/* Close a client that is not needed, without waiting. If the client is not open
 * yet, its opening thread finishes the close. */
static void abandon_client(struct reach *reach)
{
    (void)hf_close(reach->client, 0);
    reach->client = NULL;
}

/* Wait for the result of hf_open_start(), at most until `until`. */
static void await_open(struct reach *reach, struct hf_future *future,
                       int64_t until)
{
    enum hf_err err;

    if (reach->loop)
        wait_in_loop(reach, until);
    else if (!hf_future_wait(future, ms_until(until), &err))
        on_open(err, reach);
    if (!reach->answered) {
        abandon_client(reach);
        reach->err = HF_EUNAVAIL;
        (void)snprintf(reach->error.text, sizeof(reach->error.text),
                       "the store did not answer in time; nothing was done");
    } else if (reach->err) {
        hf_future_error(future, &reach->error);
        abandon_client(reach);
    }
}

static void open_once(struct reach *reach, int64_t until)
{
    struct hf_client_opts opts;
    struct hf_future *future;

    hf_client_opts_init(&opts);
    opts.owner = reach->owner;
    opts.inherit = reach->inherit;
    opts.error = &reach->error;
    reach->error = (struct hf_error){0};
    reach->answered = false;
    if (!reach->loop && until == LOOP_NEVER) {
        reach->err = hf_open(reach->url, &opts, &reach->client);
        return;
    }
    reach->err = hf_open_start(reach->url, &opts, &reach->client,
                               reach->loop ? on_open : NULL, reach, &future);
    if (reach->err)
        return;
    await_open(reach, future, until);
    hf_future_free(future);
}

/* ---- Retrying -----------------------------------------------------------*/

static bool may_retry(const struct reach *reach, int64_t at, int64_t until)
{
    return reach->err == HF_EUNAVAIL && !reach->signal && until != LOOP_NEVER &&
           at < until;
}

static void open_with_retries(struct reach *reach, int64_t until)
{
    int64_t pause = PAUSE_MIN_MS;

    open_once(reach, until);
    while (may_retry(reach, loop_now() + pause, until)) {
        failure_trace(reach->args, "%s; trying again", reach->error.text);
        sleep_until(reach, loop_now() + pause);
        if (reach->signal)
            return;
        open_once(reach, until);
        pause = 2 * pause < PAUSE_MAX_MS ? 2 * pause : PAUSE_MAX_MS;
    }
}

/* When to give up. LOOP_NEVER means to make one attempt, whose time the library
 * limits. */
static int64_t reach_deadline(const struct args *args)
{
    int64_t least = loop_now() + REACH_MIN_MS;

    if (!(args->given & OPTION(WAIT)) || args->wait_ms == 0)
        return LOOP_NEVER;
    return args->wait_until > least ? args->wait_until : least;
}

static void report_store(const struct reach *reach)
{
    char shown[512];

    (void)snprintf(shown, sizeof(shown), "%s", reach->url);
    url_hide_password(shown);
    failure_trace(reach->args, "using the store %s (%s)", shown,
                  url_source(reach->args));
}

bool reach_store(struct reach *reach, int *status)
{
    reach->url = url_take(reach->args, status);
    if (!reach->url)
        return false;
    report_store(reach);
    open_with_retries(reach, reach_deadline(reach->args));
    if (!reach->err && !reach->signal)
        return true;
    if (!reach->signal)
        *status = failure(reach->args, reach->err, "%s",
                          reach->error.text[0] ? reach->error.text
                                               : hf_err_text(reach->err));
    if (reach->client)
        abandon_client(reach);
    url_free(reach->url);
    reach->url = NULL;
    return false;
}
