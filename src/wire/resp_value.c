/* resp_value.c - read the values of a message, and write messages. */
#include "wire/resp.h"

#include "base/hex.h"

/* ---- Values -------------------------------------------------------------*/

static int upper_case(int c)
{
    return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
}

bool hf_resp_equals(const struct hf_resp_value *value, const char *word)
{
    size_t size = strlen(word);

    if (!hf_resp_is_string(value) || value->size != size)
        return false;
    for (size_t i = 0; i < size; i++)
        if (upper_case(value->data[i]) != word[i])
            return false;
    return true;
}

bool hf_resp_read_number(const uint8_t *digits, size_t size, uint64_t max,
                         uint64_t *number)
{
    uint64_t sum = 0;

    if (size == 0 || size > 20 || (size > 1 && digits[0] == '0'))
        return false;
    for (size_t i = 0; i < size; i++) {
        unsigned digit = (unsigned)digits[i] - '0';

        if (digit > 9 || sum > (UINT64_MAX - digit) / 10)
            return false;
        sum = 10 * sum + digit;
    }
    if (sum > max)
        return false;
    *number = sum;
    return true;
}

bool hf_resp_number(const struct hf_resp_value *value, uint64_t max,
                    uint64_t *number)
{
    if (hf_resp_is_string(value))
        return hf_resp_read_number(value->data, value->size, max, number);
    if (value->kind != HF_RESP_INTEGER || value->integer < 0 ||
        (uint64_t)value->integer > max)
        return false;
    *number = (uint64_t)value->integer;
    return true;
}

bool hf_resp_u32(const struct hf_resp_value *value, uint32_t *number)
{
    uint64_t read;

    if (!hf_resp_number(value, UINT32_MAX, &read))
        return false;
    *number = (uint32_t)read;
    return true;
}

bool hf_resp_nonce(const struct hf_resp_value *value, struct hf_nonce *nonce)
{
    char digits[2 * sizeof(nonce->bytes) + 1] = {0};

    if (!hf_resp_is_string(value))
        return false;
    if (value->size == sizeof(nonce->bytes)) {
        memcpy(nonce->bytes, value->data, sizeof(nonce->bytes));
        return true;
    }
    if (value->size != 2 * sizeof(nonce->bytes))
        return false;
    memcpy(digits, value->data, value->size);
    return hf_hex_decode(nonce->bytes, sizeof(nonce->bytes), digits);
}

/* ---- Writing ------------------------------------------------------------*/

size_t hf_resp_digits(char digits[20], uint64_t number)
{
    char reversed[20];
    size_t size = 0;

    do {
        reversed[size++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < size; i++)
        digits[i] = reversed[size - 1 - i];
    return size;
}

/* Write a line: a type, then a number. */
static void write_type_line(struct hf_buf *buf, char type, uint64_t number,
                            bool is_negative)
{
    char line[24] = {type, '-'};
    size_t size = is_negative ? 2 : 1;

    size += hf_resp_digits(line + size, number);
    line[size++] = '\r';
    line[size++] = '\n';
    hf_buf_raw(buf, line, size);
}

void hf_resp_write_array(struct hf_buf *buf, size_t count)
{
    write_type_line(buf, '*', count, false);
}

void hf_resp_write_bulk(struct hf_buf *buf, const void *data, size_t size)
{
    write_type_line(buf, '$', size, false);
    hf_buf_raw(buf, data, size);
    hf_buf_raw(buf, "\r\n", 2);
}

void hf_resp_write_text(struct hf_buf *buf, const char *text)
{
    hf_resp_write_bulk(buf, text, strlen(text));
}

void hf_resp_write_simple(struct hf_buf *buf, const char *text)
{
    hf_buf_raw(buf, "+", 1);
    hf_buf_raw(buf, text, strlen(text));
    hf_buf_raw(buf, "\r\n", 2);
}

void hf_resp_write_integer(struct hf_buf *buf, int64_t integer)
{
    uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;

    write_type_line(buf, ':', size, integer < 0);
}

void hf_resp_write_null(struct hf_buf *buf)
{
    hf_buf_raw(buf, "$-1\r\n", 5);
}

void hf_resp_write_number(struct hf_buf *buf, uint64_t number)
{
    char digits[20];

    hf_resp_write_bulk(buf, digits, hf_resp_digits(digits, number));
}

void hf_resp_write_error(struct hf_buf *buf, const char *code, const char *text)
{
    hf_buf_raw(buf, "-", 1);
    hf_buf_raw(buf, code, strlen(code));
    hf_buf_raw(buf, " ", 1);
    for (; *text; text++)
        hf_buf_u8(buf, (unsigned char)*text < ' ' ? ' ' : (uint8_t)*text);
    hf_buf_raw(buf, "\r\n", 2);
}
