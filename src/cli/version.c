#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "json.h"

static int version_main(struct args *args)
{
    struct json json;

    if (args->json) {
        json_open(&json, stdout);
        json_text(&json, "version", HF_VERSION);
        json_text(&json, "library", hf_version());
        json_close(&json);
    } else if (!strcmp(HF_VERSION, hf_version())) {
        (void)printf("holdfast %s\n", HF_VERSION);
    } else {
        (void)printf("holdfast %s, library %s\n", HF_VERSION, hf_version());
    }
    return STATUS_OK;
}

const struct verb verb_version = {
    .name = "version",
    .words = "",
    .summary = "print the version",
    .text =
        "Prints the version of the command, and that of the library if they\n"
        "differ.\n",
    .examples = "  holdfast version\n",
    .words_min = 0,
    .words_max = 0,
    .main = version_main,
};
