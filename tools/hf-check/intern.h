/* intern.h - interned byte strings.
 *
 * A history repeats the same keys and nonces many times. Each is stored once,
 * and is compared and sorted as a small number everywhere else.
 *
 * Always true:
 *   1. equal strings have equal numbers, different strings different ones;
 *   2. number 0 is the empty string, which means "not given";
 *   3. a number is valid until hf_intern_fini(), a pointer from
 *      hf_intern_bytes() until the next hf_intern_add(). */
#ifndef HF_CHECK_TOOL_INTERN_H
#define HF_CHECK_TOOL_INTERN_H

#include <stddef.h>
#include <stdint.h>

struct hf_intern {
    char *bytes; /* all strings, concatenated */
    size_t bytes_len, bytes_room;
    struct hf_intern_entry *list; /* by number */
    size_t count, list_room;
    uint32_t *slots; /* hash table of numbers; its size is a power of two */
    size_t slot_count;
};

void hf_intern_init(struct hf_intern *intern);
void hf_intern_fini(struct hf_intern *intern);

/* Return the number of this string; the bytes are copied if it is new. */
uint32_t hf_intern_add(struct hf_intern *intern, const char *bytes, size_t len);

/* Return the bytes of `string`, borrowed and not terminated, and their count in
 * `*len`. */
const char *hf_intern_bytes(const struct hf_intern *intern, uint32_t string,
                            size_t *len);

#endif
