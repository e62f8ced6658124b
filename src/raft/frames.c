#include "raft/frames.h"

void hf_frames_begin(struct hf_frames *frames, uint64_t id,
                     uint64_t incarnation, struct hf_buf *buf)
{
    hf_buf_u64(buf, id);
    hf_buf_u64(buf, incarnation);
    hf_buf_u64(buf, frames->incarnation);
    hf_buf_u64(buf, ++frames->sent);
}

uint64_t hf_frames_sender(struct hf_reader *reader)
{
    return hf_reader_u64(reader);
}

/* Returns true if the frame is of a newer incarnation of the peer, or has a
 * higher number than the last accepted frame of the same incarnation. */
static bool is_new(const struct hf_frames *frames, uint64_t sender,
                   uint64_t number)
{
    if (sender != frames->incarnation)
        return sender > frames->incarnation;
    return number > frames->received;
}

enum hf_frames_verdict hf_frames_check(struct hf_frames *frames,
                                       uint64_t incarnation,
                                       struct hf_reader *reader)
{
    uint64_t sender = hf_reader_u64(reader);
    uint64_t receiver = hf_reader_u64(reader);
    uint64_t number = hf_reader_u64(reader);

    if (reader->failed || sender == 0 || !is_new(frames, sender, number))
        return HF_FRAMES_DROP;
    if (sender != frames->incarnation)
        *frames = (struct hf_frames){.incarnation = sender};
    if (receiver != incarnation)
        return HF_FRAMES_ANNOUNCE;
    frames->received = number;
    return HF_FRAMES_ACCEPT;
}
