#include "wire/code.h"

static const struct {
    enum hf_err err;
    const char *name;
} codes[] = {
#define ROW(name, value, text) {HF_##name, &#name[1]},
    HF_ERRORS(ROW)
#undef ROW
    /* After the others: hf_code_name() takes the first. */
    {HF_ESTATE, HF_CODE_GONE},
    {HF_ELIMIT, HF_CODE_NOSPACE},
};
#define CODE_COUNT (sizeof(codes) / sizeof(codes[0]))

const char *hf_code_name(enum hf_err err)
{
    for (size_t i = 0; i < CODE_COUNT; i++)
        if (codes[i].err == err)
            return codes[i].name;
    return "PROTO";
}

enum hf_err hf_code_find(struct hf_bytes code)
{
    for (size_t i = 0; i < CODE_COUNT; i++)
        if (hf_bytes_equal(code, hf_bytes_of(codes[i].name)))
            return codes[i].err;
    return HF_EPROTO;
}

void hf_code_write(struct hf_buf *buf, enum hf_err err, const char *text)
{
    hf_resp_write_error(buf, hf_code_name(err), text ? text : hf_err_text(err));
}

/* The code of an error value: the bytes before the first blank. */
static struct hf_bytes code_of(const struct hf_resp_value *value)
{
    const uint8_t *blank =
        value->size > 0 ? memchr(value->data, ' ', value->size) : NULL;

    return (struct hf_bytes){value->data, blank ? (size_t)(blank - value->data)
                                                : value->size};
}

bool hf_code_is(const struct hf_resp_value *value, const char *code)
{
    return value->kind == HF_RESP_ERROR &&
           hf_bytes_equal(code_of(value), hf_bytes_of(code));
}

enum hf_err hf_code_read(const struct hf_resp_value *value,
                         struct hf_bytes *text)
{
    struct hf_bytes code;

    *text = (struct hf_bytes){0};
    if (value->kind != HF_RESP_ERROR)
        return HF_EPROTO;
    code = code_of(value);
    if (code.size < value->size)
        *text = (struct hf_bytes){value->data + code.size + 1,
                                  value->size - code.size - 1};
    return hf_code_find(code);
}
