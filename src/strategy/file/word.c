#include "strategy/file/word.h"

#include <endian.h>

#include "base/crash_point.h"
#include "strategy/file/arena.h"

#define SPINS 200 /* attempts before sleeping; they take microseconds */
#define RETRIES 8 /* lost races with other clients before BUSY */

/* The word, from the lowest bit: 11 bits for the owner's slot plus one, the low
 * 20 bits of the tag, one bit that is set while clients sleep, and the high 32
 * bits of the tag. */
#define OWNER UINT64_C(0x7ff)
#define TAG_SHIFT 11
#define TAG_LOW UINT64_C(0xfffff)
#define TAG_LOW_BITS 20
#define SLEEPERS UINT64_C(0x80000000)
#define TAG_HIGH_SHIFT 32

_Static_assert(HF_ARENA_SLOTS < OWNER, "a slot fits into the word");

static uint64_t make_word(unsigned slot, uint64_t tag)
{
    return (tag >> TAG_LOW_BITS) << TAG_HIGH_SHIFT |
           (tag & TAG_LOW) << TAG_SHIFT | (slot + 1);
}

unsigned hf_word_owner(uint64_t word)
{
    return (unsigned)(word & OWNER) - 1;
}

_Atomic uint32_t *hf_word_futex(_Atomic uint64_t *word)
{
    return (_Atomic uint32_t *)(void *)word +
           (__BYTE_ORDER == __BIG_ENDIAN ? 1 : 0);
}

uint32_t hf_word_futex_value(uint64_t word)
{
    return (uint32_t)(word | SLEEPERS);
}

/* The tag is stored before it is used. A client that dies in between wastes
 * that tag, and the next client of the slot does not use it again. */
void hf_word_start(struct hf_word_attempt *attempt, unsigned slot,
                   _Atomic uint64_t *tag)
{
    uint64_t last = atomic_load(tag);

    *attempt = (struct hf_word_attempt){
        .slot = slot,
        .spins = SPINS,
        .retries = RETRIES,
        .tag = last + 1,
        .ours = make_word(slot, last + 1),
    };
    atomic_store_explicit(tag, last + 1, memory_order_release);
}

static bool swap_word(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong(word, &from, to);
}

static enum hf_word_state step_try(struct hf_word_attempt *attempt,
                                   _Atomic uint64_t *word)
{
    if (swap_word(word, 0, attempt->ours))
        return HF_WORD_OWNED;
    if (attempt->spins == 0)
        return HF_WORD_LOAD;
    attempt->spins--;
    return HF_WORD_TRY;
}

/* The owner has had the same tag since the last LOAD, usually for a whole
 * sleep. It may be slow, stopped or dead, so it has to be checked. If the word
 * names our own slot, the slot's previous client died in the critical section,
 * so no check is needed. */
static enum hf_word_state suspect_owner(const struct hf_word_attempt *attempt)
{
    unsigned owner = hf_word_owner(attempt->seen);

    if (owner >= HF_ARENA_SLOTS)
        return HF_WORD_BROKEN;
    return owner == attempt->slot ? HF_WORD_TAKE_OVER : HF_WORD_CHECK_OWNER;
}

static enum hf_word_state step_load(struct hf_word_attempt *attempt,
                                    _Atomic uint64_t *word)
{
    uint64_t before = attempt->seen;

    attempt->seen = atomic_load(word);
    if (attempt->seen == 0)
        return HF_WORD_TRY_AGAIN;
    if (before != 0 && (attempt->seen | SLEEPERS) == (before | SLEEPERS))
        return suspect_owner(attempt);
    return attempt->seen & SLEEPERS ? HF_WORD_SLEEP : HF_WORD_FLAG;
}

/* Other clients may still sleep, so set the sleepers' bit: we then wake one of
 * them when we leave. */
static enum hf_word_state step_try_again(struct hf_word_attempt *attempt,
                                         _Atomic uint64_t *word)
{
    if (swap_word(word, 0, attempt->ours | SLEEPERS))
        return HF_WORD_OWNED;
    attempt->retries--;
    return attempt->retries > 0 ? HF_WORD_LOAD : HF_WORD_BUSY;
}

/* No client can see what the dead owner did not publish, so nothing needs
 * repair. */
static enum hf_word_state step_take_over(struct hf_word_attempt *attempt,
                                         _Atomic uint64_t *word)
{
    if (!swap_word(word, attempt->seen, attempt->ours | SLEEPERS))
        return HF_WORD_BUSY; /* another client was faster */
    HF_CRASH_POINT(2);
    return HF_WORD_OWNED;
}

void hf_word_step(struct hf_word_attempt *attempt, _Atomic uint64_t *word)
{
    switch (attempt->state) {
    case HF_WORD_TRY:
        attempt->state = step_try(attempt, word);
        break;
    case HF_WORD_LOAD:
        attempt->state = step_load(attempt, word);
        break;
    case HF_WORD_FLAG:
        attempt->state =
            swap_word(word, attempt->seen, attempt->seen | SLEEPERS)
                ? HF_WORD_SLEEP
                : HF_WORD_TRY_AGAIN;
        break;
    case HF_WORD_SLEEP:
        attempt->state = HF_WORD_TRY_AGAIN;
        break;
    case HF_WORD_TRY_AGAIN:
        attempt->state = step_try_again(attempt, word);
        break;
    case HF_WORD_TAKE_OVER:
        attempt->state = step_take_over(attempt, word);
        break;
    case HF_WORD_CHECK_OWNER:
    case HF_WORD_OWNED:
    case HF_WORD_BUSY:
    case HF_WORD_BROKEN:
        break;
    }
}

void hf_word_set_owner_alive(struct hf_word_attempt *attempt, bool alive)
{
    attempt->state = alive ? HF_WORD_BUSY : HF_WORD_TAKE_OVER;
}

bool hf_word_is_ours(const struct hf_word_attempt *attempt, uint64_t word)
{
    return (word | SLEEPERS) == (attempt->ours | SLEEPERS);
}

bool hf_word_release(_Atomic uint64_t *word)
{
    return atomic_exchange(word, 0) & SLEEPERS;
}
