#include "strategy/redis/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_EXPIRY (-1) /* as PTTL has it */
#define OTHERS_BEATS 4 /* how often waiters other than the first ask again */

/* ---- Failures -----------------------------------------------------------*/

/* Redis 6 wraps what a command inside a script answers, in one of two ways:
 *
 *   ERR Error running script (call to f_SHA): @user_script:9: WRONGTYPE ...
 *   ERR Error running script (call to f_SHA): @user_script:9: @user_script: 9:
 *   -READONLY ...
 */
static const char *unwrap(const char *text)
{
    static const char where[] = "@user_script";
    const char *inner = text;

    if (strncmp(text, "ERR Error running script", 24) != 0)
        return text;
    while (strstr(inner, where))
        inner = strstr(inner, where) + strlen(where);
    inner += strspn(inner, ": 0123456789");
    return inner + (*inner == '-');
}

static bool begins(const char *text, const char *word)
{
    return !strncmp(text, word, strlen(word));
}

/* How a script says that its user may not run a command. */
static bool is_forbidden(const char *text)
{
    return begins(text, "NOPERM") || begins(text, "ERR The user") ||
           begins(text, "The user");
}

/* The server refuses before it does anything: what is not done is said to be
 * not done. */
enum hf_err hf_redis_failure(struct hf_redis_link *link,
                             const redisReply *reply)
{
    static const char *const passing[] = {"BUSY",       "LOADING", "MASTERDOWN",
                                          "NOREPLICAS", "OOM",     "MISCONF",
                                          "TRYAGAIN",   "ERR max"};

    const char *text = unwrap(reply->str);

    if (begins(text, "NOSCRIPT")) {
        hf_redis_load(link);
        return HF_EUNAVAIL;
    }
    if (begins(text, "READONLY") || begins(text, "NOAUTH") ||
        begins(text, "UNBLOCKED")) {
        hf_redis_link_drop(link, HF_EUNAVAIL, text);
        return begins(text, "UNBLOCKED") ? HF_EINDOUBT : HF_EUNAVAIL;
    }
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        if (begins(text, passing[i]))
            return HF_EUNAVAIL;
    }
    if (begins(text, "WRONGTYPE"))
        return HF_EINVAL;
    return is_forbidden(text) ? HF_EDENIED : HF_EPROTO;
}

void hf_redis_explain(struct hf_answer *answer, const char *text)
{
    free(answer->cause);
    answer->cause = strdup(text);
}

#define NAMED_MAX 64 /* of a key, in a text */

static void write_printable(char to[NAMED_MAX + 1], struct hf_key key)
{
    const char *bytes = key.data;
    size_t size = key.size < NAMED_MAX ? key.size : NAMED_MAX;

    for (size_t i = 0; i < size; i++)
        to[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    to[size] = '\0';
}

void hf_redis_explain_error(struct hf_answer *answer, struct hf_key key,
                            const redisReply *reply)
{
    static const char word[] = "WRONGTYPE ";
    char name[NAMED_MAX + 1], text[NAMED_MAX + 160];
    const char *error = unwrap(reply->str), *type;

    if (!begins(error, word)) {
        hf_redis_explain(answer, reply->str);
        return;
    }
    type = error + strlen(word);
    write_printable(name, key);
    if (strlen(type) > 16 || strchr(type, ' '))
        type = "value of another type"; /* the server's own words */
    (void)snprintf(text, sizeof(text),
                   "key '%s' holds a %s in Redis, which is no lock: choose "
                   "another key, or ?prefix=",
                   name, type);
    hf_redis_explain(answer, text);
}

/* ---- Replies ------------------------------------------------------------*/

uint64_t hf_redis_digits(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0)
        return (uint64_t)reply->integer;
    return reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10)
                                             : 0;
}

bool hf_redis_next(const char **text, uint64_t *number)
{
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    *number = strtoull(*text, &end, 10);
    *text = *end ? end + 1 : end;
    return true;
}

static bool is_array(const redisReply *reply, size_t elements)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= elements;
}

static void take_grant(struct hf_answer *answer, const redisReply *token,
                       hf_time sent, struct hf_redis_taken *taken)
{
    answer->result.token = hf_redis_digits(token);
    if (taken->fresh)
        answer->anchor = (struct hf_anchor){.known = true, .sent = sent};
}

/* The token, from take.lua, or 1; {HF_OK, token, fresh}, {HF_EBUSY, position,
 * left}. The first waiter asks again when the holder's lease ends, and at each
 * beat, because a plain client may give its lock back without a word. The others
 * ask in case they have become the first, or a message was lost. */
static void take_lock(const redisReply *reply, hf_time sent, uint32_t beat_ms,
                      struct hf_answer *answer, struct hf_redis_taken *taken)
{
    if (reply->type == REDIS_REPLY_STRING) {
        taken->fresh = true;
        take_grant(answer, reply, sent, taken);
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        taken->in_full = true;
        answer->result.err = HF_EBUSY;
    } else if (!is_array(reply, 3)) {
        answer->result.err = HF_EPROTO;
    } else if (reply->element[0]->integer == HF_OK) {
        taken->fresh = reply->element[2]->integer == 1;
        take_grant(answer, reply->element[1], sent, taken);
    } else {
        answer->result.err = (enum hf_err)reply->element[0]->integer;
        answer->result.place = (uint32_t)hf_redis_digits(reply->element[1]);
        if (reply->element[2]->integer == NO_EXPIRY)
            hf_redis_explain(answer, "set by another Redis client, without "
                                     "expiry: held until it is deleted");
        /* Less than a millisecond is something, too. */
        if (reply->element[2]->integer >= 0)
            taken->left_ms = (uint32_t)reply->element[2]->integer + 1;
        answer->look_again_ms =
            answer->result.place == 1 ? beat_ms : OTHERS_BEATS * beat_ms;
        if (answer->result.place > 0 && taken->left_ms > 0 &&
            taken->left_ms < answer->look_again_ms)
            answer->look_again_ms = taken->left_ms;
    }
}

