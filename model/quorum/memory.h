/* memory.h - allocate, or end the program with a message. */
#ifndef HF_MODEL_QUORUM_MEMORY_H
#define HF_MODEL_QUORUM_MEMORY_H

#include <stddef.h>

void *hf_memory_resize(void *memory, size_t count, size_t size);
void *hf_memory_zeroed(size_t count, size_t size);

#endif
