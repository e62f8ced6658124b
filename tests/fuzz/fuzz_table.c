/* fuzz_table.c - the input chooses commands; the table and its twin, a simple
 * model of it (lib/twin.h), must agree. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    STEPS_MAX = 300,
};

static void check_same(const char *difference)
{
    if (!difference)
        return;
    (void)fprintf(stderr, "%s\n", difference);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_reader bytes = {.data = data, .size = size};
    struct hf_pair pair;

    hf_pair_init(&pair);
    for (int i = 0; i < STEPS_MAX && bytes.size > 0; i++) {
        check_same(hf_pair_step(&pair, &bytes));
        if (i % 8 == 0)
            check_same(hf_pair_check(&pair));
    }
    check_same(hf_pair_restore(&pair));
    hf_pair_fini(&pair);
    return 0;
}
