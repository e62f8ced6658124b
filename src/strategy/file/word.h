/* word.h - the lock word of an arena: which client is in the critical section.
 *
 * The word is 0, or the slot of the owner plus one and a turn. A slot never has
 * the same turn twice, whatever clients use it one after another: the last turn
 * is kept beside the slot, and raised before it is used. So a compare-and-swap
 * succeeds only if the word is still the very one that was looked at, however
 * long ago that was.
 *
 * An attempt to take the word is a state machine, and each step makes one
 * access to shared memory: tests/file/test_word.c runs this code through all
 * interleavings of three clients that may die between any two steps.
 *
 *     TRY -> LOOK -> MARK -> SLEEP -> TRY_AGAIN -> LOOK ...
 *              |                          |
 *              +-> ASK -> TAKE_OVER       +-> BUSY: others come and go
 *                    |        |
 *                    +-> BUSY +-> BUSY
 *
 * TRY, TRY_AGAIN and TAKE_OVER lead to INSIDE. */
#ifndef HF_STRATEGY_FILE_WORD_H
#define HF_STRATEGY_FILE_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hf_word_state {
    HF_WORD_TRY,       /* take it if it is free, again and again */
    HF_WORD_LOOK,      /* see who has it */
    HF_WORD_MARK,      /* announce that somebody sleeps */
    HF_WORD_SLEEP,     /* for the caller: sleep while the word is `seen` */
    HF_WORD_TRY_AGAIN, /* take it if it is free, once */
    HF_WORD_ASK,       /* for the caller: does the owner of `seen` live? */
    HF_WORD_TAKE_OVER, /* its owner is dead: take it from there */
    HF_WORD_INSIDE,    /* the end: the word is ours */
    HF_WORD_BUSY,      /* the end: it is not */
    HF_WORD_BROKEN,    /* the end: the word is none that we write */
};

struct hf_word_attempt {
    enum hf_word_state state;
    unsigned slot;
    unsigned spins; /* left */
    unsigned naps;  /* left */
    uint64_t turn;  /* the last one of ours */
    uint64_t ours;  /* the word, once it is taken */
    uint64_t seen;  /* the word, when it was last looked at */
};

/* Begin an attempt from `slot`, whose last turn is `*turn`. Keep the struct
 * between attempts; it starts zeroed. */
void hf_word_start(struct hf_word_attempt *attempt, unsigned slot,
                   _Atomic uint64_t *turn);

/* One step. In SLEEP: after the sleep. Not in ASK. */
void hf_word_step(struct hf_word_attempt *attempt, _Atomic uint64_t *word);

/* In ASK: whether the owner lives. */
void hf_word_answer(struct hf_word_attempt *attempt, bool alive);

/* Whether the word is the one that this attempt has taken. */
bool hf_word_is_ours(const struct hf_word_attempt *attempt, uint64_t word);

/* The slot of the owner of a word that is not 0. */
unsigned hf_word_owner(uint64_t word);

/* Give the word back. Whether somebody sleeps. */
bool hf_word_leave(_Atomic uint64_t *word);

/* The half of the word that a futex can watch. It has the sleepers' bit, which
 * changes, and enough of the turn. */
_Atomic uint32_t *hf_word_futex(_Atomic uint64_t *word);
uint32_t hf_word_futex_value(uint64_t word);

#endif
