/* link.h - one connection to a node, in MUX mode (wire/mux.h).
 *
 *            open             connected          HELLO            set_up
 *     DOWN -------> CONNECTING ------->  HELLO   -------> READY -------> UP
 *      ^                |                  |                |            |
 *      +----------------+------ lost ------+----------------+------------+
 *
 * Requests are collected during a turn and written when it ends.
 *
 * A process or machine that has stopped does not close its connections, so a
 * silent node is detected by PINGs. While something is awaited from the node,
 * the link is lost after 1.5 seconds without a byte; a PING is sent after half
 * a second, once HELLO was answered. While nothing is awaited, a PING is sent
 * after 10 seconds. A PING is also sent if the client has sent nothing for 10
 * seconds, because a node closes the connections of silent clients. */
#ifndef HF_STRATEGY_NET_LINK_H
#define HF_STRATEGY_NET_LINK_H

#include "strategy/net/net.h"
#include "wire/mux.h"

struct hf_net_link;

enum hf_net_link_state {
    HF_NET_LINK_DOWN,
    HF_NET_LINK_CONNECTING,
    HF_NET_LINK_HELLO, /* HELLO was sent */
    HF_NET_LINK_READY, /* HELLO was answered: requests can be sent */
    HF_NET_LINK_UP,    /* the owner has set it up */
};

/* Callbacks of the owner. Each but is_awaiting() may close the link. */
struct hf_net_link_ops {
    /* HELLO was answered: the link is READY. */
    void (*ready)(struct hf_net_link *link, const struct hf_mux_hello *hello);

    /* A reply to the request `id`; 0: a push. */
    void (*message)(struct hf_net_link *link, uint64_t id,
                    const struct hf_resp_message *message);

    /* The link is DOWN: it was lost, or could not be opened. `was_up`: it was
     * UP before. */
    void (*lost)(struct hf_net_link *link, bool was_up,
                 const struct hf_error *failure);

    /* Returns true if the node of an UP link owes a message. */
    bool (*is_awaiting)(const struct hf_net_link *link);
};

/* The owner embeds the link in its own struct. */
struct hf_net_link {
    struct hf_net *net;
    const struct hf_net_link_ops *ops;
    enum hf_net_link_state state;
    struct hf_net_stream stream;
    struct hf_net_address *address;
    unsigned incarnation; /* changes when it is opened or closed */
    struct hf_resp_reader reader;
    struct hf_buf output;
    struct hf_post flush; /* writes `output` when the turn ends */
    hf_time since;        /* when the present state began */
    uint32_t hello_ms;    /* how long HELLO took to be answered */
    hf_time received_at;  /* when data last arrived, or was first awaited */
    hf_time sent;         /* when the last request was sent */
    uint64_t ping;        /* id of a PING without a reply; 0: none */
};

void hf_net_link_init(struct hf_net_link *link, struct hf_net *net,
                      const struct hf_net_link_ops *ops);

/* Connect to `address`, which must be valid until the link is down. A failure
 * is reported as a loss inside the call. */
void hf_net_link_open(struct hf_net_link *link, struct hf_net_address *address);

/* The owner can use the link: it is READY and becomes UP. */
void hf_net_link_set_up(struct hf_net_link *link);

/* Write the requests that were sent in this turn, and close the link. A loss is
 * not reported. Does nothing if the link is down. */
void hf_net_link_close(struct hf_net_link *link);

/* Close the link, and report `err` and `text` as a loss. */
void hf_net_link_lose(struct hf_net_link *link, enum hf_err err,
                      const char *text);

/* Send a request when this turn ends. The link must be READY or UP. If memory
 * is exhausted, the link is lost later in this turn. */
void hf_net_link_send(struct hf_net_link *link,
                      const struct hf_mux_request *request);

/* Call this before is_awaiting() begins to return true. If nothing was awaited,
 * the silence of the node counts from now. */
void hf_net_link_expect(struct hf_net_link *link);

/* Write the requests that were sent in this turn. */
void hf_net_link_flush(struct hf_net_link *link);

/* Send a PING if it is due, or lose the link if the node has been silent for
 * too long. hf_net_link_deadline() returns when to call this next. */
void hf_net_link_tick(struct hf_net_link *link);
hf_time hf_net_link_deadline(const struct hf_net_link *link);

#endif
