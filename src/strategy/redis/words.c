#include "strategy/redis/words.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"

#define BEAT_MIN_MS 20
#define BEAT_MAX_MS 500

static void write_hex(char *to, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < size; i++) {
        to[2 * i] = digits[bytes[i] >> 4];
        to[2 * i + 1] = digits[bytes[i] & 15];
    }
    to[2 * size] = '\0';
}

enum hf_err hf_redis_asker_init(struct hf_redis_asker *asker,
                                struct hf_host *host)
{
    uint8_t bytes[HF_REDIS_ID_SIZE / 2];
    enum hf_err err =
        hf_random_bytes(host->ops->random(host), bytes, sizeof(bytes));

    if (err)
        return err;
    asker->owner = host->ops->owner(host);
    write_hex(asker->id, bytes, sizeof(bytes));
    (void)snprintf(asker->channel, sizeof(asker->channel), "%s%s",
                   HF_REDIS_CHANNEL_PREFIX, asker->id);
    return HF_OK;
}

bool hf_redis_key_is_ours(struct hf_key key)
{
    return hf_key_has_prefix(key, (struct hf_key){"hf:", 3});
}

/* A beat is short enough that a grant which names the last one has its ttl in
 * full: less than the part by which a lease is longer than the ttl. */
uint32_t hf_redis_beat_ms(uint32_t lease_ms)
{
    uint32_t beat = lease_ms / 32;

    if (beat < BEAT_MIN_MS)
        return BEAT_MIN_MS;
    return beat < BEAT_MAX_MS ? beat : BEAT_MAX_MS;
}

/* ---- Words --------------------------------------------------------------*/

static void call_script(struct hf_redis_words *words,
                        const struct hf_redis_link *link,
                        enum hf_redis_script script, uint64_t keys)
{
    words->args.count = 0;
    hf_redis_add_text(&words->args, "EVALSHA");
    hf_redis_add(&words->args, link->shas[script], HF_REDIS_SHA_SIZE);
    hf_redis_add_number(&words->args, keys);
}

static void add_key(struct hf_redis_words *words, unsigned at,
                    const char *prefix, struct hf_key key)
{
    size_t size = strlen(prefix);

    memcpy(words->keys[at], prefix, size);
    hf_copy(words->keys[at] + size, key.data, key.size);
    hf_redis_add(&words->args, words->keys[at], size + key.size);
}

#define EVENTS_KEY "hf:events"

/* What is kept as long as somebody watches. */
static void add_watch_keys(struct hf_redis_args *args)
{
    hf_redis_add_text(args, EVENTS_KEY);
    hf_redis_add_text(args, "hf:held");
    hf_redis_add_text(args, "hf:ends");
}

/* The keys that record.lua and line.lua speak of. */
static void call_on_key(struct hf_redis_words *words,
                        const struct hf_redis_link *link,
                        enum hf_redis_script script, struct hf_key key)
{
    bool traces = script == HF_REDIS_FORCE || script == HF_REDIS_UNLOCK;

    call_script(words, link, script, traces ? 8 : 7);
    hf_redis_add(&words->args, key.data, key.size);
    add_key(words, 0, "hf:q:", key);
    add_key(words, 1, "hf:w:", key);
    hf_redis_add_text(&words->args, HF_REDIS_TOKEN_KEY);
    add_watch_keys(&words->args);
    if (traces)
        add_key(words, 2, "hf:f:", key);
}

static void add_bytes(struct hf_redis_words *words, struct hf_bytes bytes)
{
    hf_redis_add(&words->args, bytes.data, bytes.size);
}

static void add_given_token(struct hf_redis_words *words, uint64_t token)
{
    if (token > 0)
        hf_redis_add_number(&words->args, token);
}

static char *put(char *to, const void *bytes, size_t size)
{
    hf_copy(to, bytes, size);
    return to + size;
}

static char *put_text(char *to, const char *text)
{
    return put(to, text, strlen(text));
}

static char *put_number(char *to, uint64_t number)
{
    return to + hf_redis_write_digits(to, number);
}

