#include "serve/text.h"

#include <string.h>

#include "wire/resp.h"

void hf_text_add(struct hf_buf *text, const char *string)
{
    hf_buf_raw(text, string, strlen(string));
}

static void add_number(struct hf_buf *text, uint64_t number)
{
    char digits[20];

    hf_buf_raw(text, digits, hf_resp_digits(digits, number));
}

/* ---- INFO ---------------------------------------------------------------*/

void hf_text_section(struct hf_buf *text, const char *name)
{
    if (text->size > 0)
        hf_text_add(text, "\r\n");
    hf_text_add(text, "# ");
    hf_text_add(text, name);
    hf_text_add(text, "\r\n");
}

void hf_text_line(struct hf_buf *text, const char *name, const char *value)
{
    hf_text_add(text, name);
    hf_text_add(text, ":");
    hf_text_add(text, value);
    hf_text_add(text, "\r\n");
}

void hf_text_count(struct hf_buf *text, const char *name, uint64_t count)
{
    hf_text_add(text, name);
    hf_text_add(text, ":");
    add_number(text, count);
    hf_text_add(text, "\r\n");
}

/* ---- STATUS -------------------------------------------------------------*/

void hf_text_json_name(struct hf_buf *text, const char *name)
{
    bool is_first = text->size > 0 && text->data[text->size - 1] == '{';

    hf_text_add(text, is_first ? "\"" : ",\"");
    hf_text_add(text, name);
    hf_text_add(text, "\":");
}

void hf_text_json_number(struct hf_buf *text, const char *name, uint64_t number)
{
    hf_text_json_name(text, name);
    add_number(text, number);
}

void hf_text_json_bool(struct hf_buf *text, const char *name, bool value)
{
    hf_text_json_name(text, name);
    hf_text_add(text, value ? "true" : "false");
}

void hf_text_json_string(struct hf_buf *text, const char *name,
                         const char *string)
{
    hf_text_json_name(text, name);
    hf_text_add(text, "\"");
    hf_text_add(text, string);
    hf_text_add(text, "\"");
}
