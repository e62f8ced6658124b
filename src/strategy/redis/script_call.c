#include "strategy/redis/script_call.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hex.h"

/* ---- Arguments ----------------------------------------------------------*/

static void start_script_call(struct hf_redis_script_call *call,
                              const struct hf_redis_connection *connection,
                              enum hf_redis_script script, uint64_t keys)
{
    call->args.count = 0;
    hf_redis_resp_add_text(&call->args, "EVALSHA");
    hf_redis_resp_add(&call->args, connection->shas[script], HF_REDIS_SHA_SIZE);
    hf_redis_resp_add_number(&call->args, keys);
}

static void add_key_arg(struct hf_redis_script_call *call,
                        const struct hf_redis_connection *connection,
                        unsigned at, const char *infix, struct hf_key key)
{
    size_t size = hf_redis_keyspace_name(&connection->address->space, infix,
                                         key, call->keys[at]);

    hf_redis_resp_add(&call->args, call->keys[at], size);
}

static const char *shared_key(const struct hf_redis_connection *connection,
                              enum hf_redis_shared which)
{
    return connection->address->space.shared[which];
}

/* Start a call with the keys that record.lua lists. FORCE and UNLOCK also get a
 * tenth key, "hf:f:KEY", which records the last FORCE. */
static void start_key_call(struct hf_redis_script_call *call,
                           const struct hf_redis_connection *connection,
                           enum hf_redis_script script, struct hf_key key)
{
    bool has_forced_key = script == HF_REDIS_FORCE || script == HF_REDIS_UNLOCK;

    start_script_call(call, connection, script, has_forced_key ? 10 : 9);
    add_key_arg(call, connection, 0, "", key);
    add_key_arg(call, connection, 1, "hf:q:", key);
    add_key_arg(call, connection, 2, "hf:w:", key);
    for (enum hf_redis_shared i = HF_REDIS_KEY_TOKEN; i <= HF_REDIS_KEY_ENDS;
         i++)
        hf_redis_resp_add_text(&call->args, shared_key(connection, i));
    if (has_forced_key)
        add_key_arg(call, connection, 3, "hf:f:", key);
}

static void add_bytes_arg(struct hf_redis_script_call *call,
                          struct hf_bytes bytes)
{
    hf_redis_resp_add(&call->args, bytes.data, bytes.size);
}

static void add_token_arg(struct hf_redis_script_call *call, uint64_t token)
{
    if (token > 0)
        hf_redis_resp_add_number(&call->args, token);
}

static char *put_bytes(char *to, const void *bytes, size_t size)
{
    hf_copy(to, bytes, size);
    return to + size;
}

static char *put_chars(char *to, const char *text)
{
    return put_bytes(to, text, strlen(text));
}

static char *put_number(char *to, uint64_t number)
{
    return to + hf_redis_resp_write_digits(to, number);
}

static char *put_nonce(char *to, const struct hf_command *command)
{
    hf_hex_encode(to, command->nonce.bytes, sizeof(command->nonce.bytes));
    return to + HF_REDIS_NONCE_SIZE;
}

/* Write the last `width` digits of a number, with leading zeros. */
static char *put_padded(char *to, uint64_t number, unsigned width)
{
    for (unsigned i = width; i-- > 0; number /= 10)
        to[i] = (char)('0' + number % 10);
    return to + width;
}

/* Write the part of the record between the token and the value: " NONCE 0 HELD
 * LEASE OWNER_SIZE NOTE_SIZE -\n", owner, note. The client composes it to save
 * the server's time. */
static char *put_record_head(char *to, const struct hf_redis_identity *identity,
                             const struct hf_command *command)
{
    size_t owner_size = strlen(identity->owner);

    to = put_nonce(put_chars(to, " "), command);
    to = put_padded(put_chars(to, " 0 "), 0, 15);
    to = put_padded(put_chars(to, " "), command->lease_ms, 10);
    to = put_chars(to, " ");
    to = put_number(to, owner_size);
    to = put_chars(to, " ");
    to = put_number(to, command->note.size);
    to = put_chars(to, " -\n");
    to = put_bytes(to, identity->owner, owner_size);
    return put_bytes(to, command->note.data, command->note.size);
}

/* Write the first bytes of the holder's record, "hf1 TOKEN NONCE ", by which a
 * script recognizes the holder. */
static char *put_holder_prefix(char *to, const struct hf_command *command)
{
    to = put_number(put_chars(to, "hf1 "), command->token);
    return put_chars(put_nonce(put_chars(to, " "), command), " ");
}

/* Add the part of `call->text` before `end` as an argument. */
static void add_text_arg(struct hf_redis_script_call *call, const char *end)
{
    hf_redis_resp_add(&call->args, call->text, (size_t)(end - call->text));
}

