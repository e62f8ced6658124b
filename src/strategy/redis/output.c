#include "strategy/redis/output.h"

#include <errno.h>
#ifdef HF_REDIS_TLS
#include <signal.h>
#include <time.h>
#endif
#include <sys/socket.h>

#define KEEP_SIZE 65536 /* larger buffers are freed once they are written */

static void reset_output(struct hf_redis_output *output)
{
    output->bytes.size = 0;
    output->written = 0;
    if (output->bytes.capacity > KEEP_SIZE)
        hf_buf_fini(&output->bytes);
}

void hf_redis_output_fini(struct hf_redis_output *output)
{
    hf_buf_fini(&output->bytes);
    output->written = 0;
    output->blocked = false;
}

#ifdef HF_REDIS_TLS
/* hiredis writes without MSG_NOSIGNAL, so a write may raise SIGPIPE. The kernel
 * sends that SIGPIPE to the writing thread. So block it in this thread, and
 * consume the signal if the write raised one. */
static int write_without_sigpipe(redisContext *context, int *done)
{
    struct timespec now = {0};
    sigset_t pipe, before, pending;
    int status;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    status = redisBufferWrite(context, done);
    if (status != REDIS_OK && sigismember(&before, SIGPIPE) == 0 &&
        !sigpending(&pending) && sigismember(&pending, SIGPIPE) == 1)
        (void)sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static bool write_tls(struct hf_redis_output *output, redisContext *context)
{
    const struct hf_buf *out = &output->bytes;
    int done = 0;

    if (out->size > 0 &&
        redisAppendFormattedCommand(context, (const char *)out->data,
                                    out->size) != REDIS_OK)
        return false;
    reset_output(output);
    if (write_without_sigpipe(context, &done) != REDIS_OK)
        return false;
    output->blocked = !done;
    return true;
}
#endif

/* Call send() instead of redisBufferWrite(), which does not set
 * MSG_NOSIGNAL. */
static bool write_plain(struct hf_redis_output *output, int fd)
{
    const struct hf_buf *out = &output->bytes;
    ssize_t written;

    if (out->size > output->written) {
        written = send(fd, out->data + output->written,
                       out->size - output->written, MSG_NOSIGNAL);
        if (written < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        output->written += written > 0 ? (size_t)written : 0;
    }
    output->blocked = output->written < out->size;
    if (!output->blocked)
        reset_output(output);
    return true;
}

bool hf_redis_output_write(struct hf_redis_output *output,
                           redisContext *context, bool tls)
{
#ifdef HF_REDIS_TLS
    if (tls)
        return write_tls(output, context);
#else
    (void)tls;
#endif
    return write_plain(output, context->fd);
}

bool hf_redis_output_is_pending(const struct hf_redis_output *output)
{
    return output->blocked || output->bytes.size > output->written;
}
