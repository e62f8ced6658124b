/* conn.h - simulated connections between clients and masters.
 *
 * A connection delivers messages in order, each after a random delay. When it
 * breaks, replies are lost. Requests that were sent still arrive at the master,
 * perhaps much later than those over the next connection; then the master
 * notices the end. */
#ifndef HF_TESTS_QUORUM_CONN_H
#define HF_TESTS_QUORUM_CONN_H

#include "base/buf.h"
#include "base/dlist.h"
#include "core/quorum/quorum.h"
#include "sim/schedule.h"

struct sim_link;
struct sim_conn;

/* One direction. */
struct sim_pipe {
    struct sim_conn *conn;
    struct hf_dlist packets;
    hf_time last; /* when the last packet arrives */
    struct sim_event event;
};

struct sim_conn {
    struct hf_dlist all; /* in the list of the quorum */
    struct sim_link *link;
    uint64_t number;
    bool is_broken;
    hf_time late_until; /* broken: requests arrive no earlier */
    struct sim_pipe to_master, to_client;
};

struct sim_packet {
    struct hf_dlist in_pipe;
    hf_time at;
    bool is_end;           /* the connection was closed */
    struct hf_claim_id id; /* the claim that gets the reply */
    struct hf_buf bytes;
};

struct sim_conn *sim_conn_new(struct sim_link *link, uint64_t number);

/* Free the connection and what is on its way. */
void sim_conn_free(struct sim_conn *conn);

/* Send a message; the caller has filled its bytes. */
struct sim_packet *sim_packet_new(const struct hf_claim_id *id);
void sim_pipe_send(struct sim_pipe *pipe, struct sim_packet *packet);

/* The client closes the connection, or it is lost. The connection frees itself
 * when everything has arrived. */
void sim_conn_break(struct sim_conn *conn);

#endif