static char *put_nonce(char *to, const struct hf_command *command)
{
    write_hex(to, command->nonce.bytes, sizeof(command->nonce.bytes));
    return to + HF_REDIS_NONCE_SIZE;
}

/* What follows the token in the record: " NONCE 0 0 LEASE OWNER_SIZE NOTE_SIZE
 * -\n", owner, note. Made here, because the server has more to do. */
static char *put_head(char *to, const struct hf_redis_asker *asker,
                      const struct hf_command *command)
{
    size_t owner_size = strlen(asker->owner);

    to = put_nonce(put_text(to, " "), command);
    to = put_text(to, " 0 0 ");
    to = put_number(to, command->lease_ms);
    to = put_text(to, " ");
    to = put_number(to, owner_size);
    to = put_text(to, " ");
    to = put_number(to, command->note.size);
    to = put_text(to, " -\n");
    to = put(to, asker->owner, owner_size);
    return put(to, command->note.data, command->note.size);
}

/* How the holder's record begins: "hf1 TOKEN NONCE ". */
static char *put_mine(char *to, const struct hf_command *command)
{
    to = put_number(put_text(to, "hf1 "), command->token);
    return put_text(put_nonce(put_text(to, " "), command), " ");
}

/* What was put into the text of these words. */
static void add_put(struct hf_redis_words *words, const char *end)
{
    hf_redis_add(&words->args, words->text, (size_t)(end - words->text));
}

static void call_take(struct hf_redis_words *words,
                      const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *command, uint64_t token)
{
    call_script(words, link, HF_REDIS_TAKE, 4);
    hf_redis_add(&words->args, command->key.data, command->key.size);
    add_key(words, 0, "hf:q:", command->key);
    hf_redis_add_text(&words->args, HF_REDIS_TOKEN_KEY);
    hf_redis_add_text(&words->args, EVENTS_KEY);
    add_put(words, put_head(words->text, asker, command));
    hf_redis_add_number(&words->args, command->lease_ms);
    add_bytes(words, command->value);
    add_given_token(words, token);
}

static void call_lock(struct hf_redis_words *words,
                      const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *command,
                      const struct hf_redis_lock *lock)
{
    struct hf_redis_args *args = &words->args;

    call_on_key(words, link, HF_REDIS_LOCK, command->key);
    hf_redis_add_text(args, words->nonce);
    hf_redis_add_number(args, command->lease_ms);
    hf_redis_add_text(args, lock->queue ? "1" : "0");
    hf_redis_add_text(args, asker->owner);
    add_bytes(words, command->note);
    add_bytes(words, command->value);
    hf_redis_add_text(args, asker->channel);
    hf_redis_add_number(args, (uint64_t)lock->sent);
    hf_redis_add_number(args, hf_redis_beat_ms(command->lease_ms));
    add_given_token(words, lock->token);
}

static void add_mine(struct hf_redis_words *words,
                     const struct hf_command *command)
{
    add_put(words, put_mine(words->text, command));
}

static void add_update(struct hf_redis_words *words,
                       const struct hf_redis_asker *asker,
                       const struct hf_command *command)
{
    struct hf_redis_args *args = &words->args;

    add_mine(words, command);
    add_bytes(words, command->value);
    hf_redis_add_text(args, command->has_expected ? "1" : "0");
    add_bytes(words, command->expected);
    hf_redis_add_text(args, asker->id);
    hf_redis_add_number(args, command->sequence);
    hf_redis_add_number(args, command->done);
}

static void add_force(struct hf_redis_words *words,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *command)
{
    char *to = put_text(words->text, asker->id);

    to = put_text(to, ".");
    hf_redis_add_number(&words->args, command->token);
    hf_redis_add_text(&words->args, command->now ? "1" : "0");
    add_put(words, put_number(to, command->sequence));
}

