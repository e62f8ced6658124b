#!/usr/bin/env python3
"""`holdfast torture`, with stores that keep their promises and one that does
not."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading

from cases import (HOLDFAST, Running, Skip, TooSlow, alive, case, check,
                   environment, equal, lasting, main, read, run, store, until)
from redis_server import redis

HF_CHECK = os.path.join(os.path.dirname(HOLDFAST), 'tools/hf-check/hf-check')
DAEMON = os.path.join(os.path.dirname(HOLDFAST), 'holdfastd')
TTL = ['--ttl', '300ms']

# Deletes every lock of the test, but not its token.
BREAK = ("""EVAL "for _, key in ipairs(redis.call('KEYS', """
         """'holdfast-torture/*')) do redis.call('DEL', key) end" 0""")

HOSTILE = (
    (['--for', '0'], '--for: 0 is too short'),
    (['--for', '1e9'], '--for: 1e9 is not a duration'),
    (['--for', '9999999h'], '--for: 9999999h is too long'),
    (['--ttl', '0ms'], '--ttl: 0ms is too short'),
    (['--clients', '0'], '--clients: 0 is too small; the minimum is 1'),
    (['--clients', '257'], '--clients: 257 is too large'),
    (['--clients', '-1'], '--clients: -1 is not a number'),
    (['--keys', '0'], '--keys: 0 is too small; the minimum is 1'),
    (['--keys', '1025'], '--keys: 1025 is too large'),
    (['--keys'], '--keys requires a value'),
    (['--kill=9'], '--kill takes no value'),
    (['--seed', '18446744073709551616'], 'is too large'),
    (['--seed', ''], 'is not a number'),
    (['--wait', '5s'], 'unknown option --wait'),
    (['memory:x'], 'memory: is for the threads of one program'),
    ([''], 'is empty'),
    (['nonsense:x'], 'nonsense'),
    (['file:a', 'file:b'], 'too many arguments'),
)


