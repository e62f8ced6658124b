/* arguments.h - read the arguments of a command of plain mode, word by word.
 *
 * A word that is not what it should be sets `cause`. The functions can be
 * called on all the same, so a command needs one check at its end. */
#ifndef HF_SERVE_ARGUMENTS_H
#define HF_SERVE_ARGUMENTS_H

#include "wire/mux.h"

/* The words after the name of the command that are not read yet. */
struct hf_arguments {
    const struct hf_resp_value *words;
    size_t count;
    const char *cause; /* what is wrong with one of them; NULL: nothing */
};

/* These take the next word. The caller has checked that there is one. */
const struct hf_resp_value *hf_arguments_word(struct hf_arguments *args);
uint64_t hf_arguments_number(struct hf_arguments *args, uint64_t max,
                             const char *cause);
void hf_arguments_nonce(struct hf_arguments *args, struct hf_nonce *nonce);

/* A prefix may be empty, a key may not. */
struct hf_key hf_arguments_key(struct hf_arguments *args, bool is_prefix);

/* Take the next word, if it is `name` and at least `more` words follow it. */
bool hf_arguments_option(struct hf_arguments *args, const char *name,
                         size_t more);

/* ---- Whole commands -----------------------------------------------------
 *
 * These take all words of a command, as a request of MUX mode. Members of the
 * request that the words do not name are not changed. */

/* READ: sets `linearizable`. */
void hf_arguments_read(struct hf_arguments *args,
                       struct hf_mux_request *request);

/* The arguments of a plain LIST besides its prefix: list at most HF_LIST_COUNT
 * keys, after the cursor HF_LIST_AFTER. They are stored in members of the
 * request that a LIST does not use otherwise. */
#define HF_LIST_AFTER(request) ((request)->from)
#define HF_LIST_COUNT(request) ((request)->remaining_ms)

void hf_arguments_list(struct hf_arguments *args,
                       struct hf_mux_request *request);

void hf_arguments_watch(struct hf_arguments *args,
                        struct hf_mux_request *request);

#endif
