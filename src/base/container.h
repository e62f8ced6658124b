/* container.h - convert a pointer to an embedded member into a pointer to the
 * struct that contains it. */
#ifndef HF_BASE_CONTAINER_H
#define HF_BASE_CONTAINER_H

#include <stddef.h>

#define HF_CONTAINER(pointer, type, member)                                    \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
