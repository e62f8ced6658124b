#include "daemon/stream.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/container.h"

/* ---- The table of streams -----------------------------------------------*/

enum hf_err hf_streams_init(struct hf_streams *streams, uv_loop_t *loop)
{
    *streams = (struct hf_streams){.loop = loop};
    hf_dlist_init(&streams->failed);
    streams->input = malloc(HF_STREAM_INPUT);
    return streams->input ? HF_OK : HF_ENOMEM;
}

void hf_streams_fini(struct hf_streams *streams)
{
    HF_ASSERT(streams->count == 0);
    free(streams->slots);
    free(streams->input);
}

void hf_streams_close_all(struct hf_streams *streams)
{
    for (size_t i = 0; i < streams->capacity; i++) {
        if (streams->slots[i])
            hf_stream_close(streams->slots[i]);
    }
}

static size_t stream_slot_of(uint64_t id)
{
    return (size_t)(id & UINT32_MAX);
}

static bool grow_table(struct hf_streams *streams)
{
    size_t capacity = streams->capacity ? 2 * streams->capacity : 64;
    struct hf_stream **slots =
        realloc(streams->slots, capacity * sizeof(struct hf_stream *));

    if (!slots)
        return false;
    for (size_t i = streams->capacity; i < capacity; i++)
        slots[i] = NULL;
    streams->slots = slots;
    streams->capacity = capacity;
    return true;
}

static bool add_stream(struct hf_streams *streams, struct hf_stream *stream)
{
    size_t slot = streams->free_slot;

    while (slot < streams->capacity && streams->slots[slot])
        slot++;
    if (slot == streams->capacity && !grow_table(streams))
        return false;
    streams->slots[slot] = stream;
    streams->free_slot = slot + 1;
    streams->count++;
    stream->id = ++streams->opened << 32 | slot;
    return true;
}

static void remove_stream(struct hf_stream *stream)
{
    struct hf_streams *streams = stream->streams;
    size_t slot = stream_slot_of(stream->id);

    streams->slots[slot] = NULL;
    if (slot < streams->free_slot)
        streams->free_slot = slot;
    streams->count--;
}

struct hf_stream *hf_stream_find(struct hf_streams *streams, uint64_t id)
{
    size_t slot = stream_slot_of(id);
    struct hf_stream *stream =
        slot < streams->capacity ? streams->slots[slot] : NULL;

    return stream && stream->id == id ? stream : NULL;
}

/* ---- Opening and closing ------------------------------------------------*/

struct hf_stream *hf_stream_new(struct hf_streams *streams,
                                const struct hf_stream_kind *kind, void *arg)
{
    struct hf_stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->streams = streams;
    stream->kind = kind;
    stream->arg = arg;
    if (!add_stream(streams, stream) ||
        uv_tcp_init(streams->loop, &stream->tcp)) {
        if (stream->id)
            remove_stream(stream);
        free(stream);
        return NULL;
    }
    return stream;
}

static void on_closed(uv_handle_t *handle)
{
    struct hf_stream *stream =
        HF_CONTAINER((uv_tcp_t *)handle, struct hf_stream, tcp);

    hf_buf_fini(&stream->writing);
    hf_buf_fini(&stream->waiting);
    free(stream);
}

void hf_stream_close(struct hf_stream *stream)
{
    if (stream->is_closing)
        return;
    stream->is_closing = true;
    remove_stream(stream);
    hf_dlist_remove(&stream->failed);
    hf_dlist_remove(&stream->owner_link);
    uv_close((uv_handle_t *)&stream->tcp, on_closed);
}

static void end_stream(struct hf_stream *stream)
{
    stream->kind->on_end(stream);
    hf_stream_close(stream);
}

void hf_streams_reap(struct hf_streams *streams)
{
    while (!hf_dlist_is_empty(&streams->failed))
        end_stream(
            HF_CONTAINER(streams->failed.next, struct hf_stream, failed));
}

static bool has_stream_failed(const struct hf_stream *stream)
{
    return hf_dlist_is_linked(&stream->failed);
}

