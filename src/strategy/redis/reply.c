#include "strategy/redis/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_EXPIRY (-1)      /* what PTTL returns for a key without an expiry */
#define OTHERS_HEARTBEATS 4 /* heartbeats between polls of a later waiter */

/* ---- Errors -------------------------------------------------------------*/

/* Skip the wrapping that Redis 6 adds to the error of a command inside a
 * script. There are two forms:
 *
 *   ERR Error running script (call to f_SHA): @user_script:9: WRONGTYPE ...
 *   ERR Error running script (call to f_SHA): @user_script:9: @user_script: 9:
 *   -READONLY ... */
static const char *unwrap_script_error(const char *text)
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

static bool starts_with(const char *text, const char *word)
{
    return !strncmp(text, word, strlen(word));
}

/* Returns true if the error says that the user may not run a command of a
 * script, or may not access a key. */
static bool is_forbidden(const char *text)
{
    return starts_with(text, "NOPERM") || starts_with(text, "ERR The user") ||
           starts_with(text, "The user");
}

/* The server refuses a command before the command has changed anything, so an
 * error reply does not leave the command in doubt. The exceptions:
 *   - UNBLOCKED ends a command that was blocked when the server became a
 *     replica;
 *   - Redis does not roll back a script. If a later command of the script may
 *     not be executed (NOPERM), or finds a key of another type (WRONGTYPE), the
 *     earlier ones have had their effect. */
enum hf_err hf_redis_reply_handle_error(struct hf_redis_connection *connection,
                                        const redisReply *reply)
{
    static const char *const transient[] = {
        "BUSY", "LOADING", "MASTERDOWN", "NOREPLICAS",
        "OOM",  "MISCONF", "TRYAGAIN",   "ERR max"};

    const char *text = unwrap_script_error(reply->str);

    if (starts_with(text, "NOSCRIPT")) {
        hf_redis_handshake_load_scripts(connection);
        return HF_EUNAVAIL;
    }
    if (starts_with(text, "READONLY") || starts_with(text, "NOAUTH") ||
        starts_with(text, "UNBLOCKED")) {
        hf_redis_connection_drop(connection, HF_EUNAVAIL, text);
        return starts_with(text, "UNBLOCKED") ? HF_EINDOUBT : HF_EUNAVAIL;
    }
    for (size_t i = 0; i < sizeof(transient) / sizeof(transient[0]); i++) {
        if (starts_with(text, transient[i]))
            return HF_EUNAVAIL;
    }
    if (starts_with(text, "WRONGTYPE"))
        return HF_EINVAL;
    return is_forbidden(text) ? HF_EDENIED : HF_EPROTO;
}

void hf_redis_reply_set_cause(struct hf_answer *answer, const char *text)
{
    free(answer->cause);
    answer->cause = strdup(text);
}

#define NAMED_MAX 64 /* longest part of a key in an error text */

static void write_printable(char to[NAMED_MAX + 1], struct hf_key key)
{
    const char *bytes = key.data;
    size_t size = key.size < NAMED_MAX ? key.size : NAMED_MAX;

    for (size_t i = 0; i < size; i++) {
        to[i] = bytes[i];
        if (to[i] < ' ' || to[i] > '~')
            to[i] = '?';
    }
    to[size] = '\0';
}

void hf_redis_reply_set_error_cause(struct hf_answer *answer, struct hf_key key,
                                    const redisReply *reply)
{
    static const char word[] = "WRONGTYPE ";
    char name[NAMED_MAX + 1], text[NAMED_MAX + 160];
    const char *error = unwrap_script_error(reply->str), *type;

    if (!starts_with(error, word)) {
        hf_redis_reply_set_cause(answer, reply->str);
        return;
    }
    type = error + strlen(word);
    write_printable(name, key);
    if (strlen(type) > 16 || strchr(type, ' '))
        type = "value of another type"; /* Redis's text names no type */
    (void)snprintf(text, sizeof(text),
                   "key '%s' holds a %s in Redis, not a lock; choose another "
                   "key, or set ?prefix=",
                   name, type);
    hf_redis_reply_set_cause(answer, text);
}

/* ---- Replies ------------------------------------------------------------*/

uint64_t hf_redis_reply_number(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0)
        return (uint64_t)reply->integer;
    return reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10)
                                             : 0;
}

bool hf_redis_reply_next_number(const char **text, uint64_t *number)
{
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    *number = strtoull(*text, &end, 10);
    *text = *end ? end + 1 : end;
    return true;
}

static bool is_array_reply(const redisReply *reply, size_t elements)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= elements;
}

static void decode_grant(struct hf_answer *answer, const redisReply *token,
                         hf_time sent, struct hf_redis_lock_reply *lock_reply)
{
    answer->result.token = hf_redis_reply_number(token);
    if (lock_reply->fresh)
        answer->anchor = (struct hf_anchor){.known = true, .sent = sent};
}

/* Decode a reply of lock_fast.lua or lock.lua: a token; 1 to send the LOCK on
 * the slow path; {HF_OK, token, fresh}; or {error, position, left}.
 *
 * The first waiter polls when the holder's lease ends, and at every heartbeat
 * interval, because a plain Redis client deletes its key without notifying
 * anybody. Later waiters poll less often, in case they have become the first
 * waiter or missed a message. */
