/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * hf-check-generate [OPS] [SEED]
 *
 * Writes a correct history of OPS operations (default: a million) of 64 clients
 * on 200 keys, to measure the speed of the checker. */
#include "encoder.h"
#include "simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t parse_number(const char *text)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);

    if (errno || end == text || *end) {
        fprintf(stderr, "usage: hf-check-generate [OPS] [SEED]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    struct hf_simulate_opts opts = {
        .ops = argc > 1 ? parse_number(argv[1]) : 1000000,
        .seed = argc > 2 ? parse_number(argv[2]) : 1,
        .clients = 64,
        .keys = 200,
        .lease_max = 1000,
        .unit_ns = 1000,
        .trouble = 10,
    };
    struct hf_check_history h;
    int status = 0;

    hf_check_history_init(&h, false);
    hf_simulate_run(&h, &opts);
    if (hf_encoder_write(&h, stdout) < 0) {
        fprintf(stderr, "hf-check-generate: %s\n", strerror(errno));
        status = 2;
    }
    hf_check_history_fini(&h);
    return status;
}
