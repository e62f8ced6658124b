/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * hf-check-generate [OPS] [SEED]
 *
 * Writes a good history of OPS operations (a million unless told otherwise) of
 * 64 clients on 200 keys, to show how fast the checker is. */
#include "simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number(const char *text)
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
    struct simulate_opts opts = {
        .ops = argc > 1 ? number(argv[1]) : 1000000,
        .seed = argc > 2 ? number(argv[2]) : 1,
        .clients = 64,
        .keys = 200,
        .lease_max = 1000,
        .unit_ns = 1000,
        .trouble = 10,
    };
    struct history h;
    int status = 0;

    history_init(&h, false);
    simulate_good(&h, &opts);
    if (history_write(&h, stdout) < 0) {
        fprintf(stderr, "hf-check-generate: %s\n", strerror(errno));
        status = 2;
    }
    history_fini(&h);
    return status;
}