static void decode_lock(const redisReply *reply, hf_time sent,
                        uint32_t heartbeat_ms, struct hf_answer *answer,
                        struct hf_redis_lock_reply *lock_reply)
{
    if (reply->type == REDIS_REPLY_STRING) {
        lock_reply->fresh = true;
        decode_grant(answer, reply, sent, lock_reply);
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        lock_reply->slow_path = true;
        answer->result.err = HF_EBUSY;
    } else if (!is_array_reply(reply, 3)) {
        answer->result.err = HF_EPROTO;
    } else if (reply->element[0]->integer == HF_OK) {
        lock_reply->fresh = reply->element[2]->integer == 1;
        decode_grant(answer, reply->element[1], sent, lock_reply);
    } else {
        answer->result.err = (enum hf_err)reply->element[0]->integer;
        answer->result.position =
            (uint32_t)hf_redis_reply_number(reply->element[1]);
        if (reply->element[2]->integer == NO_EXPIRY)
            hf_redis_reply_set_cause(answer,
                                     "set by another Redis client without "
                                     "expiry: held until it is deleted");
        /* Round up: PTTL returns 0 for less than a millisecond. */
        if (reply->element[2]->integer >= 0)
            lock_reply->left_ms = (uint32_t)reply->element[2]->integer + 1;
        answer->poll_after_ms = answer->result.position == 1
                                    ? heartbeat_ms
                                    : OTHERS_HEARTBEATS * heartbeat_ms;
        if (answer->result.position > 0 && lock_reply->left_ms > 0 &&
            lock_reply->left_ms < answer->poll_after_ms)
            answer->poll_after_ms = lock_reply->left_ms;
    }
}

/* Decode a code, or {code, token} from cancel.lua and unlock.lua. */
static void decode_other(const redisReply *reply,
                         const struct hf_command *command,
                         struct hf_answer *answer)
{
    const redisReply *err = reply;

    if (is_array_reply(reply, 2)) {
        err = reply->element[0];
        answer->result.token = hf_redis_reply_number(reply->element[1]);
    }
    answer->result.err = err->type == REDIS_REPLY_INTEGER
                             ? (enum hf_err)err->integer
                             : HF_EPROTO;
    answer->sure = command->kind == HF_COMMAND_UNLOCK &&
                   answer->result.token == command->token;
}

void hf_redis_reply_decode(struct hf_redis_connection *connection,
                           const redisReply *reply, hf_time sent,
                           const struct hf_command *command,
                           struct hf_answer *answer,
                           struct hf_redis_lock_reply *lock_reply)
{
    *lock_reply = (struct hf_redis_lock_reply){0};
    if (!reply) {
        answer->result.err = HF_EINDOUBT;
        hf_redis_reply_set_cause(answer, connection->failure.text);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        answer->result.err = hf_redis_reply_handle_error(connection, reply);
        hf_redis_reply_set_error_cause(answer, command->key, reply);
    } else if (command->kind == HF_COMMAND_LOCK) {
        decode_lock(reply, sent,
                    hf_redis_heartbeat_default_ms(command->lease_ms), answer,
                    lock_reply);
    } else {
        decode_other(reply, command, answer);
    }
}

/* ---- Records ------------------------------------------------------------*/

struct record {
    uint64_t token, forced, held, lease, owner_size, note_size;
    const char *data; /* owner, note, value */
};

/* Parse the record of a held lock (record.lua). Returns false if holdfast did
 * not write it. */
static bool parse_record(const redisReply *held, struct record *record)
{
    const char *end = memchr(held->str, '\n', held->len);
    const char *at = held->str + 4;
    size_t rest;

    if (!end || strncmp(held->str, "hf1 ", 4) != 0 ||
        !hf_redis_reply_next_number(&at, &record->token) ||
        end - at <= (ptrdiff_t)HF_REDIS_NONCE_SIZE)
        return false;
    at += HF_REDIS_NONCE_SIZE + 1;
    if (!hf_redis_reply_next_number(&at, &record->forced) ||
        !hf_redis_reply_next_number(&at, &record->held) ||
        !hf_redis_reply_next_number(&at, &record->lease) ||
        !hf_redis_reply_next_number(&at, &record->owner_size) ||
        !hf_redis_reply_next_number(&at, &record->note_size))
        return false;
    record->data = end + 1;
    rest = held->len - (size_t)(end + 1 - held->str);
    return record->owner_size <= HF_NOTE_MAX &&
           record->note_size <= HF_NOTE_MAX &&
           record->owner_size + record->note_size <= rest;
}

static void copy_record_text(char *to, const char *from, size_t size)
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

    copy_record_text(owner, record->data, record->owner_size);
    copy_record_text(note, record->data + record->owner_size,
                     record->note_size);
    from.token = record->token;
    from.forced = record->forced == 1;
    from.owner = owner;
    from.note = note;
    from.value =
        (struct hf_bytes){value, held->len - (size_t)(value - held->str)};
    return hf_info_copy(info, &from);
}

enum hf_err hf_redis_reply_decode_read(struct hf_redis_connection *connection,
                                       const redisReply *reply,
                                       struct hf_key key, struct hf_info *info,
                                       bool *ours)
{
    struct hf_info from = {.key = key, .owner = "", .note = ""};
    struct record record;
    const redisReply *held;

    if (reply->type == REDIS_REPLY_ERROR)
        return hf_redis_reply_handle_error(connection, reply);
    if (!is_array_reply(reply, 5))
        return HF_EPROTO;
    held = reply->element[0];
    from.held = held->type == REDIS_REPLY_STRING;
    from.left_ms = reply->element[1]->integer == NO_EXPIRY
                       ? HF_FOREVER
                       : (uint32_t)hf_redis_reply_number(reply->element[1]);
    from.held_ms = (uint32_t)hf_redis_reply_number(reply->element[2]);
    from.waiters = (uint32_t)hf_redis_reply_number(reply->element[3]);
    from.index = hf_redis_reply_number(reply->element[4]);
    *ours = from.held && parse_record(held, &record);
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
