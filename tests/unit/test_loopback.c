/* The ports that tests get for their servers. */
#include "lib/loopback.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/runner.h"

/* The child tries the same ports in the same order as its parent. */
static void two_processes_get_different_ports(void **state)
{
    int own, other = 0;
    int status = 0;
    int pipes[2];
    pid_t pid;

    (void)state;
    assert_true(hf_test_free_port() > 0);
    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        int port = hf_test_free_port();

        (void)!write(pipes[1], &port, sizeof(port));
        (void)pause(); /* the port stays reserved */
    }
    assert_int_equal(read(pipes[0], &other, sizeof(other)), sizeof(other));
    own = hf_test_free_port();
    assert_true(own > 0 && other > 0);
    assert_int_not_equal(own, other);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(two_processes_get_different_ports),
    };

    return hf_test_main("loopback", cases, HF_TEST_COUNT(cases), 0);
}
