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
                                struct hf_host *host,
                                const struct hf_redis_keyspace *space)
{
    uint8_t bytes[HF_REDIS_ID_SIZE / 2];
    enum hf_err err =
        hf_random_bytes(host->ops->random(host), bytes, sizeof(bytes));

    if (err)
        return err;
    asker->owner = host->ops->owner(host);
    write_hex(asker->id, bytes, sizeof(bytes));
    (void)snprintf(asker->channel, sizeof(asker->channel), "%shf:c:%s",
                   space->prefix, asker->id);
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

static void add_key(struct hf_redis_words *words,
                    const struct hf_redis_link *link, unsigned at,
                    const char *infix, struct hf_key key)
{
    size_t size = hf_redis_keyspace_name(&link->address->space, infix, key,
                                         words->keys[at]);

    hf_redis_add(&words->args, words->keys[at], size);
}

static const char *shared_key(const struct hf_redis_link *link,
                              enum hf_redis_shared which)
{
    return link->address->space.shared[which];
}

/* The keys that record.lua describes. */
static void call_on_key(struct hf_redis_words *words,
                        const struct hf_redis_link *link,
                        enum hf_redis_script script, struct hf_key key)
{
    bool traces = script == HF_REDIS_FORCE || script == HF_REDIS_UNLOCK;

    call_script(words, link, script, traces ? 10 : 9);
    add_key(words, link, 0, "", key);
    add_key(words, link, 1, "hf:q:", key);
    add_key(words, link, 2, "hf:w:", key);
    for (enum hf_redis_shared i = HF_REDIS_KEY_TOKEN; i <= HF_REDIS_KEY_ENDS;
         i++)
        hf_redis_add_text(&words->args, shared_key(link, i));
    if (traces)
        add_key(words, link, 3, "hf:f:", key);
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

/* A number of exactly `width` digits. */
static char *put_padded(char *to, uint64_t number, unsigned width)
{
    for (unsigned i = width; i-- > 0; number /= 10)
        to[i] = (char)('0' + number % 10);
    return to + width;
}

/* What follows the token in the record: " NONCE 0 HELD LEASE OWNER_SIZE
 * NOTE_SIZE -\n", owner, note. Made here, because the server has more to do. */
static char *put_head(char *to, const struct hf_redis_asker *asker,
                      const struct hf_command *command)
{
    size_t owner_size = strlen(asker->owner);

    to = put_nonce(put_text(to, " "), command);
    to = put_padded(put_text(to, " 0 "), 0, 15);
    to = put_padded(put_text(to, " "), command->lease_ms, 10);
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
    call_script(words, link, HF_REDIS_TAKE, 5);
    add_key(words, link, 0, "", command->key);
    add_key(words, link, 1, "hf:q:", command->key);
    hf_redis_add_text(&words->args, shared_key(link, HF_REDIS_KEY_TOKEN));
    hf_redis_add_text(&words->args, shared_key(link, HF_REDIS_KEY_WATCHED));
    hf_redis_add_text(&words->args, shared_key(link, HF_REDIS_KEY_PREFIXES));
    add_put(words, put_head(words->text, asker, command));
    hf_redis_add_number(&words->args, command->lease_ms);
    add_bytes(words, command->value);
    add_given_token(words, token);
}

/* How lock.lua is asked: once, to join the queue, or again from there. */
static const char *lock_mode(const struct hf_redis_lock *lock)
{
    if (!lock->queue)
        return "0";
    return lock->waiting ? "2" : "1";
}

static void call_lock(struct hf_redis_words *words,
                      const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *command,
                      const struct hf_redis_lock *lock)
{
    struct hf_redis_args *args = &words->args;
    const struct hf_bytes none = {"", 0};

    call_on_key(words, link, HF_REDIS_LOCK, command->key);
    hf_redis_add_text(args, words->nonce);
    hf_redis_add_number(args, command->lease_ms);
    hf_redis_add_text(args, lock_mode(lock));
    hf_redis_add_text(args, lock->waiting ? "" : asker->owner);
    add_bytes(words, lock->waiting ? none : command->note);
    add_bytes(words, lock->waiting ? none : command->value);
    hf_redis_add_text(args, asker->id);
    hf_redis_add_number(args, (uint64_t)lock->sent);
    hf_redis_add_number(args, lock->beat_ms);
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
        hf_redis_add_text(&words->args, asker->id);
        break;
    default:
        add_mine(words, command);
        if (command->kind == HF_COMMAND_RENEW)
            hf_redis_add_number(&words->args, command->lease_ms);
        break;
    }
    if (asker->announce && command->kind != HF_COMMAND_RENEW)
        add_key(words, link, 4, asker->announce, command->key);
}

void hf_redis_read(struct hf_redis_words *words,
                   const struct hf_redis_link *link, struct hf_key key)
{
    call_on_key(words, link, HF_REDIS_READ, key);
}

void hf_redis_beat(struct hf_redis_words *words,
                   const struct hf_redis_link *link,
                   const struct hf_redis_asker *asker, hf_time sent,
                   uint32_t beat_ms)
{
    call_script(words, link, HF_REDIS_BEAT, 1);
    hf_redis_add_text(&words->args, asker->channel);
    hf_redis_add_number(&words->args, (uint64_t)sent);
    hf_redis_add_number(&words->args, beat_ms);
}

/* ---- Calls of any length ------------------------------------------------*/

static void say_text(struct hf_buf *out, const char *text)
{
    hf_redis_say(out, text, strlen(text));
}

static void say_script(struct hf_buf *out, const struct hf_redis_link *link,
                       enum hf_redis_script script, size_t keys, size_t words)
{
    char digits[HF_REDIS_DIGITS_MAX];

    hf_redis_say_size(out, '*', 3 + keys + words);
    say_text(out, "EVALSHA");
    hf_redis_say(out, link->shas[script], HF_REDIS_SHA_SIZE);
    hf_redis_say(out, digits, hf_redis_write_digits(digits, keys));
}

void hf_redis_look(struct hf_buf *out, const struct hf_redis_link *link,
                   size_t count)
{
    static const enum hf_redis_shared keys[] = {
        HF_REDIS_KEY_WATCHED, HF_REDIS_KEY_PREFIXES, HF_REDIS_KEY_UNTIL,
        HF_REDIS_KEY_EVENTS,  HF_REDIS_KEY_HELD,     HF_REDIS_KEY_ENDS};

    say_script(out, link, HF_REDIS_WATCH, sizeof(keys) / sizeof(keys[0]),
               count);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        say_text(out, shared_key(link, keys[i]));
}

static void say_keys(struct hf_buf *out, const struct hf_redis_link *link,
                     const char *infix,
                     const struct hf_command *const *commands, unsigned count)
{
    char name[HF_REDIS_KEY_SIZE];

    for (unsigned i = 0; i < count; i++)
        hf_redis_say(out, name,
                     hf_redis_keyspace_name(&link->address->space, infix,
                                            commands[i]->key, name));
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
    say_script(out, link, HF_REDIS_SEVERAL, (size_t)2 * count + 3,
               (size_t)3 * count);
    say_keys(out, link, "", commands, count);
    say_keys(out, link, "hf:q:", commands, count);
    say_text(out, shared_key(link, HF_REDIS_KEY_TOKEN));
    say_text(out, shared_key(link, HF_REDIS_KEY_WATCHED));
    say_text(out, shared_key(link, HF_REDIS_KEY_PREFIXES));
    for (unsigned i = 0; i < count; i++)
        say_step(out, asker, commands[i]);
}
