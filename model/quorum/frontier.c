#include "frontier.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_SIZE = 1 << 20,
};

struct hf_frontier_block {
    struct hf_frontier_block *next;
    size_t begin; /* of the first state that was not taken */
    size_t end;
    char bytes[BLOCK_SIZE];
};

void hf_frontier_init(struct hf_frontier *frontier)
{
    memset(frontier, 0, sizeof *frontier);
}

static void drop_first_block(struct hf_frontier *frontier)
{
    struct hf_frontier_block *block = frontier->first;

    frontier->first = block->next;
    if (!frontier->first)
        frontier->last = NULL;
    frontier->bytes -= sizeof *block;
    free(block);
}

void hf_frontier_fini(struct hf_frontier *frontier)
{
    while (frontier->first)
        drop_first_block(frontier);
}

static void add_block(struct hf_frontier *frontier)
{
    struct hf_frontier_block *block = hf_memory_resize(NULL, 1, sizeof *block);

    block->next = NULL;
    block->begin = 0;
    block->end = 0;
    if (frontier->last)
        frontier->last->next = block;
    else
        frontier->first = block;
    frontier->last = block;
    frontier->bytes += sizeof *block;
    if (frontier->bytes > frontier->bytes_max)
        frontier->bytes_max = frontier->bytes;
}

static size_t used_size(const struct hf_state *state)
{
    return offsetof(struct hf_state, messages) +
           state->message_count * sizeof state->messages[0];
}

void hf_frontier_push(struct hf_frontier *frontier,
                      const struct hf_state *state)
{
    size_t size = used_size(state);
    struct hf_frontier_block *block = frontier->last;

    if (!block || block->end + size > BLOCK_SIZE) {
        add_block(frontier);
        block = frontier->last;
    }
    memcpy(block->bytes + block->end, state, size);
    block->end += size;
}

bool hf_frontier_take(struct hf_frontier *frontier, struct hf_state *state)
{
    size_t head = offsetof(struct hf_state, messages);
    struct hf_frontier_block *block = frontier->first;
    const char *bytes;

    if (block && block->begin == block->end) {
        drop_first_block(frontier);
        block = frontier->first;
    }
    if (!block)
        return false;
    bytes = block->bytes + block->begin;
    memset(state, 0, sizeof *state);
    memcpy(state, bytes, head);
    memcpy(state->messages, bytes + head, used_size(state) - head);
    block->begin += used_size(state);
    return true;
}
