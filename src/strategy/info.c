#include <stdlib.h>

#include "base/bytes.h"
#include "strategy/strategy.h"

void hf_info_fini(struct hf_info *info)
{
    if (!info)
        return;
    free(info->storage);
    *info = (struct hf_info){.owner = "", .note = ""};
}

/* Copy `data` to `*at`, advance `*at`, and return the address of the copy. */
static char *append_to_storage(char **at, const void *data, size_t size)
{
    char *start = *at;

    hf_copy(start, data, size);
    *at += size;
    return start;
}

enum hf_err hf_info_copy(struct hf_info *info, const struct hf_info *from)
{
    size_t owner_size = strlen(from->owner) + 1;
    size_t note_size = strlen(from->note) + 1;
    char *storage =
        malloc(from->key.size + from->value.size + owner_size + note_size);
    char *at = storage;

    if (!storage)
        return HF_ENOMEM;
    *info = *from;
    info->storage = storage;
    info->key.data = append_to_storage(&at, from->key.data, from->key.size);
    info->value.data =
        append_to_storage(&at, from->value.data, from->value.size);
    info->owner = append_to_storage(&at, from->owner, owner_size);
    info->note = append_to_storage(&at, from->note, note_size);
    return HF_OK;
}

static int compare_infos(const void *a, const void *b)
{
    const struct hf_info *x = a;
    const struct hf_info *y = b;
    int order = hf_key_compare(x->key, y->key);

    return order ? order : (x->token > y->token) - (x->token < y->token);
}

void hf_info_sort(struct hf_info *infos, size_t count)
{
    if (count > 1)
        qsort(infos, count, sizeof(*infos), compare_infos);
}

size_t hf_info_sort_unique(struct hf_info *infos, size_t count)
{
    size_t kept = 0;

    hf_info_sort(infos, count);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && hf_key_equal(infos[i].key, infos[i + 1].key))
            hf_info_fini(&infos[i]);
        else
            infos[kept++] = infos[i];
    }
    return kept;
}
