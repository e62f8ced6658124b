#include "strategy/net/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/container.h"
#include "base/dlist.h"
#include "base/thread.h"

struct hf_net_resolver {
    pthread_mutex_t mutex;
    int fd;
    unsigned references;  /* of the owner, and of each thread */
    struct hf_dlist done; /* jobs that have ended */
};

/* One name that is being resolved. Its thread does not use `address`, which may
 * be freed before the thread ends. */
struct job {
    struct hf_net_resolver *resolver;
    struct hf_dlist link; /* in resolver->done */
    struct hf_net_address *address;
    char host[HF_NET_HOST_MAX + 1];
    char port[8];
    struct sockaddr_storage found[HF_NET_FOUND_MAX];
    unsigned count;
    int failure; /* of getaddrinfo() */
};

bool hf_net_resolve_numeric(struct hf_net_address *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons(address->port)};

    if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1)
        memcpy(&address->found[0], &v4, sizeof(v4));
    else if (inet_pton(AF_INET6, address->host, &v6.sin6_addr) == 1)
        memcpy(&address->found[0], &v6, sizeof(v6));
    else
        return false;
    address->found_count = 1;
    return true;
}

/* ---- Opening and closing ------------------------------------------------*/

struct hf_net_resolver *hf_net_resolver_new(void)
{
    struct hf_net_resolver *resolver = calloc(1, sizeof(*resolver));

    if (!resolver)
        return NULL;
    resolver->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolver->fd < 0) {
        free(resolver);
        return NULL;
    }
    (void)pthread_mutex_init(&resolver->mutex, NULL);
    hf_dlist_init(&resolver->done);
    resolver->references = 1;
    return resolver;
}

/* Call this with the mutex locked; this function unlocks it. */
static void drop_reference(struct hf_net_resolver *resolver)
{
    bool is_last = --resolver->references == 0;
    struct hf_dlist *link;

    (void)pthread_mutex_unlock(&resolver->mutex);
    if (!is_last)
        return;
    while ((link = hf_dlist_take(&resolver->done)))
        free(HF_CONTAINER(link, struct job, link));
    (void)pthread_mutex_destroy(&resolver->mutex);
    (void)close(resolver->fd);
    free(resolver);
}

void hf_net_resolver_close(struct hf_net_resolver *resolver)
{
    (void)pthread_mutex_lock(&resolver->mutex);
    drop_reference(resolver);
}

int hf_net_resolver_fd(const struct hf_net_resolver *resolver)
{
    return resolver->fd;
}

/* ---- Resolving ----------------------------------------------------------*/

static void look_up(struct job *job)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;

    job->failure = getaddrinfo(job->host, job->port, &hints, &found);
    if (job->failure)
        return;
    for (const struct addrinfo *next = found;
         next && job->count < HF_NET_FOUND_MAX; next = next->ai_next) {
        if (next->ai_family == AF_INET || next->ai_family == AF_INET6)
            memcpy(&job->found[job->count++], next->ai_addr, next->ai_addrlen);
    }
    freeaddrinfo(found);
    if (job->count == 0)
        job->failure = EAI_NONAME;
}

static void *resolver_main(void *arg)
{
    struct job *job = arg;
    struct hf_net_resolver *resolver = job->resolver;
    uint64_t one = 1;

    look_up(job);
    (void)pthread_mutex_lock(&resolver->mutex);
    hf_dlist_push_back(&resolver->done, &job->link);
    (void)!write(resolver->fd, &one, sizeof(one));
    drop_reference(resolver);
    return NULL;
}

static struct job *new_job(struct hf_net_resolver *resolver,
                           struct hf_net_address *address)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->resolver = resolver;
    job->address = address;
    memcpy(job->host, address->host, sizeof(job->host));
    (void)snprintf(job->port, sizeof(job->port), "%u", address->port);
    return job;
}

static void add_reference(struct hf_net_resolver *resolver)
{
    (void)pthread_mutex_lock(&resolver->mutex);
    resolver->references++;
    (void)pthread_mutex_unlock(&resolver->mutex);
}

enum hf_err hf_net_resolver_start(struct hf_net_resolver *resolver,
                                  struct hf_net_address *address)
{
    struct job *job;
    pthread_t thread;

    if (address->is_resolving)
        return HF_OK;
    job = new_job(resolver, address);
    if (!job)
        return HF_ENOMEM;
    add_reference(resolver);
    if (hf_thread_start(&thread, resolver_main, job)) {
        free(job);
        hf_net_resolver_close(resolver); /* drops the new reference */
        return HF_ESYSTEM;
    }
    (void)pthread_detach(thread);
    address->is_resolving = true;
    return HF_OK;
}

static struct job *take_job(struct hf_net_resolver *resolver)
{
    struct hf_dlist *link;
    uint64_t count;

    (void)pthread_mutex_lock(&resolver->mutex);
    link = hf_dlist_take(&resolver->done);
    if (hf_dlist_is_empty(&resolver->done))
        (void)!read(resolver->fd, &count, sizeof(count));
    (void)pthread_mutex_unlock(&resolver->mutex);
    return link ? HF_CONTAINER(link, struct job, link) : NULL;
}

struct hf_net_address *hf_net_resolver_take(struct hf_net_resolver *resolver,
                                            const char **failure)
{
    struct job *job = take_job(resolver);
    struct hf_net_address *address;

    if (!job)
        return NULL;
    address = job->address;
    address->is_resolving = false;
    *failure = job->failure ? gai_strerror(job->failure) : NULL;
    if (!job->failure) {
        memcpy(address->found, job->found, sizeof(address->found));
        address->found_count = job->count;
    }
    free(job);
    return address;
}