static enum hf_redis_script script_of(enum hf_command_kind kind)
{
    switch (kind) {
    case HF_COMMAND_UNLOCK:
        return HF_REDIS_UNLOCK;
    case HF_COMMAND_RENEW:
        return HF_REDIS_RENEW;
    case HF_COMMAND_UPDATE:
        return HF_REDIS_UPDATE;
    case HF_COMMAND_FORCE:
        return HF_REDIS_FORCE;
    default:
        return HF_REDIS_CANCEL;
    }
}

void hf_redis_command(struct hf_redis_words *words,
                      const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *command,
                      const struct hf_redis_lock *lock)
{
    write_hex(words->nonce, command->nonce.bytes, sizeof(command->nonce.bytes));
    if (command->kind == HF_COMMAND_LOCK && lock->in_full) {
        call_lock(words, link, asker, command, lock);
        return;
    }
    if (command->kind == HF_COMMAND_LOCK) {
        call_take(words, link, asker, command, lock->token);
        return;
    }
    call_on_key(words, link, script_of(command->kind), command->key);
    switch (command->kind) {
    case HF_COMMAND_UPDATE:
        add_update(words, asker, command);
        break;
    case HF_COMMAND_FORCE:
        add_force(words, asker, command);
        break;
    case HF_COMMAND_CANCEL:
        hf_redis_add_text(&words->args, words->nonce);
        break;
    default:
        add_mine(words, command);
        if (command->kind == HF_COMMAND_RENEW)
            hf_redis_add_number(&words->args, command->lease_ms);
        break;
    }
    if (asker->announce && command->kind != HF_COMMAND_RENEW)
        add_key(words, 3, asker->announce, command->key);
}

void hf_redis_read(struct hf_redis_words *words,
                   const struct hf_redis_link *link, struct hf_key key)
{
    call_on_key(words, link, HF_REDIS_READ, key);
}

void hf_redis_look(struct hf_redis_words *words,
                   const struct hf_redis_link *link)
{
    call_script(words, link, HF_REDIS_WATCH, 3);
    add_watch_keys(&words->args);
}

/* ---- Several ------------------------------------------------------------*/

static void say_keys(struct hf_buf *out, const char *prefix,
                     const struct hf_command *const *commands, unsigned count)
{
    size_t size = strlen(prefix);

    for (unsigned i = 0; i < count; i++) {
        hf_redis_say_size(out, '$', size + commands[i]->key.size);
        hf_buf_raw(out, prefix, size);
        hf_buf_raw(out, commands[i]->key.data, commands[i]->key.size);
        hf_buf_raw(out, "\r\n", 2);
    }
}

/* What is written, or compared; the lease, or none; the value. */
static void say_step(struct hf_buf *out, const struct hf_redis_asker *asker,
                     const struct hf_command *command)
{
    bool takes = command->kind == HF_COMMAND_LOCK;
    char text[HF_REDIS_HEAD_MAX], lease[HF_REDIS_DIGITS_MAX];
    const char *end =
        takes ? put_head(text, asker, command) : put_mine(text, command);

    hf_redis_say(out, text, (size_t)(end - text));
    hf_redis_say(out, lease,
                 takes ? hf_redis_write_digits(lease, command->lease_ms) : 0);
    hf_redis_say(out, command->value.data, takes ? command->value.size : 0);
}

void hf_redis_several(struct hf_buf *out, const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *const *commands, unsigned count)
{
    char digits[HF_REDIS_DIGITS_MAX];

    hf_redis_say_size(out, '*', 5 + (size_t)5 * count);
    hf_redis_say(out, "EVALSHA", strlen("EVALSHA"));
    hf_redis_say(out, link->shas[HF_REDIS_SEVERAL], HF_REDIS_SHA_SIZE);
    hf_redis_say(out, digits, hf_redis_write_digits(digits, 2ull * count + 2));
    say_keys(out, "", commands, count);
    say_keys(out, "hf:q:", commands, count);
    hf_redis_say(out, HF_REDIS_TOKEN_KEY, strlen(HF_REDIS_TOKEN_KEY));
    hf_redis_say(out, EVENTS_KEY, strlen(EVENTS_KEY));
    for (unsigned i = 0; i < count; i++)
        say_step(out, asker, commands[i]);
}
