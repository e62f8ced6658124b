#include "strategy/mongo/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hex.h"
#include "base/limits.h"

/* The script of each command, and whether it inserts a missing document. An
 * UNLOCK or CANCEL in doubt inserts one, too, to record its nonce. */
static const struct {
    enum hf_mongo_script script;
    bool upsert;
} scripts[HF_COMMAND_KINDS] = {
    [HF_COMMAND_LOCK] = {HF_MONGO_LOCK, true},
    [HF_COMMAND_UNLOCK] = {HF_MONGO_UNLOCK, false},
    [HF_COMMAND_RENEW] = {HF_MONGO_RENEW, false},
    [HF_COMMAND_UPDATE] = {HF_MONGO_UPDATE, false},
    [HF_COMMAND_CANCEL] = {HF_MONGO_CANCEL, false},
    [HF_COMMAND_FORCE] = {HF_MONGO_FORCE, false},
};

_Static_assert(HF_FITS(HF_VALUE_MAX, uint32_t), "any value's size");

static void add_binary(bson_t *variables, const char *name,
                       struct hf_bytes bytes)
{
    BSON_APPEND_BINARY(variables, name, BSON_SUBTYPE_BINARY,
                       bytes.size > 0 ? bytes.data : (const uint8_t *)"",
                       (uint32_t)bytes.size);
}

static void add_escaped(bson_t *variables, const char *name,
                        struct hf_bytes bytes)
{
    char text[HF_MONGO_ESCAPED_SIZE(HF_NOTE_MAX)];

    HF_ASSERT(bytes.size <= HF_NOTE_MAX);
    (void)hf_mongo_escape(text, bytes.data, bytes.size);
    BSON_APPEND_UTF8(variables, name, text);
}

static void add_lock_variables(bson_t *variables,
                               const struct hf_mongo_identity *identity,
                               const struct hf_command *command)
{
    BSON_APPEND_UTF8(variables, "owner", identity->owner);
    BSON_APPEND_BOOL(variables, "may_queue", command->queue);
    BSON_APPEND_INT64(variables, "lease", command->lease_ms);
    add_escaped(variables, "note", command->note);
    add_binary(variables, "value", command->value);
}

static void add_update_variables(bson_t *variables,
                                 const struct hf_command *command)
{
    BSON_APPEND_INT64(variables, "update", (int64_t)command->sequence);
    BSON_APPEND_BOOL(variables, "compare", command->has_expected);
    add_binary(variables, "expected", command->expected);
    add_binary(variables, "value", command->value);
}

static void add_command_variables(bson_t *variables,
                                  const struct hf_mongo_identity *identity,
                                  const struct hf_command *command,
                                  bool in_doubt)
{
    BSON_APPEND_INT64(variables, "token", (int64_t)command->token);
    switch (command->kind) {
    case HF_COMMAND_LOCK:
        add_lock_variables(variables, identity, command);
        break;
    case HF_COMMAND_RENEW:
        BSON_APPEND_INT64(variables, "lease", command->lease_ms);
        add_binary(variables, "value", command->value);
        break;
    case HF_COMMAND_UPDATE:
        add_update_variables(variables, command);
        break;
    case HF_COMMAND_FORCE:
        BSON_APPEND_BOOL(variables, "at_once", command->now);
        break;
    default:
        BSON_APPEND_BOOL(variables, "in_doubt", in_doubt);
        break;
    }
}

static enum hf_err init_op(struct hf_mongo_op *op,
                           struct hf_mongo_identity *identity,
                           struct hf_key key, const char *nonce,
                           uint64_t sequence)
{
    /* The name of the request, which is the same in all its copies. */
    char call[HF_MONGO_COMMAND_SIZE + 1];

    op->key = hf_mongo_escape_new(key.data, key.size);
    if (!op->key)
        return HF_ENOMEM;
    hf_mongo_identity_name_command(identity, op->command);
    bson_init(&op->variables);
    BSON_APPEND_UTF8(&op->variables, "command", op->command);
    (void)snprintf(call, sizeof(call), "%s-%llx", identity->client,
                   (unsigned long long)sequence);
    BSON_APPEND_UTF8(&op->variables, "call", call);
    BSON_APPEND_UTF8(&op->variables, "client", identity->client);
    BSON_APPEND_UTF8(&op->variables, "nonce", nonce);
    return HF_OK;
}

/* The fast path costs the server half as much as the slow path. But if the fast
 * path fails, the LOCK needs a second round trip, so after contention a client
 * skips the fast path for a while. */
static bool can_use_fast_path(struct hf_mongo_identity *identity,
                              const struct hf_command *command, bool in_doubt)
{
    /* An earlier copy of the LOCK may have been executed, and an UNLOCK has to
     * record the nonce in `canceled`; only the slow path handles that. */
    if (in_doubt)
        return false;
    if (command->kind == HF_COMMAND_UNLOCK)
        return true;
    return command->kind == HF_COMMAND_LOCK &&
           hf_mongo_identity_try_fast_path(identity);
}

enum hf_err hf_mongo_op_init(struct hf_mongo_op *op,
                             struct hf_mongo_identity *identity,
                             const struct hf_command *command, bool in_doubt,
                             bool waits)
{
    bool is_lock = command->kind == HF_COMMAND_LOCK;
    char nonce[HF_MONGO_NONCE_SIZE + 1];
    enum hf_err err;

    hf_hex_encode(nonce, command->nonce.bytes, sizeof(command->nonce.bytes));
    op->script = scripts[command->kind].script;
    op->upsert = scripts[command->kind].upsert ||
                 (in_doubt && (command->kind == HF_COMMAND_CANCEL ||
                               command->kind == HF_COMMAND_UNLOCK));
    op->may_queue = is_lock && command->queue;
    op->waits = is_lock && waits;
    op->fast_path =
        !op->waits && can_use_fast_path(identity, command, in_doubt);
    err = init_op(op, identity, command->key, nonce, command->sequence);
    if (!err)
        add_command_variables(&op->variables, identity, command, in_doubt);
    return err;
}

enum hf_err hf_mongo_op_init_expire(struct hf_mongo_op *op,
                                    struct hf_mongo_identity *identity,
                                    struct hf_key key)
{
    op->script = HF_MONGO_EXPIRE;
    op->upsert = false;
    return init_op(op, identity, key, "", 0);
}

enum hf_err hf_mongo_op_init_sweep(struct hf_mongo_op *op,
                                   struct hf_mongo_identity *identity)
{
    return hf_mongo_op_init_expire(op, identity, hf_key_of(""));
}

bool hf_mongo_op_nonce(const struct hf_mongo_op *op, struct hf_nonce *nonce)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, &op->variables, "nonce") &&
           hf_hex_decode(nonce->bytes, sizeof(nonce->bytes),
                         bson_iter_utf8(&iter, NULL));
}

void hf_mongo_op_fini(struct hf_mongo_op *op)
{
    if (!op->key)
        return;
    free(op->key);
    bson_destroy(&op->variables);
    op->key = NULL;
}
