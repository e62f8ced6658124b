/* fuzz_raft_message.c - a decoded message of raft encodes to the same bytes
 * again, and so do decoded members. No frame is accepted that is shorter than
 * its header. */
#include <stdlib.h>

#include "raft/frames.h"
#include "raft/membership.h"
#include "raft/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct hf_buf *buf, const uint8_t *data,
                       size_t size)
{
    if (buf->size != size || memcmp(buf->data, data, size) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_reader frame = reader;
    struct hf_frames frames = {.incarnation = 1};
    struct hf_membership members;
    struct hf_message message;
    struct hf_buf buf = {0};

    if (!hf_message_decode(&reader, &message)) {
        hf_message_encode(&buf, &message);
        check_same(&buf, data, size);
        hf_message_fini(&message);
    }
    buf.size = 0;
    if (!hf_membership_decode((struct hf_bytes){data, size}, &members)) {
        hf_membership_encode(&buf, &members);
        check_same(&buf, data, size);
    }
    (void)hf_frames_sender(&frame);
    if (hf_frames_check(&frames, 2, &frame) == HF_FRAMES_ACCEPT && size < 32)
        abort();
    hf_buf_fini(&buf);
    return 0;
}
