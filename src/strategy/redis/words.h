/* words.h - lock commands as calls of scripts.
 *
 * What both redis: and redlock: say to a server. */
#ifndef HF_STRATEGY_REDIS_WORDS_H
#define HF_STRATEGY_REDIS_WORDS_H

#include "strategy/redis/link.h"

#define HF_REDIS_ID_SIZE 16 /* hex digits of a client's name for itself */
#define HF_REDIS_NONCE_SIZE ((size_t)2 * HF_NONCE_SIZE) /* in hex digits */
#define HF_REDIS_TOKEN_MIN 1000000000000000ll /* less: the counter was lost */

/* Of a record, up to its value. */
#define HF_REDIS_HEAD_MAX (HF_REDIS_NONCE_SIZE + (size_t)2 * HF_NOTE_MAX + 180)
#define HF_REDIS_CHANNEL_SIZE                                                  \
    (HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX + HF_REDIS_ID_SIZE)

/* Who asks. */
struct hf_redis_asker {
    const char *owner;
    char id[HF_REDIS_ID_SIZE + 1];
    char channel[HF_REDIS_CHANNEL_SIZE]; /* where it listens for grants; and
                                            the key of its signs of life */
    const char *announce; /* with the key: a channel for what it gives back;
                             NULL: none */
};

/* HF_ESYSTEM: there is no randomness to make an id of. */
enum hf_err hf_redis_asker_init(struct hf_redis_asker *asker,
                                struct hf_host *host,
                                const struct hf_redis_keyspace *space);

/* A call of a script, with room for what it is made of. The bytes of the
 * request are borrowed. */
struct hf_redis_words {
    struct hf_redis_args args;
    char keys[5][HF_REDIS_KEY_SIZE];
    char nonce[HF_REDIS_NONCE_SIZE + 1];
    char text[HF_REDIS_HEAD_MAX];
};

/* Options of a LOCK. */
struct hf_redis_lock {
    bool in_full;     /* by lock.lua; else by take.lua */
    bool queue;       /* wait for it */
    bool waiting;     /* it waits already: the server knows the rest */
    uint32_t beat_ms; /* how often this client shows that it lives */
    hf_time sent;     /* comes back in the message of a grant */
    uint64_t token;   /* to be granted with; 0: the server's next */
};

/* A user's key may not begin as those of holdfast do. */
bool hf_redis_key_is_ours(struct hf_key key);

/* A COMMAND. `lock` is for LOCK alone, and may be NULL elsewhere. */
void hf_redis_command(struct hf_redis_words *words,
                      const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *command,
                      const struct hf_redis_lock *lock);

/* Append several COMMANDs as one call: LOCKs that are asked for quickly, and
 * UNLOCKs. `out->failed`: there was no memory. */
void hf_redis_several(struct hf_buf *out, const struct hf_redis_link *link,
                      const struct hf_redis_asker *asker,
                      const struct hf_command *const *commands, unsigned count);

void hf_redis_read(struct hf_redis_words *words,
                   const struct hf_redis_link *link, struct hf_key key);

/* A sign of life, of a client whose next one comes in `beat_ms`. */
void hf_redis_beat(struct hf_redis_words *words,
                   const struct hf_redis_link *link,
                   const struct hf_redis_asker *asker, hf_time sent,
                   uint32_t beat_ms);

/* Append a call of watch.lua; `count` patterns are to follow, by
 * hf_redis_say(). */
void hf_redis_look(struct hf_buf *out, const struct hf_redis_link *link,
                   size_t count);

/* How often a client that waits for such a lease shows that it lives. */
uint32_t hf_redis_beat_ms(uint32_t lease_ms);

#endif
