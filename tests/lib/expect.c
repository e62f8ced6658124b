#include "lib/expect.h"

#include "lib/runner.h"

void hf_test_set_defaults(void)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_TEST_TIMEOUT_MS, HF_TEST_TIMEOUT_MS);

    expect_ok(hf_lock_opts_set_default(&opts));
}

struct hf_lock_opts hf_test_opts(uint32_t ttl_ms, uint32_t wait_ms,
                                 uint32_t timeout_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = wait_ms;
    opts.timeout_ms = timeout_ms;
    return opts;
}

void hf_test_expect(enum hf_err got, enum hf_err wanted, const char *call,
                    const char *file, int line)
{
    if (got == wanted)
        return;
    print_error("%s\nis %s (%s), should be %s\n", call, hf_err_name(got),
                hf_err_text(got), hf_err_name(wanted));
    _fail(file, line);
}
