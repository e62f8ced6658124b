/* commands.h - functions that build commands.
 *
 * A nonce is passed as a number. The caller sets `sequence` and `done` of each
 * command except OPEN, CLOSE and EXPIRE. */
#ifndef HF_TESTS_LIB_COMMANDS_H
#define HF_TESTS_LIB_COMMANDS_H

#include "core/command.h"

static inline struct hf_nonce hf_test_nonce(unsigned number)
{
    struct hf_nonce nonce = {{0}};

    memcpy(nonce.bytes, &number, sizeof(number));
    return nonce;
}

/* Each call uses a new secret, so that the command opens a new session. */
static inline struct hf_command hf_test_open(const char *label)
{
    static unsigned secrets;

    return (struct hf_command){
        .kind = HF_COMMAND_OPEN,
        .nonce = hf_test_nonce(++secrets),
        .note = hf_bytes_of(label),
    };
}

/* A CLOSE is refused if the session has sent a command with a higher sequence,
 * so use the highest possible one. */
static inline struct hf_command hf_test_close(uint64_t session)
{
    return (struct hf_command){
        .kind = HF_COMMAND_CLOSE,
        .session = session,
        .sequence = UINT64_MAX,
    };
}

static inline struct hf_command hf_test_lock(uint64_t session, const char *key,
                                             unsigned nonce)
{
    return (struct hf_command){
        .kind = HF_COMMAND_LOCK,
        .session = session,
        .key = hf_key_of(key),
        .nonce = hf_test_nonce(nonce),
        .lease_ms = 1000,
        .queue = true,
    };
}

static inline struct hf_command hf_test_unlock(uint64_t session,
                                               const char *key, unsigned nonce,
                                               uint64_t token)
{
    return (struct hf_command){
        .kind = HF_COMMAND_UNLOCK,
        .session = session,
        .key = hf_key_of(key),
        .nonce = hf_test_nonce(nonce),
        .token = token,
    };
}

static inline struct hf_command hf_test_renew(uint64_t session, const char *key,
                                              unsigned nonce, uint64_t token,
                                              uint32_t lease_ms)
{
    return (struct hf_command){
        .kind = HF_COMMAND_RENEW,
        .session = session,
        .key = hf_key_of(key),
        .nonce = hf_test_nonce(nonce),
        .token = token,
        .lease_ms = lease_ms,
    };
}

static inline struct hf_command hf_test_update(uint64_t session,
                                               const char *key, unsigned nonce,
                                               uint64_t token,
                                               const char *value)
{
    return (struct hf_command){
        .kind = HF_COMMAND_UPDATE,
        .session = session,
        .key = hf_key_of(key),
        .nonce = hf_test_nonce(nonce),
        .token = token,
        .value = hf_bytes_of(value),
    };
}

static inline struct hf_command hf_test_expire(const char *key, uint64_t token,
                                               uint32_t generation)
{
    return (struct hf_command){
        .kind = HF_COMMAND_EXPIRE,
        .key = hf_key_of(key),
        .token = token,
        .generation = generation,
    };
}

static inline struct hf_command hf_test_cancel(uint64_t session,
                                               const char *key, unsigned nonce)
{
    return (struct hf_command){
        .kind = HF_COMMAND_CANCEL,
        .session = session,
        .key = hf_key_of(key),
        .nonce = hf_test_nonce(nonce),
    };
}

static inline struct hf_command hf_test_force(uint64_t session, const char *key,
                                              uint64_t token, bool now)
{
    return (struct hf_command){
        .kind = HF_COMMAND_FORCE,
        .session = session,
        .key = hf_key_of(key),
        .token = token,
        .now = now,
    };
}

#endif