static void call_lock_fast(struct hf_redis_script_call *call,
                           const struct hf_redis_connection *connection,
                           const struct hf_redis_identity *identity,
                           const struct hf_command *command, uint64_t token)
{
    start_script_call(call, connection, HF_REDIS_LOCK_FAST, 5);
    add_key_arg(call, connection, 0, "", command->key);
    add_key_arg(call, connection, 1, "hf:q:", command->key);
    hf_redis_resp_add_text(&call->args,
                           shared_key(connection, HF_REDIS_KEY_TOKEN));
    hf_redis_resp_add_text(&call->args,
                           shared_key(connection, HF_REDIS_KEY_WATCHED));
    hf_redis_resp_add_text(&call->args,
                           shared_key(connection, HF_REDIS_KEY_PREFIXES));
    add_text_arg(call, put_record_head(call->text, identity, command));
    hf_redis_resp_add_number(&call->args, command->lease_ms);
    add_bytes_arg(call, command->value);
    add_token_arg(call, token);
}

/* The third argument of lock.lua: "0" asks once, "1" joins the queue, "2" means
 * that the claim is in the queue already. */
static const char *lock_mode(const struct hf_redis_lock_opts *lock)
{
    if (!lock->queue)
        return "0";
    return lock->waiting ? "2" : "1";
}

static void call_lock(struct hf_redis_script_call *call,
                      const struct hf_redis_connection *connection,
                      const struct hf_redis_identity *identity,
                      const struct hf_command *command,
                      const struct hf_redis_lock_opts *lock)
{
    struct hf_redis_resp_args *args = &call->args;
    const struct hf_bytes none = {"", 0};

    start_key_call(call, connection, HF_REDIS_LOCK, command->key);
    hf_redis_resp_add_text(args, call->nonce);
    hf_redis_resp_add_number(args, command->lease_ms);
    hf_redis_resp_add_text(args, lock_mode(lock));
    hf_redis_resp_add_text(args, lock->waiting ? "" : identity->owner);
    add_bytes_arg(call, lock->waiting ? none : command->note);
    add_bytes_arg(call, lock->waiting ? none : command->value);
    hf_redis_resp_add_text(args, identity->id);
    hf_redis_resp_add_number(args, (uint64_t)lock->sent);
    hf_redis_resp_add_number(args, lock->heartbeat_ms);
    add_token_arg(call, lock->token);
}

static void add_holder_prefix(struct hf_redis_script_call *call,
                              const struct hf_command *command)
{
    add_text_arg(call, put_holder_prefix(call->text, command));
}

static void add_update_args(struct hf_redis_script_call *call,
                            const struct hf_redis_identity *identity,
                            const struct hf_command *command)
{
    struct hf_redis_resp_args *args = &call->args;

    add_holder_prefix(call, command);
    add_bytes_arg(call, command->value);
    hf_redis_resp_add_text(args, command->has_expected ? "1" : "0");
    add_bytes_arg(call, command->expected);
    hf_redis_resp_add_text(args, identity->id);
    hf_redis_resp_add_number(args, command->sequence);
    hf_redis_resp_add_number(args, command->done);
}

