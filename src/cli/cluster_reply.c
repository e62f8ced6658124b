#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

const char *cluster_reply_find(const char *text, const char *name)
{
    char quoted[40];

    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    text = strstr(text, quoted);
    return text ? text + strlen(quoted) : NULL;
}

uint64_t cluster_reply_number(const char *text, const char *name)
{
    const char *value = cluster_reply_find(text, name);

    return value ? strtoull(value, NULL, 10) : 0;
}

bool cluster_reply_bool(const char *text, const char *name)
{
    const char *value = cluster_reply_find(text, name);

    return value && !strncmp(value, "true", strlen("true"));
}

void cluster_reply_text(const char *text, const char *name, char *to,
                        size_t size)
{
    const char *value = cluster_reply_find(text, name);
    size_t length = value && *value == '"' ? strcspn(value + 1, "\"") : 0;

    (void)snprintf(to, size, "%.*s", (int)length, length ? value + 1 : "");
    for (; *to; to++) {
        if (*to < ' ' || *to > '~')
            *to = '?';
    }
}
