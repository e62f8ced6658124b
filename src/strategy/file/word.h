/* word.h - the arena lock: a mutex between processes, one 64-bit word in shared
 * memory.
 *
 * The word is 0 while no client is in the critical section. Otherwise it names
 * the owner's slot and a tag, a number that a slot never uses twice: the slot
 * keeps its last tag when one client after another uses it, and a client
 * raises the tag before using it. So a compare-and-swap against an old value
 * of the word cannot succeed by accident (ABA), however old that value is.
 *
 * An attempt to acquire the arena lock is a state machine, and each step makes
 * at most one access to shared memory: tests/file/test_word.c runs this code
 * through all interleavings of three clients that may die between any two
 * steps.
 *
 *     TRY         -> OWNED        the word was 0 and is ours now
 *                 -> LOAD         the word was not 0, SPINS times
 *     LOAD        -> TRY_AGAIN    the word is 0
 *                 -> FLAG         the owner is new
 *                 -> SLEEP        the owner is new, the sleepers' bit is set
 *                 -> CHECK_OWNER  the owner is the same as in the last LOAD
 *                 -> TAKE_OVER    the same owner, and it has our slot
 *                 -> BROKEN       the same owner, and it has no valid slot
 *     FLAG        -> SLEEP        the sleepers' bit is set
 *                 -> TRY_AGAIN    the word has changed
 *     SLEEP       -> TRY_AGAIN
 *     TRY_AGAIN   -> OWNED        the word was 0 and is ours now
 *                 -> LOAD         it was not 0
 *                 -> BUSY         it was not 0, and no retries are left
 *     CHECK_OWNER -> TAKE_OVER    the owner is dead
 *                 -> BUSY         the owner is alive
 *     TAKE_OVER   -> OWNED        the word is ours
 *                 -> BUSY         another client was faster
 *
 * OWNED, BUSY and BROKEN are final. */
#ifndef HF_STRATEGY_FILE_WORD_H
#define HF_STRATEGY_FILE_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hf_word_state {
    HF_WORD_TRY,         /* acquire the lock if the word is 0, repeatedly */
    HF_WORD_LOAD,        /* load the word */
    HF_WORD_FLAG,        /* set the sleepers' bit */
    HF_WORD_SLEEP,       /* the caller sleeps while the word is `seen` */
    HF_WORD_TRY_AGAIN,   /* acquire the lock if the word is 0, once */
    HF_WORD_CHECK_OWNER, /* the caller checks whether the owner is alive */
    HF_WORD_TAKE_OVER,   /* acquire the lock from its dead owner */
    HF_WORD_OWNED,       /* the word is ours */
    HF_WORD_BUSY,        /* another client has the lock */
    HF_WORD_BROKEN,      /* the word has a value that holdfast never writes */
};

struct hf_word_attempt {
    enum hf_word_state state;
    unsigned slot;
    unsigned spins;   /* left, in TRY */
    unsigned retries; /* left, in TRY_AGAIN */
    uint64_t tag;     /* of this attempt */
    uint64_t ours;    /* the value to write */
    uint64_t seen;    /* value of the word as of the last LOAD */
};

/* Start an attempt for `slot`. `*tag` is the slot's last tag, which this call
 * raises. */
void hf_word_start(struct hf_word_attempt *attempt, unsigned slot,
                   _Atomic uint64_t *tag);

/* Make one step. In SLEEP, call it after the sleep; in CHECK_OWNER, call
 * hf_word_set_owner_alive() instead. */
void hf_word_step(struct hf_word_attempt *attempt, _Atomic uint64_t *word);

/* Continue from CHECK_OWNER, now that the caller knows whether the owner is
 * alive. */
void hf_word_set_owner_alive(struct hf_word_attempt *attempt, bool alive);

/* Returns true if `word` is the value that this attempt has written, with or
 * without the sleepers' bit. */
bool hf_word_is_ours(const struct hf_word_attempt *attempt, uint64_t word);

/* The owner's slot in a word that is not 0. */
unsigned hf_word_owner(uint64_t word);

/* Leave the critical section. If this returns true, wake a sleeper. */
bool hf_word_release(_Atomic uint64_t *word);

/* A futex has 32 bits, so clients sleep on the half of the word that has the
 * owner, the sleepers' bit and the low bits of the tag. hf_word_futex()
 * returns that half; hf_word_futex_value() returns its value while the
 * sleepers' bit of `word` is set. */
_Atomic uint32_t *hf_word_futex(_Atomic uint64_t *word);
uint32_t hf_word_futex_value(uint64_t word);

#endif
