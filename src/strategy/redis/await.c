#include "strategy/redis/await.h"

#include <poll.h>
#include <sys/epoll.h>

#define LINKS_MAX 16
#define RETRY_MS 50     /* between two attempts at a server that loads */
#define STRAGGLE_MS 250 /* for the other servers, once enough are up */

static bool has_failed(const struct hf_redis_link *link)
{
    enum hf_err code = link->failure.code;

    if (link->state != HF_REDIS_DOWN)
        return false;
    /* Refused at once is an answer; a server that loads comes up. */
    return (code != HF_EUNAVAIL && code != HF_OK) || !link->greetings_heard;
}

/* A negative descriptor is ignored by poll(). */
static bool fill_poll(struct hf_redis_link *const *links, unsigned count,
                      struct pollfd *fds)
{
    bool retries = false;

    for (unsigned i = 0; i < count; i++) {
        const struct hf_redis_link *link = links[i];
        bool open = link->state != HF_REDIS_DOWN && link->state != HF_REDIS_UP;

        fds[i] = (struct pollfd){
            .fd = open ? link->fd.fd : -1,
            .events = link->fd.events & EPOLLOUT ? POLLOUT : POLLIN,
        };
        retries =
            retries || (link->state == HF_REDIS_DOWN && !has_failed(link));
    }
    return retries;
}

/* One round of poll(), for at most `ms`. */
static void step(struct hf_redis_link *const *links, unsigned count,
                 uint32_t ms)
{
    struct pollfd fds[LINKS_MAX];
    bool retries = fill_poll(links, count, fds);
    int ready;

    if (retries && ms > RETRY_MS)
        ms = RETRY_MS;
    ready = poll(fds, count, (int)ms);
    for (unsigned i = 0; i < count; i++) {
        if (ready > 0 && fds[i].revents)
            hf_redis_link_ready(links[i],
                                fds[i].revents & POLLOUT ? EPOLLOUT : EPOLLIN);
        else if (ready == 0 && links[i]->state == HF_REDIS_DOWN &&
                 !has_failed(links[i]))
            hf_redis_link_connect(links[i]);
    }
}

static void explain_failures(struct hf_redis_link *const *links, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct hf_redis_link *link = links[i];

        if (link->state != HF_REDIS_UP && !link->failure.code)
            (void)hf_error_set(&link->failure, HF_EUNAVAIL,
                               "%s: does not answer", link->address->name);
    }
}

void hf_redis_await_links(struct hf_redis_link *const *links, unsigned count,
                          unsigned enough, uint32_t timeout_ms)
{
    hf_time until = hf_time_add(hf_time_now(), timeout_ms);
    bool is_enough = false;
    unsigned up, failed;
    uint32_t left;

    for (;;) {
        up = failed = 0;
        for (unsigned i = 0; i < count; i++) {
            up += links[i]->state == HF_REDIS_UP;
            failed += has_failed(links[i]);
        }
        if (up >= enough && !is_enough) {
            is_enough = true;
            if (hf_time_left(until, hf_time_now()) > STRAGGLE_MS)
                until = hf_time_add(hf_time_now(), STRAGGLE_MS);
        }
        left = hf_time_left(until, hf_time_now());
        if (up + failed == count || left == 0)
            break;
        step(links, count, left);
    }
    explain_failures(links, count);
}
