/* lock.c - take a lock and leave it held, or with --hold, keep renewing it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "descendants.h"
#include "failure.h"
#include "json.h"
#include "reach.h"
#include "store.h"
#include "take.h"
#include "text.h"
#include "url.h"

struct held {
    struct loop loop;
    struct hf_client *client;
    struct take take;
};

static int print_claim(const struct args *args, const struct hf_lock *lock,
                       uint32_t left_ms)
{
    struct hf_key key = args_key(args);
    uint8_t nonce[HF_NONCE_SIZE];
    char hex[2 * HF_NONCE_SIZE + 1];
    uint64_t token = hf_lock_token(lock);

    hf_lock_nonce(lock, nonce);
    text_hex(nonce, sizeof(nonce), hex);
    if (args->json) {
        struct json json;

        json_open(&json, stdout);
        json_bytes(&json, "key", key.data, key.size);
        json_text(&json, "nonce", hex);
        json_integer(&json, "token", token);
        json_number(&json, "ttl_ms", args->ttl_ms);
        json_number(&json, "left_ms", left_ms);
        json_close(&json);
    } else {
        char *word = text_quote(key.data, key.size);

        (void)printf("%s %s %llu\n", word, hex, (unsigned long long)token);
        free(word);
    }
    return failure_flush(args, STATUS_OK);
}

/* ---- --hold -------------------------------------------------------------*/

/* Returns true if stdin can be read. If this process is in the background of a
 * terminal, a read would stop it. */
static bool may_read(void)
{
    return !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* Read and discard input. Returns false at end of file or on an error. */
static bool discard_input(void)
{
    char bytes[4096];
    ssize_t size = read(STDIN_FILENO, bytes, sizeof(bytes));

    return size > 0 || (size < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Hold the lock until stdin closes, a fatal signal arrives or the lock is
 * lost. */
static int hold_lock(struct held *held, const struct args *args)
{
    int signal = 0;
    bool open = true;

    while (open && !signal) {
        bool reads = may_read();
        int64_t until = reads ? take_report_at(&held->take) : loop_now() + 1000;
        bool ready = loop_sleep(&held->loop, held->client,
                                reads ? STDIN_FILENO : -1, until, NULL, NULL);

        take_report_renewal(&held->take);
        if (hf_lock_state(held->take.lock) != HF_LOCK_HELD) {
            struct hf_error error;

            hf_lock_error(held->take.lock, &error);
            (void)failure_on_key(args, args_key(args),
                                 error.code ? error.code : HF_EEXPIRED, &error);
            return STATUS_LOST;
        }
        signal = loop_signal(&held->loop);
        if (loop_is_stop(signal))
            loop_stop(signal, false);
        if (signal && !loop_is_fatal(signal))
            signal = 0;
        if (ready && !signal)
            open = discard_input();
    }
    held->take.signal = signal;
    return STATUS_OK;
}

static int release_held(const struct held *held, const struct args *args,
                        int status)
{
    enum hf_err err = hf_release(held->take.lock);

    if (err == HF_OK || status != STATUS_OK)
        return status;
    (void)failure_on_lock(args, held->take.lock, err);
    return err == HF_EEXPIRED ? STATUS_LOST : failure_status(err);
}

/* ---- Without --hold -----------------------------------------------------*/

/* Release the detached lock. If the release fails, the lock ends when its lease
 * expires. */
static void release_detached(const struct held *held, const struct args *args)
{
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock;

    hf_lock_nonce(held->take.lock, nonce);
    if (!hf_lock_adopt(held->client, args_key(args), nonce,
                       hf_lock_token(held->take.lock), NULL, &lock)) {
        (void)hf_release(lock);
        hf_lock_free(lock);
    }
    explicit_bzero(nonce, sizeof(nonce));
}

/* Detach the lock before printing it: once the reader has the line, the lock
 * must outlive this process, even if this process is killed right after. If the
 * line cannot be written, nobody else could release the lock, so release it. */
static int print_and_detach(const struct held *held, const struct args *args)
{
    uint32_t left_ms = hf_lock_remaining_ms(held->take.lock);
    int status;

    /* If the lock is lost, this fails; `renew` and `unlock` report the loss. */
    (void)hf_lock_detach(held->take.lock);
    status = print_claim(args, held->take.lock, left_ms);
    if (status)
        release_detached(held, args);
    return status;
}

static int print_and_hold(struct held *held, const struct args *args)
{
    int status = print_claim(args, held->take.lock,
                             hf_lock_remaining_ms(held->take.lock));

    if (!status)
        status = hold_lock(held, args);
    return release_held(held, args, status);
}

/* ---- The verb -----------------------------------------------------------*/

/* Write the owner that others see. Without --hold this process ends at once, so
 * the owner is its parent, the calling script. If the name of that process
 * cannot be read, write "holdfast". */
static void describe_caller(const struct args *args,
                            char label[HF_NOTE_MAX + 1])
{
    long pid = args->hold ? getpid() : getppid();
    char name[DESCENDANT_NAME_SIZE];

    if (!descendants_name((pid_t)pid, name))
        (void)snprintf(name, sizeof(name), "holdfast");
    store_label(label, name, pid);
}

static int lock_main(struct args *args)
{
    char owner[HF_NOTE_MAX + 1];
    struct held held = {.client = NULL};
    struct reach reach;
    int err = loop_open(&held.loop);
    int status;

    if (err) {
        (void)failure(args, HF_ESYSTEM, "cannot wait for signals: %s",
                      strerror(err));
        return STATUS_SYSTEM;
    }
    describe_caller(args, owner);
    reach = (struct reach){.args = args, .owner = owner, .loop = &held.loop};
    if (!reach_store(&reach, &status)) {
        if (reach.signal)
            loop_die(reach.signal);
        return status;
    }
    url_free(reach.url);
    held.client = reach.client;
    if (take_lock(&held.take, args, &held.loop, held.client, args->hold,
                  &status))
        status = args->hold ? print_and_hold(&held, args)
                            : print_and_detach(&held, args);
    store_close(held.client);
    take_fini(&held.take);
    if (held.take.signal)
        loop_die(held.take.signal);
    return status;
}

const struct verb verb_lock = {
    .name = "lock",
    .words = "KEY",
    .summary = "take a lock and leave it held",
    .text =
        "Takes the lock on KEY, waiting in the queue if it is held, prints\n"
        "\n"
        "  KEY NONCE TOKEN\n"
        "\n"
        "and exits. The lock stays held for its ttl; 'renew' extends it, and\n"
        "'unlock' releases it. The nonce is a secret: whoever knows it can\n"
        "release the lock. With --hold the command does not exit, but renews\n"
        "the lock until stdin closes, then releases it.\n",
    .examples = "In a script, with any shell:\n"
                "  held=$(holdfast lock --ttl 5m deploy) || exit\n"
                "  set -- $held\n"
                "  export HOLDFAST_NONCE=$2     # hidden from ps(1)\n"
                "  ./copy && holdfast renew --ttl 5m deploy - $3 && ./switch\n"
                "  holdfast unlock deploy - $3\n"
                "\n"
                "For as long as a bash script lives:\n"
                "  coproc holdfast lock --hold deploy\n"
                "  read -r key nonce token <&\"${COPROC[0]}\" || exit\n",
    .options = OPTION(TTL) | OPTION(WAIT) | OPTION(NO_WAIT) |
               OPTION(BUSY_STATUS) | OPTION(HOLD) | OPTION(NOTE) |
               OPTION(VALUE) | OPTION(QUIET),
    .words_min = 1,
    .words_max = 1,
    .main = lock_main,
};
