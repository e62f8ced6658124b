/* verb.h - the names of the commands of the client protocol. */
#ifndef HF_WIRE_VERB_H
#define HF_WIRE_VERB_H

#include "base/limits.h"
#include "wire/resp.h"

/* Columns: the name; the least and the most words after it in plain mode; the
 * same in MUX mode. -1: the mode does not have the command. The request id of
 * MUX mode, which is before the name, does not count. */
#define HF_VERBS(X)                                                            \
    X(DO, -1, -1, 2, 2) /* first, because it is the most frequent one */       \
    X(PING, 0, 1, 0, 0)                                                        \
    X(ECHO, 1, 1, -1, -1)                                                      \
    X(QUIT, 0, 0, -1, -1)                                                      \
    X(COMMAND, 0, HF_RESP_ELEMENTS_MAX, -1, -1)                                \
    X(HELLO, 1, 2, -1, -1)                                                     \
    X(INFO, 0, 1, -1, -1)                                                      \
    X(STATUS, 0, 0, 0, 0)                                                      \
    X(LOCK, 2, 10, -1, -1)                                                     \
    X(UNLOCK, 3, 3, -1, -1)                                                    \
    X(RENEW, 4, 4, -1, -1)                                                     \
    X(UPDATE, 4, 6, -1, -1)                                                    \
    X(CANCEL, 2, 2, -1, -1)                                                    \
    X(FORCE, 2, 3, -1, -1)                                                     \
    X(READ, 1, 2, 2, 2)                                                        \
    X(LIST, 0, 5, 2, 2)                                                        \
    X(LOOKUP, 2, 2, 3, 3)                                                      \
    X(WATCH, 1, 3, 4, 4)                                                       \
    X(UNWATCH, 0, 0, 1, 1)                                                     \
    X(OPEN, -1, -1, 2, 2)                                                      \
    X(ATTACH, -1, -1, 2, 2)                                                    \
    X(DETACH, -1, -1, 0, 0)                                                    \
    X(QUORUM, -1, -1, 1, 1)                                                    \
    X(DEBUG, 1, 1, -1, -1)

enum hf_verb {
#define HF_VERB(name, ...) HF_VERB_##name,
    HF_VERBS(HF_VERB)
#undef HF_VERB
    HF_VERB_COUNT /* also means: no such command */
};

struct hf_verb_words {
    int min; /* -1: the mode does not have the command */
    int max;
};

const char *hf_verb_name(enum hf_verb verb);
enum hf_verb hf_verb_find(const struct hf_resp_value *name);
struct hf_verb_words hf_verb_words(enum hf_verb verb, bool is_mux);

#endif
