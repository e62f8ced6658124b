#include "wire/verb.h"

#include "base/assert.h"

static const struct {
    const char *name;
    struct hf_verb_words plain, mux;
} verbs[] = {
#define ROW(name, plain_min, plain_max, mux_min, mux_max)                      \
    {#name, {plain_min, plain_max}, {mux_min, mux_max}},
    HF_VERBS(ROW)
#undef ROW
};

const char *hf_verb_name(enum hf_verb verb)
{
    HF_ASSERT(verb < HF_VERB_COUNT);
    return verbs[verb].name;
}

enum hf_verb hf_verb_find(const struct hf_resp_value *name)
{
    unsigned verb = 0;

    while (verb < HF_VERB_COUNT && !hf_resp_equals(name, verbs[verb].name))
        verb++;
    return (enum hf_verb)verb;
}

struct hf_verb_words hf_verb_words(enum hf_verb verb, bool is_mux)
{
    HF_ASSERT(verb < HF_VERB_COUNT);
    return is_mux ? verbs[verb].mux : verbs[verb].plain;
}
