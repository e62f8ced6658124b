/* site.h - the fixture of the file: cases: a temporary directory, and clients
 * that use directories inside it.
 *
 * Names are relative to the temporary directory. Most cases have their locks in
 * "locks", which the library creates. */
#ifndef HF_TESTS_LIB_SITE_H
#define HF_TESTS_LIB_SITE_H

#include <holdfast.h>

#include "lib/runner.h"

#define HF_SITE_CASE(name)                                                     \
    cmocka_unit_test_setup_teardown(name, hf_site_set_up, hf_site_tear_down)

int hf_site_set_up(void **state);
int hf_site_tear_down(void **state);

/* The path of `name`. The text is valid during the next three calls. */
const char *hf_site_path(const char *name);

/* Open the locks in `name`. `options` is the end of the URL, such as
 * "?mode=0770". hf_site_try() returns the error, with its text in `*error`.
 * hf_site_open_at() fails the case on an error. hf_site_refuse() expects the
 * error `expected`, with a text that contains `words`. */
enum hf_err hf_site_try(const char *name, const char *options,
                        struct hf_error *error, struct hf_client **client);
struct hf_client *hf_site_open_at(const char *name, const char *options);
void hf_site_refuse(const char *name, const char *options, enum hf_err expected,
                    const char *words);

/* Open the locks in "locks". */
struct hf_client *hf_site_open(void);

/* Options to wait without a limit, with a ttl that is longer than a case may
 * take. */
struct hf_lock_opts hf_site_wait_opts(void);

/* Wait until `count` claims are waiting for `key`. */
void hf_site_await_waiters(struct hf_client *client, const char *key,
                           uint32_t count);

#endif
