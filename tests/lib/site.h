/* site.h - a folder of a case's own, and the clients that meet there.
 *
 * Names are relative to the folder. Most cases have their locks in "locks",
 * which the library makes. */
#ifndef HF_TESTS_LIB_SITE_H
#define HF_TESTS_LIB_SITE_H

#include <holdfast.h>

#include "lib/runner.h"

#define HF_SITE_CASE(name)                                                     \
    cmocka_unit_test_setup_teardown(name, hf_site_set_up, hf_site_tear_down)

int hf_site_set_up(void **state);
int hf_site_tear_down(void **state);

/* The path of `name`, good until the next call but three. */
const char *hf_site_path(const char *name);

/* Open the locks in `name`; `options` is the end of the URL, as "?mode=0770".
 * The second must succeed; the third fail, with these words in its text. */
enum hf_err hf_site_try(const char *name, const char *options,
                        struct hf_error *error, struct hf_client **client);
struct hf_client *hf_site_open_at(const char *name, const char *options);
void hf_site_refuse(const char *name, const char *options, enum hf_err expected,
                    const char *words);

/* Open those in "locks". */
struct hf_client *hf_site_open(void);

/* Options to wait for ever, and to hold for longer than a case may take. */
struct hf_lock_opts hf_site_patient(void);

/* Wait until `count` claims are in line for `key`. */
void hf_site_await_waiters(struct hf_client *client, const char *key,
                           uint32_t count);

#endif