static void fail_stream(struct hf_stream *stream)
{
    if (!has_stream_failed(stream))
        hf_dlist_push_back(&stream->streams->failed, &stream->failed);
}

/* ---- Input --------------------------------------------------------------*/

/* libuv calls on_read() with the buffer before it asks for another, so all
 * streams share one. */
static void on_buffer(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct hf_stream *stream =
        HF_CONTAINER((uv_tcp_t *)handle, struct hf_stream, tcp);

    (void)size;
    *buf = uv_buf_init(stream->streams->input, HF_STREAM_INPUT);
}

static void on_read(uv_stream_t *handle, ssize_t size, const uv_buf_t *buf)
{
    struct hf_stream *stream =
        HF_CONTAINER((uv_tcp_t *)handle, struct hf_stream, tcp);

    if (size < 0)
        end_stream(stream);
    else if (size > 0)
        stream->kind->on_data(stream, buf->base, (size_t)size);
}

static int start_reading(struct hf_stream *stream)
{
    return uv_read_start((uv_stream_t *)&stream->tcp, on_buffer, on_read);
}

int hf_stream_begin(struct hf_stream *stream)
{
    /* Replies are written once per turn of the loop, so delaying them for the
     * sake of larger packets only costs time. */
    (void)uv_tcp_nodelay(&stream->tcp, 1);
    return start_reading(stream);
}

void hf_stream_pause(struct hf_stream *stream, bool stop)
{
    if (stop)
        (void)uv_read_stop((uv_stream_t *)&stream->tcp);
    else if (!stream->is_closing && start_reading(stream))
        fail_stream(stream);
}

/* ---- Output -------------------------------------------------------------*/

size_t hf_stream_unsent(const struct hf_stream *stream)
{
    return stream->writing.size + stream->waiting.size;
}

static void write_waiting(struct hf_stream *stream);

static void on_written(uv_write_t *write, int status)
{
    struct hf_stream *stream = HF_CONTAINER(write, struct hf_stream, write);

    stream->is_writing = false;
    if (stream->is_closing)
        return;
    hf_buf_fini(&stream->writing);
    stream->writing = (struct hf_buf){0};
    if (status) {
        end_stream(stream);
        return;
    }
    write_waiting(stream);
    if (stream->kind->on_sent)
        stream->kind->on_sent(stream);
}

static void write_waiting(struct hf_stream *stream)
{
    uv_buf_t buf;

    if (stream->is_writing || stream->waiting.size == 0)
        return;
    stream->writing = stream->waiting;
    stream->waiting = (struct hf_buf){0};
    buf = uv_buf_init((char *)stream->writing.data,
                      (unsigned)stream->writing.size);
    if (uv_write(&stream->write, (uv_stream_t *)&stream->tcp, &buf, 1,
                 on_written)) {
        fail_stream(stream);
        return;
    }
    stream->is_writing = true;
}

/* Returns the number of bytes that were written, or a negative errno value. */
static int write_now(struct hf_stream *stream, const void *data, size_t size)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)data, (unsigned)size);
    int written;

    if (stream->is_writing)
        return 0;
    written = uv_try_write((uv_stream_t *)&stream->tcp, &buf, 1);
    return written == UV_EAGAIN ? 0 : written;
}

static void keep_output(struct hf_stream *stream, const void *data, size_t size)
{
    stream->has_overflowed =
        hf_stream_unsent(stream) + size > stream->kind->unsent_max;
    if (!stream->has_overflowed)
        hf_buf_raw(&stream->waiting, data, size);
}

void hf_stream_send(struct hf_stream *stream, const void *data, size_t size)
{
    int written;

    if (stream->is_closing || has_stream_failed(stream) || size == 0)
        return;
    written = write_now(stream, data, size);
    if (written >= 0)
        keep_output(stream, (const char *)data + written,
                    size - (size_t)written);
    if (written < 0 || stream->has_overflowed || stream->waiting.failed) {
        fail_stream(stream);
        return;
    }
    write_waiting(stream);
}
