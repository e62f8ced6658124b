/* container.h - from a link back to what it is embedded in. */
#ifndef HF_BASE_CONTAINER_H
#define HF_BASE_CONTAINER_H

#include <stddef.h>

#define HF_CONTAINER(pointer, type, member)                                    \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