def hf_check(*args, wanted):
    """Run the checker, which knows nothing about holdfast."""
    if not os.path.exists(HF_CHECK):
        raise Skip('hf-check is not built')
    done = subprocess.run([HF_CHECK, *args], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    equal(done.returncode, wanted, done.stdout)
    return done.stdout.decode()


def torture(*args, wanted=0, **options):
    """Run it with --json. Raises TooSlow if no lock was granted."""
    ended = run('torture', '--json', *TTL, *args, wanted=None, **options)
    if ended.status == 69 and wanted == 0:
        raise TooSlow
    equal(ended.status, wanted, ended)
    (result,) = ended.json()
    return result


def workers(running):
    """The processes of a test, once all of them have been started."""
    path = f'/proc/{running.pid}/task/{running.pid}/children'
    if not os.path.exists(path):
        raise Skip('the kernel does not list children')
    # The first child is another one, which examines the store.
    until(lambda: len(read(path).split()) > 1, 'the workers')
    return [int(pid) for pid in read(path).split()]


@contextlib.contextmanager
def raft():
    """A node of its own. Yields its URL."""
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        dir_ = ['--dir', os.path.join(folder, 'cluster')]
        try:
            yield run('cluster', 'up', '--nodes', '1', *dir_).out.strip()
        finally:
            run('cluster', 'down', *dir_, wanted=None)


@contextlib.contextmanager
def redlock():
    """Three servers. Yields their URL."""
    with redis() as a, redis() as b, redis() as c:
        yield 'redlock://' + ','.join(f'127.0.0.1:{server.port}'
                                      for server in (a, b, c))


def check_good_run(url, for_ms, *check_options):
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        path = os.path.join(folder, 'history')
        result = torture('--kill', '--for', f'{for_ms}ms', '--history', path,
                         url)
        equal((result['violations'], result['found']), (0, []), result)
        equal(result['history'], path)
        if result['kills'] == 0 or result['stops'] == 0:
            raise TooSlow
        check(result['operations'] > result['grants'] > 0, result)
        hf_check(*check_options, path, wanted=0)


# MJ-12
@case
@lasting(6000)
def a_store_that_keeps_its_promises_exits_with_0(for_ms):
    with store() as s:
        check_good_run(s.url, for_ms)


# MJ-12
@case
@lasting(3000)
def a_server_that_keeps_its_promises_exits_with_0(for_ms):
    with redis() as server:
        check_good_run(server.url, for_ms)


# MJ-12
@case
@lasting(3000)
def a_cluster_that_keeps_its_promises_exits_with_0(for_ms):
    with raft() as url:
        check_good_run(url, for_ms)


# MJ-12
@case
@lasting(3000)
def tokens_are_not_checked_without_the_capability_fence(for_ms):
    with redlock() as url:
        check_good_run(url, for_ms, '--no-fence')


def run_until_broken(server, folder, *options):
    """Run with a lock that does not exclude: it is deleted while it is held."""
    running = Running('torture', '--for', '1h', *TTL, *options, server.url,
                      cwd=folder)
    ended = threading.Event()

    def break_locks():
        while not ended.is_set():
            with contextlib.suppress(OSError):
                server.say(BREAK)

    thread = threading.Thread(target=break_locks)
    thread.start()
    try:
        return running.end(1)
    finally:
        ended.set()
        thread.join()


def check_broken_history(folder, key):
    (name,) = os.listdir(folder)
    shown = hf_check(os.path.join(folder, name), wanted=1)
    check('VIOLATION' in shown and f'"{key}"' in shown, shown)
    return name


# MJ-12
@case
def a_broken_lock_exits_with_1():
    with redis() as server, tempfile.TemporaryDirectory() as folder:
        ended = run_until_broken(server, folder)
        key = re.search(r'violation: [a-z-]+ of the key (\S+):',
                        ended.err).group(1)
        check(key.startswith('holdfast-torture/'), ended.err)
        name = check_broken_history(folder, key)
        check(f"check it with 'hf-check {name}'" in ended.err, ended.err)
        check('VIOLATION' in ended.out and key in ended.out, ended.out)
        check('no violation' not in ended.out, ended.out)


@case
def a_broken_lock_is_reported_as_json():
    with redis() as server, tempfile.TemporaryDirectory() as folder:
        ended = run_until_broken(server, folder, '--json')
        (result,) = ended.json()
        equal(result['violations'], len(result['found']), result)
        first = result['found'][0]
        equal(set(first), {'kind', 'key', 'text'})
        equal(check_broken_history(folder, first['key']), result['history'])


@case
def a_store_that_is_not_reached_exits_with_69():
    with redis(started=False) as server:
        ended = run('torture', server.url, wanted=69)
        check('efused' in ended.err and not ended.out, ended)
        ended = run('torture', '--json', server.url, wanted=69)
        (reply,) = ended.json()
        equal(reply['error']['name'], 'HF_EUNAVAIL')


class Proxy:
    """A proxy in front of a server. It refuses connections after the first
    client has closed one."""

    def __init__(self, port):
        self.to = ('127.0.0.1', port)
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.socket.accept()[0]
                far = socket.create_connection(self.to)
                for pair in (near, far), (far, near):
                    threading.Thread(target=self.copy, args=pair,
                                     daemon=True).start()

    def copy(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            # Wakes accept(), which close() alone does not.
            self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
            target.close()


@case
def a_test_without_a_grant_exits_with_69():
    with redis() as server:
        url = f'redis://127.0.0.1:{Proxy(server.port).port}'
        ended = run('torture', '--for', '1s', url, wanted=69)
        check('no lock was granted; no server reachable' in ended.err, ended)
        check(not ended.out, ended)


@case
def hostile_options_are_refused():
    for args, text in HOSTILE:
        ended = run('torture', *args, wanted=64)
        check(text in ended.err.splitlines()[0] and not ended.out, args, ended)
    ended = run('torture', '--url', 'file:x', 'redis://:hunter2@h', wanted=64)
    check('--url' in ended.err and 'hunter2' not in ended.err, ended)


@case
def a_history_that_cannot_be_written_is_refused_before_the_test():
    with store() as s:
        ended = s.run('torture', '--for', '1h', '--history',
                      s.file('none/history'), wanted=74)
        check('--history: cannot write' in ended.err, ended)


@case
def a_signal_ends_the_test_and_its_workers():
    with store() as s:
        running = s.start('torture', '--for', '1h', '--clients', '3')
        pids = workers(running)
        running.signal(signal.SIGINT)
        ended = running.end(-signal.SIGINT)
        check('no violation' in ended.out, ended)
        check(not any(map(alive, pids)), pids)


def has_opened(path, pid):
    """Whether a process has a file in a folder open."""
    folder = f'/proc/{pid}/fd'
    with contextlib.suppress(OSError):
        return any(os.readlink(f'{folder}/{fd}').startswith(path)
                   for fd in os.listdir(folder))
    return False


@case
def workers_die_with_the_command():
    with store() as s:
        running = s.start('torture', '--for', '1h', '--clients', '3')
        pids = workers(running)
        until(lambda: all(has_opened(s.path, pid) for pid in pids), 'clients')
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        running.signal(signal.SIGKILL)
        try:
            until(lambda: not any(map(alive, pids)), 'the end of the workers')
        finally:
            for pid in filter(alive, pids):
                os.kill(pid, signal.SIGKILL)
        running.end(-signal.SIGKILL)


@case
def a_worker_that_dies_of_something_else_exits_with_70():
    with store() as s:
        running = s.start('torture', '--for', '1h')
        os.kill(workers(running)[0], signal.SIGKILL)
        ended = running.end(70)
        check('a worker was killed by signal 9' in ended.err, ended)


@case
def the_password_is_hidden():
    with redis('--requirepass', 'hunter2') as server:
        url = server.url.replace('//', '//:hunter2@')
        running = Running('torture', '-v', '--for', '1h', url)
        workers(running)
        shown = read(f'/proc/{running.pid}/cmdline')
        check('hunter2' not in shown and '*******' in shown, shown)
        running.signal(signal.SIGTERM)
        ended = running.end(-signal.SIGTERM)
        check('hunter2' not in ended.out + ended.err, ended)


if __name__ == '__main__':
    main()
