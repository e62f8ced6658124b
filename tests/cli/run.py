#!/usr/bin/env python3
"""`holdfast run`: the command's status, signals, descriptors and death."""
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from cases import (HOLDFAST, LIMIT, LONG, Running, Skip, TooSlow,
                   alive, alone, case, check, equal, lasting, main, read, run,
                   until)

TTL_MS = 1000


def ran(*args, wanted=0, **options):
    return run('run', 'k', '--', *args, wanted=wanted, env=alone(), **options)


def script(text, *options, **more):
    """Start a shell script that runs under the lock."""
    return Running('run', *options, 'k', '--', 'sh', '-c', text, env=alone(),
                   **more)


def await_line(running, word):
    """Wait until the script has printed the word."""
    equal(running.line(), word)


@case
def run_exits_with_the_status_of_the_command():
    for status in (0, 1, 7, 64, 75, 79, 126, 127, 255):
        ran('sh', '-c', f'exit {status}', wanted=status)


@case
def a_command_killed_by_signal_n_exits_with_128_plus_n():
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP,
                   signal.SIGINT, signal.SIGSEGV, signal.SIGUSR1):
        ran('sh', '-c', f'ulimit -c 0; kill -{int(number)} $$',
            wanted=128 + number)


@case
def a_command_that_cannot_be_executed_exits_with_126_or_127():
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, 'plain')
        with open(plain, 'w', encoding='ascii') as file:
            file.write('exit 5\n')
        for command, status in ((plain, 126), (folder, 126),
                                (plain + '/x', 126), (plain + '-not', 127),
                                ('no-such-command-here', 127)):
            ended = ran(command, wanted=status)
            check(ended.err.startswith('holdfast: ' + command), ended)
        os.chmod(plain, 0o755)
        ran(plain, wanted=5)  # without "#!": as shells do


@case
def run_adds_only_the_lock_to_the_environment():
    env = dict(alone(), HOLDFAST_KEY='old', OTHER='a=b\nc')
    ended = run('run', '--ttl', '12s', 'a key', '--', 'env', '-0', env=env)
    got = dict(line.split('=', 1) for line in ended.out.split('\0') if line)
    equal((got['HOLDFAST_KEY'], got['HOLDFAST_TTL_MS']), ('a key', '12000'))
    check(int(got['HOLDFAST_TOKEN']) > 0, got)
    equal(len(bytes.fromhex(got['HOLDFAST_NONCE'])), 16)
    env.update({name: got[name] for name in got if name.startswith('HOLDFAST')})
    equal(got, env)


@case
def run_does_not_touch_stdin_and_stdout():
    data = os.urandom(1 << 20)
    done = subprocess.run([HOLDFAST, 'run', 'k', '--', 'cat'], env=alone(),
                          input=data, stdout=subprocess.PIPE, check=True)
    check(done.stdout == data, 'other bytes came out')
    # Input that the command does not read is left for the next command.
    done = subprocess.run(['sh', '-c', '"$0" run k -- head -c1; cat', HOLDFAST],
                          env=alone(), input=b'x', stdout=subprocess.PIPE,
                          check=True)
    equal(done.stdout, b'x')


DESCRIPTORS = '''
import os
fds = os.listdir("/proc/self/fd")  # includes one for the listing
print(sorted(fd for fd in fds if os.path.exists("/proc/self/fd/" + fd) and
             not os.readlink("/proc/self/fd/" + fd).endswith("/arena")))
'''


@case
def the_command_inherits_exactly_our_descriptors_and_that_of_the_lock():
    plain = subprocess.run([sys.executable, '-c', DESCRIPTORS], env=alone(),
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           check=True).stdout.decode()
    equal(ran(sys.executable, '-c', DESCRIPTORS).out, plain)
    read_end, write_end = os.pipe()
    got = ran(sys.executable, '-c',
              f'import os; os.fstat({write_end}); print("there")',
              pass_fds=[write_end]).out
    equal(got, 'there\n')
    os.close(read_end)
    os.close(write_end)


@case
def a_closed_standard_descriptor_stays_closed():
    for closed in ('0<&-', '2>&-', '0<&- 2>&-'):
        probe = ('for fd in 0 2; do [ -e /proc/$$/fd/$fd ] && '
                 'printf "%s " $fd; done; echo')
        line = f'"$@" {closed}'
        want = subprocess.run(['sh', '-c', line, 'sh', 'sh', '-c', probe],
                              stdin=subprocess.DEVNULL, env=alone(),
                              stdout=subprocess.PIPE, check=False).stdout
        got = subprocess.run(['sh', '-c', line, 'sh', HOLDFAST, 'run', 'k',
                              '--', 'sh', '-c', probe], env=alone(),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             check=False).stdout
        equal(got, want, closed)
    # Nor does a file that holdfast opens get its number.
    running = script('echo ready; sleep 60', preexec_fn=lambda: os.close(2),
                     stderr=None)
    await_line(running, 'ready')
    equal(os.readlink(f'/proc/{running.pid}/fd/2'), '/dev/null')


@case
def the_command_inherits_our_signal_mask_and_actions():
    probe = ['grep', '-E', '^Sig(Blk|Ign|Cgt)', '/proc/self/status']
    for ignored in ([], [signal.SIGHUP, signal.SIGINT], [signal.SIGCHLD],
                    [signal.SIGPIPE, signal.SIGTSTP]):
        def prepare(numbers=tuple(ignored)):
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        plain = subprocess.run(probe, preexec_fn=prepare, check=True,
                               stdout=subprocess.PIPE).stdout
        got = subprocess.run([HOLDFAST, 'run', 'k', '--', *probe], env=alone(),
                             preexec_fn=prepare, check=True,
                             stdout=subprocess.PIPE).stdout
        equal(got, plain, ignored)