static void add_force_args(struct hf_redis_script_call *call,
                           const struct hf_redis_identity *identity,
                           const struct hf_command *command)
{
    char *to = put_chars(call->text, identity->id);

    to = put_chars(to, ".");
    hf_redis_resp_add_number(&call->args, command->token);
    hf_redis_resp_add_text(&call->args, command->now ? "1" : "0");
    add_text_arg(call, put_number(to, command->sequence));
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

void hf_redis_script_call_command(struct hf_redis_script_call *call,
                                  const struct hf_redis_connection *connection,
                                  const struct hf_redis_identity *identity,
                                  const struct hf_command *command,
                                  const struct hf_redis_lock_opts *lock)
{
    hf_hex_encode(call->nonce, command->nonce.bytes,
                  sizeof(command->nonce.bytes));
    if (command->kind == HF_COMMAND_LOCK && lock->slow_path) {
        call_lock(call, connection, identity, command, lock);
        return;
    }
    if (command->kind == HF_COMMAND_LOCK) {
        call_lock_fast(call, connection, identity, command, lock->token);
        return;
    }
    start_key_call(call, connection, script_of(command->kind), command->key);
    switch (command->kind) {
    case HF_COMMAND_UPDATE:
        add_update_args(call, identity, command);
        break;
    case HF_COMMAND_FORCE:
        add_force_args(call, identity, command);
        break;
    case HF_COMMAND_CANCEL:
        hf_redis_resp_add_text(&call->args, call->nonce);
        hf_redis_resp_add_text(&call->args, identity->id);
        break;
    default:
        add_holder_prefix(call, command);
        if (command->kind == HF_COMMAND_RENEW)
            hf_redis_resp_add_number(&call->args, command->lease_ms);
        break;
    }
    if (identity->announce && command->kind != HF_COMMAND_RENEW)
        add_key_arg(call, connection, 4, identity->announce, command->key);
}

void hf_redis_script_call_read(struct hf_redis_script_call *call,
                               const struct hf_redis_connection *connection,
                               struct hf_key key)
{
    start_key_call(call, connection, HF_REDIS_READ, key);
}

void hf_redis_script_call_heartbeat(
    struct hf_redis_script_call *call,
    const struct hf_redis_connection *connection,
    const struct hf_redis_identity *identity, hf_time sent,
    uint32_t heartbeat_ms)
{
    start_script_call(call, connection, HF_REDIS_HEARTBEAT, 1);
    hf_redis_resp_add_text(&call->args, identity->channel);
    hf_redis_resp_add_number(&call->args, (uint64_t)sent);
    hf_redis_resp_add_number(&call->args, heartbeat_ms);
}

/* ---- Calls with any number of arguments ---------------------------------*/

static void write_text(struct hf_buf *out, const char *text)
{
    hf_redis_resp_write_bulk(out, text, strlen(text));
}

static void write_script(struct hf_buf *out,
                         const struct hf_redis_connection *connection,
                         enum hf_redis_script script, size_t keys,
                         size_t arg_count)
{
    char digits[HF_REDIS_DIGITS_MAX];

    hf_redis_resp_write_header(out, '*', 3 + keys + arg_count);
    write_text(out, "EVALSHA");
    hf_redis_resp_write_bulk(out, connection->shas[script], HF_REDIS_SHA_SIZE);
    hf_redis_resp_write_bulk(out, digits,
                             hf_redis_resp_write_digits(digits, keys));
}

void hf_redis_script_call_watch(struct hf_buf *out,
                                const struct hf_redis_connection *connection,
                                size_t count)
{
    static const enum hf_redis_shared keys[] = {
        HF_REDIS_KEY_WATCHED, HF_REDIS_KEY_PREFIXES, HF_REDIS_KEY_UNTIL,
        HF_REDIS_KEY_EVENTS,  HF_REDIS_KEY_HELD,     HF_REDIS_KEY_ENDS};

    write_script(out, connection, HF_REDIS_WATCH,
                 sizeof(keys) / sizeof(keys[0]), count);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        write_text(out, shared_key(connection, keys[i]));
}

static void write_keys(struct hf_buf *out,
                       const struct hf_redis_connection *connection,
                       const char *infix,
                       const struct hf_command *const *commands, unsigned count)
{
    char name[HF_REDIS_KEY_SIZE];

    for (unsigned i = 0; i < count; i++)
        hf_redis_resp_write_bulk(
            out, name,
            hf_redis_keyspace_name(&connection->address->space, infix,
                                   commands[i]->key, name));
}

/* Append the three arguments of batch.lua for one command. */
static void write_batch_command(struct hf_buf *out,
                                const struct hf_redis_identity *identity,
                                const struct hf_command *command)
{
    bool is_lock = command->kind == HF_COMMAND_LOCK;
    char text[HF_REDIS_HEAD_MAX], lease[HF_REDIS_DIGITS_MAX];
    const char *end = is_lock ? put_record_head(text, identity, command)
                              : put_holder_prefix(text, command);

    hf_redis_resp_write_bulk(out, text, (size_t)(end - text));
    hf_redis_resp_write_bulk(
        out, lease,
        is_lock ? hf_redis_resp_write_digits(lease, command->lease_ms) : 0);
    hf_redis_resp_write_bulk(out, command->value.data,
                             is_lock ? command->value.size : 0);
}

void hf_redis_script_call_batch(struct hf_buf *out,
                                const struct hf_redis_connection *connection,
                                const struct hf_redis_identity *identity,
                                const struct hf_command *const *commands,
                                unsigned count)
{
    write_script(out, connection, HF_REDIS_BATCH, (size_t)2 * count + 3,
                 (size_t)3 * count);
    write_keys(out, connection, "", commands, count);
    write_keys(out, connection, "hf:q:", commands, count);
    write_text(out, shared_key(connection, HF_REDIS_KEY_TOKEN));
    write_text(out, shared_key(connection, HF_REDIS_KEY_WATCHED));
    write_text(out, shared_key(connection, HF_REDIS_KEY_PREFIXES));
    for (unsigned i = 0; i < count; i++)
        write_batch_command(out, identity, commands[i]);
}