/* An error; {HF_OK, token} of CANCEL, {error, token} of UNLOCK. */
static void take_others(const redisReply *reply,
                        const struct hf_command *command,
                        struct hf_answer *answer)
{
    const redisReply *err = reply;

    if (is_array(reply, 2)) {
        err = reply->element[0];
        answer->result.token = hf_redis_digits(reply->element[1]);
    }
    answer->result.err = err->type == REDIS_REPLY_INTEGER
                             ? (enum hf_err)err->integer
                             : HF_EPROTO;
    answer->sure = command->kind == HF_COMMAND_UNLOCK &&
                   answer->result.token == command->token;
}

void hf_redis_take_command(struct hf_redis_link *link, const redisReply *reply,
                           hf_time sent, const struct hf_command *command,
                           struct hf_answer *answer,
                           struct hf_redis_taken *taken)
{
    *taken = (struct hf_redis_taken){0};
    if (!reply) {
        answer->result.err = HF_EINDOUBT;
        hf_redis_explain(answer, link->failure.text);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        answer->result.err = hf_redis_failure(link, reply);
        hf_redis_explain_error(answer, command->key, reply);
    } else if (command->kind == HF_COMMAND_LOCK) {
        take_lock(reply, sent, hf_redis_beat_ms(command->lease_ms), answer,
                  taken);
    } else {
        take_others(reply, command, answer);
    }
}

/* ---- Records ------------------------------------------------------------*/

struct record {
    uint64_t token, forced, held, lease, owner_size, note_size;
    const char *data; /* owner, note, value */
};

/* hf1 TOKEN NONCE FORCED HELD LEASE OWNER_SIZE NOTE_SIZE UPDATES\n */
static bool parse(const redisReply *held, struct record *record)
{
    const char *end = memchr(held->str, '\n', held->len);
    const char *at = held->str + 4;
    size_t rest;

    if (!end || strncmp(held->str, "hf1 ", 4) != 0 ||
        !hf_redis_next(&at, &record->token) ||
        end - at <= (ptrdiff_t)HF_REDIS_NONCE_SIZE)
        return false;
    at += HF_REDIS_NONCE_SIZE + 1;
    if (!hf_redis_next(&at, &record->forced) ||
        !hf_redis_next(&at, &record->held) ||
        !hf_redis_next(&at, &record->lease) ||
        !hf_redis_next(&at, &record->owner_size) ||
        !hf_redis_next(&at, &record->note_size))
        return false;
    record->data = end + 1;
    rest = held->len - (size_t)(end + 1 - held->str);
    return record->owner_size <= HF_NOTE_MAX &&
           record->note_size <= HF_NOTE_MAX &&
           record->owner_size + record->note_size <= rest;
}

static void copy_text(char *to, const char *from, size_t size)
{
    memcpy(to, from, size);
    to[size] = '\0';
}

static enum hf_err copy_record(const redisReply *held,
                               const struct record *record,
                               const struct hf_info *known,
                               struct hf_info *info)
{
    char owner[HF_NOTE_MAX + 1], note[HF_NOTE_MAX + 1];
    const char *value = record->data + record->owner_size + record->note_size;
    struct hf_info from = *known;

    copy_text(owner, record->data, record->owner_size);
    copy_text(note, record->data + record->owner_size, record->note_size);
    from.token = record->token;
    from.forced = record->forced == 1;
    from.owner = owner;
    from.note = note;
    from.value =
        (struct hf_bytes){value, held->len - (size_t)(value - held->str)};
    return hf_info_copy(info, &from);
}

enum hf_err hf_redis_take_read(struct hf_redis_link *link,
                               const redisReply *reply, struct hf_key key,
                               struct hf_info *info, bool *ours)
{
    struct hf_info from = {.key = key, .owner = "", .note = ""};
    struct record record;
    const redisReply *held;

    if (reply->type == REDIS_REPLY_ERROR)
        return hf_redis_failure(link, reply);
    if (!is_array(reply, 5))
        return HF_EPROTO;
    held = reply->element[0];
    from.held = held->type == REDIS_REPLY_STRING;
    from.left_ms = reply->element[1]->integer == NO_EXPIRY
                       ? HF_FOREVER
                       : (uint32_t)hf_redis_digits(reply->element[1]);
    from.held_ms = (uint32_t)hf_redis_digits(reply->element[2]);
    from.waiters = (uint32_t)hf_redis_digits(reply->element[3]);
    from.index = hf_redis_digits(reply->element[4]);
    *ours = from.held && parse(held, &record);
    if (from.held && !*ours) {
        from.owner = "another Redis client";
        from.note = from.left_ms == HF_FOREVER
                        ? "not a lock of holdfast; it has no expiry"
                        : "not a lock of holdfast";
    }
    if (!*ours)
        return hf_info_copy(info, &from);
    return copy_record(held, &record, &from, info);
}
