#include "nested.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "HOLDFAST_HELD"
#define ENTRY_SIZE 40   /* a token of 20 digits, ":", 16 hexadecimal digits */
#define LIST_SIZE 4096u /* room for about 100 locks; then drop the oldest */

/* Returns the FNV-1a hash of `text`. The list contains a hash of each owner,
 * because blanks separate its entries and an owner may contain blanks. */
static unsigned long long hash_of(const char *text)
{
    unsigned long long hash = 14695981039346656037ull;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static void write_held_entry(char entry[ENTRY_SIZE], uint64_t token,
                             const char *owner)
{
    (void)snprintf(entry, ENTRY_SIZE, "%llu:%016llx", (unsigned long long)token,
                   hash_of(owner));
}

bool nested_export(uint64_t token, const char *owner)
{
    const char *list = getenv(VARIABLE);
    char entry[ENTRY_SIZE], longer[LIST_SIZE + ENTRY_SIZE];

    write_held_entry(entry, token, owner);
    while (list && strlen(list) >= LIST_SIZE) {
        list = strchr(list, ' ');
        list += list != NULL;
    }
    (void)snprintf(longer, sizeof(longer), "%s%s%s", list ? list : "",
                   list && *list ? " " : "", entry);
    return !setenv(VARIABLE, longer, 1);
}

bool nested_exists(void)
{
    return getenv(VARIABLE) != NULL;
}

bool nested_holds(const struct hf_info *info)
{
    const char *list = getenv(VARIABLE);
    char entry[ENTRY_SIZE];
    size_t size;

    if (!info->held || !info->owner)
        return false;
    write_held_entry(entry, info->token, info->owner);
    for (; list && *list; list += size + (list[size] == ' ')) {
        size = strcspn(list, " ");
        if (size == strlen(entry) && !strncmp(list, entry, size))
            return true;
    }
    return false;
}
