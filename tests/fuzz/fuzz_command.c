/* fuzz_command.c - a decoded command or result is within its limits, and
 * encodes to the same bytes again. */
#include <stdlib.h>

#include "core/command.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct hf_buf *buf, const uint8_t *data,
                       size_t size)
{
    if (buf->size != size || memcmp(buf->data, data, size) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_command command;
    struct hf_result result;
    struct hf_buf buf = {0};

    if (!hf_command_decode(&command, data, size)) {
        if (!hf_command_is_valid(&command))
            abort();
        hf_command_encode(&command, data[0], &buf);
        check_same(&buf, data, size);
    }
    buf.size = 0;
    if (!hf_command_decode_result(&result, data, size)) {
        hf_command_encode_result(&result, &buf);
        check_same(&buf, data, size);
    }
    hf_buf_fini(&buf);
    return 0;
}
