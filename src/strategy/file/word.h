/* word.h - the arena lock: a mutex between processes, one 64-bit word in shared
 * memory.
 *
 * The word is 0 while nobody is in the critical section. Otherwise it names the
 * owner's slot and a turn, a number that a slot never uses twice: the last turn
 * is kept in the slot, whatever clients use the slot one after another, and is
 * raised before it is used. So a compare-and-swap against an old value of the
 * word cannot succeed by accident (ABA), however old that value is.
 *
 * An attempt to take the word is a state machine, and each step makes at most
 * one access to shared memory: tests/file/test_word.c runs this code through all
 * interleavings of three clients that may die between any two steps.
 *
 *     TRY        -> INSIDE     the word was 0 and is ours
 *                -> LOAD       it was not, SPINS times
 *     LOAD       -> TRY_AGAIN  it is 0
 *                -> FLAG       the owner is new
 *                -> SLEEP      the owner is new, and the sleepers' bit is set
 *                -> ASK        the owner has not changed since the last LOAD
 *                -> TAKE_OVER  likewise, and it names our own slot
 *                -> BROKEN     likewise, and it names no slot
 *     FLAG       -> SLEEP      the sleepers' bit is set
 *                -> TRY_AGAIN  the word has changed
 *     SLEEP      -> TRY_AGAIN
 *     TRY_AGAIN  -> INSIDE     the word was 0 and is ours
 *                -> LOAD       it was not
 *                -> BUSY       likewise, for the last time
 *     ASK        -> TAKE_OVER  the owner is dead
 *                -> BUSY       it is alive
 *     TAKE_OVER  -> INSIDE     the word is ours
 *                -> BUSY       another client was faster
 *
 * INSIDE, BUSY and BROKEN are final. */
#ifndef HF_STRATEGY_FILE_WORD_H
#define HF_STRATEGY_FILE_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hf_word_state {
    HF_WORD_TRY,       /* take the word if it is 0, repeatedly */
    HF_WORD_LOAD,      /* load the word */
    HF_WORD_FLAG,      /* set the sleepers' bit */
    HF_WORD_SLEEP,     /* the caller sleeps while the word is `seen` */
    HF_WORD_TRY_AGAIN, /* take the word if it is 0, once */
    HF_WORD_ASK,       /* the caller checks whether the owner is alive */
    HF_WORD_TAKE_OVER, /* take the word from its dead owner */
    HF_WORD_INSIDE,    /* the word is ours */
    HF_WORD_BUSY,      /* it is not */
    HF_WORD_BROKEN,    /* it has a value that holdfast never writes */
};

struct hf_word_attempt {
    enum hf_word_state state;
    unsigned slot;
    unsigned spins; /* left, in TRY */
    unsigned naps;  /* left, in TRY_AGAIN */
    uint64_t turn;  /* of this attempt */
    uint64_t ours;  /* the value to write */
    uint64_t seen;  /* the value as of the last LOAD */
};

/* Start an attempt for `slot`, whose last turn is `*turn`. */
void hf_word_start(struct hf_word_attempt *attempt, unsigned slot,
                   _Atomic uint64_t *turn);

/* Make one step. In SLEEP, call it after the sleep; in ASK, call
 * hf_word_set_owner_alive() instead. */
void hf_word_step(struct hf_word_attempt *attempt, _Atomic uint64_t *word);

/* In ASK: whether the owner is alive. */
void hf_word_set_owner_alive(struct hf_word_attempt *attempt, bool alive);

/* Whether the word is the one that this attempt has taken. */
bool hf_word_is_ours(const struct hf_word_attempt *attempt, uint64_t word);

/* The owner's slot in a word that is not 0. */
unsigned hf_word_owner(uint64_t word);

/* Leave the critical section. True: wake a sleeper. */
bool hf_word_release(_Atomic uint64_t *word);

/* A futex has 32 bits: the half of the word with the owner, the sleepers' bit
 * and the low bits of the turn, and the value that it has while `word` is
 * marked. */
_Atomic uint32_t *hf_word_futex(_Atomic uint64_t *word);
uint32_t hf_word_futex_value(uint64_t word);

#endif
