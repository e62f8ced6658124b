/* fuzz_url.c - a parsed URL is consistent, and no error message contains a
 * password. */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "pwPWpw"

static void check_url(struct hf_url *url)
{
    struct hf_error error = {.code = HF_OK};
    size_t sum = strlen(url->scheme) + strlen(url->path);

    if (url->password && !url->user)
        abort();
    if (url->user && !url->hosts)
        abort();
    for (size_t i = 0; i < url->param_count; i++) {
        const char *value = url->params[i].value;

        if (hf_url_check_used(url, &error) != HF_EINVAL)
            abort();
        if (hf_url_param(url, url->params[i].name) != value)
            abort();
        sum += strlen(value);
    }
    if (hf_url_check_used(url, &error) || sum > HF_URL_MAX)
        abort();
}

static void try_url(const char *text)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_url url;
    enum hf_err err = hf_url_parse(&url, text, &error);

    if (!err) {
        check_url(&url);
        hf_url_fini(&url);
        return;
    }
    if (err != HF_EINVAL || error.code != err || url.storage)
        abort();
    if (memcmp(error.text, "url: ", 5) != 0 || strstr(error.text, SECRET))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char prefix[] = "redis://user:" SECRET;
    char *text = malloc(sizeof(prefix) + size);

    if (!text)
        return 0;
    memcpy(text, prefix, sizeof(prefix) - 1);
    hf_copy(text + sizeof(prefix) - 1, data, size);
    text[sizeof(prefix) - 1 + size] = '\0';
    if (!strstr(text + sizeof(prefix) - 1, SECRET)) {
        try_url(text);
        try_url(text + sizeof(prefix) - 1);
    }
    free(text);
    return 0;
}