@case
def signals_are_forwarded_to_the_process_group():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT,
                   signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
                   signal.SIGWINCH, signal.SIGALRM, signal.SIGRTMIN + 3):
        running = script(
            f'trap "echo outer; exit 3" {int(number)}; '
            f'sh -c \'trap "echo inner; exit" {int(number)}; echo ready; '
            'while :; do sleep 0.05; done\'; sleep 5')
        await_line(running, 'ready')
        running.signal(number)
        equal(sorted([running.line(), running.line()]), ['inner', 'outer'],
              number)
        running.end(3)


@case
def an_ignored_signal_stays_ignored():
    running = script('echo ready; sleep 0.5; exit 4', preexec_fn=lambda:
                     signal.signal(signal.SIGHUP, signal.SIG_IGN))
    await_line(running, 'ready')
    running.signal(signal.SIGHUP)
    running.end(4)


@case
def the_command_leads_a_new_process_group():
    group = int(ran(sys.executable, '-c',
                    'import os; print(int(os.getpgrp() == os.getpid()))').out)
    equal(group, 1)


@case
def the_command_is_killed_when_run_dies():
    for number in (signal.SIGKILL, signal.SIGSEGV):
        running = script('echo $$; trap "" TERM INT HUP; '
                         'while :; do sleep 0.05; done')
        pid = int(running.line())
        check(alive(pid))
        running.signal(number)
        until(lambda pid=pid: not alive(pid), 'the end of the command')
        running.end(None)  # a sanitizer has a status of its own


@case
@lasting(TTL_MS)
def the_lock_is_renewed_while_the_command_runs(ttl_ms):
    ended = run('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                f'sleep {3 * ttl_ms / 1000}; echo done', env=alone(),
                wanted=None)
    if ended.status == 79:
        raise TooSlow
    equal((ended.status, ended.out), (0, 'done\n'))


@case
@lasting(TTL_MS)
def a_run_stopped_beyond_its_lease_kills_before_anything_else(ttl_ms):
    with tempfile.TemporaryDirectory() as folder:
        ticks = os.path.join(folder, 'ticks')
        running = script(f'trap "" TERM; sh -c "trap \\"\\" TERM; while :; '
                         f'do echo t >>{ticks}; sleep 0.02; done" & echo $$ $!;'
                         'wait; wait', '--ttl', f'{ttl_ms}ms')
        pids = [int(pid) for pid in running.line().split()]
        until(lambda: read(ticks), 'the first tick')
        running.signal(signal.SIGSTOP)
        time.sleep(ttl_ms / 1000 * 1.5)
        if not all(alive(pid) for pid in pids):
            raise TooSlow  # it was lost before
        running.signal(signal.SIGCONT)
        ended = running.end(79)
        check('lost' in ended.err and 'killed' in ended.err, ended)
        for pid in pids:
            until(lambda pid=pid: not alive(pid), 'the end of the group')
        before = read(ticks)
        time.sleep(0.2)
        equal(read(ticks), before, 'it went on')


@case
def a_run_stopped_within_its_lease_continues():
    running = script('echo ready; sleep 0.7; exit 6', '--ttl', LONG)
    await_line(running, 'ready')
    running.signal(signal.SIGSTOP)
    time.sleep(0.3)
    running.signal(signal.SIGCONT)
    running.end(6)


@case
@lasting(TTL_MS)
def without_a_terminal_a_stopped_command_keeps_the_lock(ttl_ms):
    running = script('echo $$; kill -STOP $$; exit 5', '--ttl', f'{ttl_ms}ms',
                     start_new_session=True)
    running.line()
    time.sleep(ttl_ms / 1000 * 2)
    running.signal(signal.SIGCONT)  # is forwarded
    ended = running.end(None)
    if ended.status == 79:
        raise TooSlow  # to renew
    equal(ended.status, 5)


@case
def with_close_run_does_not_wait_for_a_background_child():
    with tempfile.TemporaryDirectory() as folder:
        running = script(f'sleep 3000 >/dev/null 2>&1 & echo $! >{folder}/pid',
                         '-o', stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        running.end(0)
        os.kill(int(read(f'{folder}/pid')), signal.SIGKILL)


class SilentServer:
    """A port that accepts connections and never answers."""

    def __init__(self):
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.socket.settimeout(LIMIT)
        self.port = self.socket.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept_from(self, running):
        """Wait for the connection of the command, and return it."""
        until(lambda: select.select([self.socket], [], [], 0)[0] or
              running.process.poll() is not None, 'a connection')
        if running.process.poll() is not None:
            check('no strategy' in running.end(None).err)
            raise Skip('not in this build')
        return self.socket.accept()[0]


@case
def the_password_is_removed_from_the_command_line():
    with SilentServer() as silent:
        url = f'redis://eve:sesame@127.0.0.1:{silent.port}/0'
        for option in [f'--url={url}'], ['--url', url]:
            running = Running(*option, 'run', 'k', '--', 'true')
            caller = silent.accept_from(running)
            words = read(f'/proc/{running.pid}/cmdline')
            check('//eve:******@127.0.0.1' in words, words)
            caller.close()
            ended = running.end(None)
            check(ended.status == 69 and 'sesame' not in ended.err, ended)


@case
def a_killed_process_leaves_no_shared_memory():
    with SilentServer() as silent:
        running = Running('--url', f'mongodb://127.0.0.1:{silent.port}', 'run',
                          'k', '--', 'true')
        silent.accept_from(running).close()
        os.kill(running.pid, signal.SIGKILL)
        running.end(-signal.SIGKILL)
        left = [name for name in os.listdir('/dev/shm')
                if name.endswith(f'-{running.pid}')]
        equal(left, [])


if __name__ == '__main__':
    main()
