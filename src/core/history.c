#include "core/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

/* Records are aligned and contiguous. If a record does not fit before the end
 * of the ring, a filler takes up the rest, and the record goes to the start. */
struct record {
    uint32_t size; /* size of the whole record in bytes */
    uint16_t kind; /* 0: a filler */
    uint16_t key_size;
    uint64_t index;
    uint64_t token;
    uint8_t owner_size;
    bool freed;
    char bytes[]; /* the owner, a NUL and the key */
};

_Static_assert(HF_FITS(HF_HISTORY_MAX, uint32_t), "record.size is too small");
_Static_assert(HF_FITS(HF_EVENT_ANY, uint16_t), "record.kind is too small");
_Static_assert(HF_FITS(HF_KEY_MAX, uint16_t), "record.key_size is too small");
_Static_assert(HF_FITS(HF_NOTE_MAX, uint8_t), "record.owner_size is too small");

#define BLOCK HF_HISTORY_MIN /* see struct hf_history_mark */
#define ALIGNMENT _Alignof(struct record)
#define ROUND(size) (((size) + ALIGNMENT - 1) & ~(ALIGNMENT - 1))

static struct record *record_at(const struct hf_history *history,
                                uint64_t offset)
{
    return (struct record *)(void *)(history->bytes +
                                     (offset & (history->size - 1)));
}

_Static_assert(ROUND(sizeof(struct record) + HF_NOTE_MAX + 1 + HF_KEY_MAX) <=
                   HF_HISTORY_MIN,
               "every record fits into the smallest ring");

enum hf_err hf_history_init(struct hf_history *history, size_t size,
                            uint64_t index)
{
    size_t blocks;

    HF_ASSERT(size <= HF_HISTORY_MAX);
    *history = (struct hf_history){
        .size = HF_HISTORY_MIN,
        .first = index,
        .next = index,
    };
    while (history->size < size)
        history->size *= 2;
    blocks = history->size / BLOCK;
    history->bytes = malloc(history->size + blocks * sizeof(*history->marks));
    if (!history->bytes)
        return HF_ENOMEM;
    history->marks = (void *)(history->bytes + history->size);
    for (size_t i = 0; i < blocks; i++)
        history->marks[i] = (struct hf_history_mark){.offset = UINT64_MAX};
    return HF_OK;
}

void hf_history_fini(struct hf_history *history)
{
    free(history->bytes);
    *history = (struct hf_history){0};
}

void hf_history_restart(struct hf_history *history, uint64_t index)
{
    history->oldest = history->newest;
    history->first = index;
    history->next = index;
}

static void drop_oldest(struct hf_history *history)
{
    const struct record *record = record_at(history, history->oldest);

    history->oldest += record->size;
    if (record->kind != 0)
        history->first++;
}

static struct hf_history_mark *mark_of(const struct hf_history *history,
                                       uint64_t block)
{
    return &history->marks[block & (history->size / BLOCK - 1)];
}

static void mark_newest(struct hf_history *history)
{
    uint64_t block = history->newest / BLOCK;
    struct hf_history_mark *mark = mark_of(history, block);

    if (mark->offset / BLOCK != block)
        *mark = (struct hf_history_mark){history->newest, history->next};
}

static struct record *add_record(struct hf_history *history, size_t size)
{
    struct record *record;

    while (history->newest + size - history->oldest > history->size)
        drop_oldest(history);
    mark_newest(history);
    record = record_at(history, history->newest);
    record->size = (uint32_t)size;
    record->kind = 0;
    history->newest += size;
    return record;
}

void hf_history_add(struct hf_history *history, const struct hf_event *event)
{
    size_t owner_size = strlen(event->owner);
    size_t size =
        ROUND(sizeof(struct record) + owner_size + 1 + event->key.size);
    size_t room = history->size - (history->newest & (history->size - 1));
    struct record *record;

    HF_ASSERT(event->index == history->next);
    if (room < size)
        (void)add_record(history, room);
    record = add_record(history, size);
    record->kind = (uint16_t)event->kind;
    record->key_size = (uint16_t)event->key.size;
    record->index = event->index;
    record->token = event->token;
    record->owner_size = (uint8_t)owner_size;
    record->freed = event->freed;
    hf_copy(record->bytes, event->owner, owner_size + 1);
    hf_copy(record->bytes + owner_size + 1, event->key.data, event->key.size);
    history->next++;
}

/* Returns true if a record starts in `block`, and the first one is not after
 * that of `index`. `block` is after the block of the oldest record. No record
 * is longer than a block, so one starts in every block, except perhaps in the
 * last one, where the newest record ends. */
static bool starts_before(const struct hf_history *history, uint64_t block,
                          uint64_t index)
{
    const struct hf_history_mark *mark = mark_of(history, block);

    return mark->offset / BLOCK == block && mark->index <= index;
}

/* Returns the offset of a record that starts less than two blocks before that
 * of `index`. */
static uint64_t find_start(const struct hf_history *history, uint64_t index)
{
    uint64_t low = history->oldest / BLOCK;
    uint64_t high = history->newest / BLOCK + 1;
    uint64_t start = history->oldest;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (starts_before(history, middle, index)) {
            low = middle;
            start = mark_of(history, middle)->offset;
        } else {
            high = middle;
        }
    }
    return start;
}

struct hf_history_cursor hf_history_seek(const struct hf_history *history,
                                         uint64_t index)
{
    struct hf_history_cursor cursor = {find_start(history, index), index};

    while (cursor.offset < history->newest) {
        const struct record *record = record_at(history, cursor.offset);

        if (record->kind != 0 && record->index >= index)
            break;
        cursor.offset += record->size;
    }
    return cursor;
}

bool hf_history_read(const struct hf_history *history,
                     struct hf_history_cursor *cursor, struct hf_event *event)
{
    const struct record *record;

    if (cursor->index < history->first) {
        *cursor = (struct hf_history_cursor){history->oldest, history->first};
        *event = (struct hf_event){
            .kind = HF_EVENT_DROPPED, .index = history->first, .owner = ""};
        return true;
    }
    if (cursor->offset < history->oldest)
        cursor->offset = history->oldest; /* only a filler was dropped */
    do {
        if (cursor->offset >= history->newest)
            return false;
        record = record_at(history, cursor->offset);
        cursor->offset += record->size;
    } while (record->kind == 0 || record->index < cursor->index);
    cursor->index = record->index + 1;
    *event = (struct hf_event){
        .kind = record->kind,
        .index = record->index,
        .key = {record->bytes + record->owner_size + 1, record->key_size},
        .token = record->token,
        .owner = record->bytes,
        .freed = record->freed,
    };
    return true;
}
