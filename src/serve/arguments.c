#include "serve/arguments.h"

#include "base/limits.h"

const struct hf_resp_value *hf_arguments_word(struct hf_arguments *args)
{
    args->count--;
    return args->words++;
}

uint64_t hf_arguments_number(struct hf_arguments *args, uint64_t max,
                             const char *cause)
{
    uint64_t number = 0;

    if (!hf_resp_number(hf_arguments_word(args), max, &number))
        args->cause = cause;
    return number;
}

void hf_arguments_nonce(struct hf_arguments *args, struct hf_nonce *nonce)
{
    if (!hf_resp_nonce(hf_arguments_word(args), nonce))
        args->cause = "a nonce has 32 hexadecimal digits";
}

struct hf_key hf_arguments_key(struct hf_arguments *args, bool is_prefix)
{
    struct hf_bytes bytes = hf_resp_bytes(hf_arguments_word(args));

    if (bytes.size > HF_KEY_MAX || (bytes.size == 0 && !is_prefix))
        args->cause = "a key has 1 to 1024 bytes";
    return (struct hf_key){bytes.data, bytes.size};
}

bool hf_arguments_option(struct hf_arguments *args, const char *name,
                         size_t more)
{
    if (args->count < 1 + more || !hf_resp_equals(args->words, name))
        return false;
    (void)hf_arguments_word(args);
    return true;
}

void hf_arguments_read(struct hf_arguments *args,
                       struct hf_mux_request *request)
{
    request->key = hf_arguments_key(args, false);
    request->linearizable = !hf_arguments_option(args, "LOCAL", 0);
    if (args->count > 0)
        args->cause = "READ key [LOCAL]";
}

void hf_arguments_list(struct hf_arguments *args,
                       struct hf_mux_request *request)
{
    HF_LIST_COUNT(request) = HF_LIST_PAGE_KEYS;
    if (args->count % 2 == 1)
        request->key = hf_arguments_key(args, true);
    while (args->count > 0 && !args->cause) {
        if (hf_arguments_option(args, "AFTER", 1))
            HF_LIST_AFTER(request) =
                hf_arguments_number(args, UINT64_MAX, "AFTER needs a cursor");
        else if (hf_arguments_option(args, "COUNT", 1))
            HF_LIST_COUNT(request) = (uint32_t)hf_arguments_number(
                args, HF_LIST_PAGE_KEYS, "COUNT needs a number up to 500");
        else
            args->cause = "LIST [prefix] [AFTER cursor] [COUNT n]";
    }
    if (HF_LIST_COUNT(request) == 0)
        args->cause = "COUNT needs a number up to 500";
}

void hf_arguments_watch(struct hf_arguments *args,
                        struct hf_mux_request *request)
{
    request->key = hf_arguments_key(args, true);
    if (hf_arguments_option(args, "FROM", 1))
        request->from =
            hf_arguments_number(args, UINT64_MAX, "FROM needs an index");
    if (args->count > 0)
        args->cause = "WATCH prefix [FROM index]";
}
