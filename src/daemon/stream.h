/* stream.h - one TCP connection of a node: to a client or to a peer.
 *
 * A stream has a number, by which the node knows it. Numbers are never reused.
 * Input goes to `on_data` as it arrives, from a buffer that all streams share.
 * The end of a stream is reported to `on_end`, once, unless the stream is
 * closed first.
 *
 * Output is written at once as far as the socket takes it; the rest is kept and
 * written later. A stream fails if more than `unsent_max` bytes would be kept:
 * a process that is stopped does not read, and does not close its connections
 * either. If a stream fails while it sends, hf_streams_reap() reports that
 * later, because the node must not be called back from inside its own
 * calls. */
#ifndef HF_DAEMON_STREAM_H
#define HF_DAEMON_STREAM_H

#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/dlist.h"

struct hf_stream;

typedef void hf_stream_data_fn(struct hf_stream *stream, const void *data,
                               size_t size);
typedef void hf_stream_fn(struct hf_stream *stream);

struct hf_stream_kind {
    hf_stream_data_fn *on_data;
    hf_stream_fn *on_end;  /* end of input, or an error; it is closed next */
    hf_stream_fn *on_sent; /* kept output was written; may be NULL */
    size_t unsent_max;     /* bytes of output that are kept at most */
};

struct hf_stream {
    uv_tcp_t tcp;
    uv_write_t write;
    struct hf_streams *streams;
    const struct hf_stream_kind *kind;
    struct hf_dlist failed;     /* in streams->failed */
    struct hf_dlist owner_link; /* in a list of the owner */
    uint64_t id;
    void *arg;             /* belongs to the owner */
    struct hf_buf writing; /* bytes that libuv is writing */
    struct hf_buf waiting; /* bytes to write after `writing` */
    bool is_writing, is_closing;
    bool has_overflowed; /* failed because of `unsent_max` */
};

struct hf_streams {
    uv_loop_t *loop;
    struct hf_stream **slots; /* the low half of an id is its slot */
    size_t count, capacity;
    size_t free_slot;       /* all slots below it are in use */
    uint64_t opened;        /* how many streams were ever opened */
    struct hf_dlist failed; /* to be reported by hf_streams_reap() */
    char *input; /* HF_STREAM_INPUT bytes, for the read in progress */
};

#define HF_STREAM_INPUT 65536

/* Returns HF_ENOMEM if there is no memory for the input buffer. */
enum hf_err hf_streams_init(struct hf_streams *streams, uv_loop_t *loop);

/* Every stream must have been closed, and the loop must have run since, because
 * the loop frees them. */
void hf_streams_fini(struct hf_streams *streams);
void hf_streams_close_all(struct hf_streams *streams);

/* Report and close the streams that failed while sending, or when
 * hf_stream_pause() started to read again. */
void hf_streams_reap(struct hf_streams *streams);

/* Make a stream that is not connected. Returns NULL if memory is exhausted or
 * libuv fails. `arg` is hf_stream.arg. */
struct hf_stream *hf_stream_new(struct hf_streams *streams,
                                const struct hf_stream_kind *kind, void *arg);

/* The stream with this number, or NULL if it is closed. */
struct hf_stream *hf_stream_find(struct hf_streams *streams, uint64_t id);

/* Call this once the stream is connected: turns on TCP_NODELAY and starts to
 * read. Returns 0 or a negative errno value. */
int hf_stream_begin(struct hf_stream *stream);

/* Stop reading if `stop`, else read again. */
void hf_stream_pause(struct hf_stream *stream, bool stop);

/* Write `data`, or keep a copy and write it later. Data that is sent to a
 * stream after it has failed is dropped. */
void hf_stream_send(struct hf_stream *stream, const void *data, size_t size);

/* How many bytes wait for the socket. */
size_t hf_stream_unsent(const struct hf_stream *stream);

/* Close the connection and drop unsent output. No callback is called any more,
 * and the loop frees the stream later. */
void hf_stream_close(struct hf_stream *stream);

#endif
