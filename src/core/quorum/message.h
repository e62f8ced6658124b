/* message.h - the requests and replies of the quorum protocol as bytes.
 *
 * Decoding is safe for any input: it returns HF_EPROTO for malformed bytes, and
 * a message that it accepts is within all limits and encodes to the same bytes
 * again. Decoded pointers point into the input. */
#ifndef HF_CORE_QUORUM_MESSAGE_H
#define HF_CORE_QUORUM_MESSAGE_H

#include "base/buf.h"
#include "core/quorum/quorum.h"

/* Append the message to `buf`. Sets buf->failed if memory runs out. */
void hf_message_encode_request(const struct hf_quorum_request *request,
                               struct hf_buf *buf);
void hf_message_encode_reply(const struct hf_quorum_reply *reply,
                             struct hf_buf *buf);

enum hf_err hf_message_decode_request(struct hf_quorum_request *request,
                                      struct hf_bytes bytes);
enum hf_err hf_message_decode_reply(struct hf_quorum_reply *reply,
                                    struct hf_bytes bytes);

#endif
