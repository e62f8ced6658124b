#!/usr/bin/env python3
"""Servers that are down, hang or refuse the user; retries and reports of -v."""
import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import threading
import time

from cases import (LIMIT, LONG, Running, TooSlow, case, check, environment,
                   equal, free_port, lasting, main, store, run, until)
from redis_server import redis

VERBS = (['run', '-w', '300ms', 'k', '--', 'echo', 'ran'],
         ['lock', '-w', '300ms', 'k'], ['wait', '-w', '300ms', 'k'])


@case
def a_server_that_is_down_exits_with_69_after_the_wait():
    url = f'redis://127.0.0.1:{free_port()}'
    with redis(started=False):
        for args in VERBS:
            begun = time.monotonic()
            ended = run(*args, env=environment(HOLDFAST_URL=url), wanted=69)
            check(time.monotonic() - begun > 0.3, 'gave up too early')
            check('efused' in ended.err and not ended.out, ended)
        run('run', 'k', '--', 'true', env=environment(HOLDFAST_URL=url),
            wanted=69)
        run('run', '-n', 'k', '--', 'true', env=environment(HOLDFAST_URL=url),
            wanted=69)


@case
def a_server_that_hangs_exits_with_69_after_the_wait():
    with redis(started=False), socket.create_server(('127.0.0.1', 0)) as silent:
        env = environment(HOLDFAST_URL='redis://127.0.0.1:'
                          f'{silent.getsockname()[1]}')
        for args in VERBS:
            ended = run(*args, env=env, wanted=69)
            check('in time' in ended.err and not ended.out, ended)


@case
def a_server_that_comes_up_during_the_wait_is_reached():
    with redis(started=False) as server:
        waiting = [Running(verb, '-w', f'{LIMIT}s', *args, env=server.env)
                   for verb, *args in (['run', 'a', '--', 'echo', 'ran'],
                                       ['lock', 'b'], ['wait', 'c'])]
        time.sleep(0.5)
        server.start()
        outputs = [running.end(0).out for running in waiting]
        equal(outputs[0], 'ran\n')
        check(outputs[1].startswith('b ') and outputs[2] == 'c free\n', outputs)


@case
def connection_attempts_back_off():
    with redis(started=False), socket.create_server(('127.0.0.1', 0)) as rude:
        attempts = []

        def refuse():
            with contextlib.suppress(OSError):
                while True:
                    rude.accept()[0].close()
                    attempts.append(time.monotonic())

        threading.Thread(target=refuse, daemon=True).start()
        url = f'redis://127.0.0.1:{rude.getsockname()[1]}'
        for verb in ['wait', '-w', '4s', 'k'], ['lock', '-w', '4s', 'k']:
            attempts.clear()
            run(*verb, env=environment(HOLDFAST_URL=url), wanted=69)
            # 50, 100, ... 800 ms, and a second from then on.
            most = 7 + (attempts[-1] - attempts[0])
            check(2 < len(attempts) <= most, verb, len(attempts), 'attempts')


class Proxy:
    """A proxy in front of a server. It stops forwarding on the first connection
    that contains a given word, and keeps it open."""

    def __init__(self, port, word):
        self.to, self.word = ('127.0.0.1', port), word
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        self.silent = False
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
                if self.word in data and not self.silent:
                    self.silent = True
                    return  # both ends stay open
                target.sendall(data)
            target.close()


@case
def a_lost_request_is_retried_during_the_wait():
    with redis() as server:
        proxy = Proxy(server.port, b'odd-key')
        env = environment(HOLDFAST_URL=f'redis://127.0.0.1:{proxy.port}')
        ended = run('run', '-v', '-w', f'{LIMIT}s', 'odd-key', '--', 'echo',
                    'ran', env=env)
        check(proxy.silent and ended.out == 'ran\n', ended)
        check('does not answer' in ended.err, ended)


@case
def the_wait_limits_server_and_queue_together():
    with redis() as server:
        run('lock', '--ttl', LONG, 'k', env=server.env)
        ended = run('run', '-w', '0.3', 'k', '--', 'true', env=server.env,
                    wanted=75)
        check('held by' in ended.err, ended)
        run('run', '-w', '0.3', '-E', '9', 'k', '--', 'true', env=server.env,
            wanted=9)


@case
def a_signal_ends_the_wait_for_a_server():
    with redis(started=False), socket.create_server(('127.0.0.1', 0)) as silent:
        url = f'redis://127.0.0.1:{silent.getsockname()[1]}'
        for port_url in url, f'redis://127.0.0.1:{free_port()}':
            for verb in ['run', 'k', '--', 'true'], ['lock', 'k']:
                running = Running(verb[0], '-w', '1h', *verb[1:],
                                  env=environment(HOLDFAST_URL=port_url))
                time.sleep(0.3)
                running.signal(signal.SIGINT)
                running.end(-signal.SIGINT)


@case
def a_signal_ends_the_wait_for_a_directory_that_is_locked():
    with store() as s, open(s.file('locks/lock'), 'rb') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for options in [], ['-w', '1h']:
            running = s.start('run', *options, 'k', '--', 'true')
            time.sleep(0.3)
            running.signal(signal.SIGINT)
            running.end(-signal.SIGINT)


@case
def refused_credentials_exit_with_77():
    with redis('--requirepass', 'sesame') as server:
        for user in '', ':wrong@', 'eve:wrong@':
            url = server.url.replace('//', '//' + user)
            for args in (['run', '-w', LONG, 'k', '--', 'true'], ['ls']):
                ended = run(*args, env=environment(HOLDFAST_URL=url),
                            wanted=77)
                check('wrong' not in ended.err.replace('WRONG', ''), ended)
        run('run', 'k', '--', 'true', env=environment(
            HOLDFAST_URL=server.url.replace('//', '//:sesame@')))


# ---- Releasing -------------------------------------------------------------

def run_during(server, action, wanted, *options):
    """Call `action` while a command runs under the lock."""
    read_end, write_end = os.pipe()
    running = Running('run', '--ttl', LONG, *options, 'k', '--', 'sh', '-c',
                      'echo ready; read line; exit 3', env=server.env,
                      stdin=read_end)
    os.close(read_end)
    equal(running.line(), 'ready')
    action()
    os.close(write_end)
    return running.end(wanted)


@case
def a_failed_release_is_reported_with_its_cause():
    with redis() as server:
        ended = run_during(server, server.stop, 3)
        check(re.search('k: the lock was held until the command ended, but '
                        'could not be released: .*; it may stay held',
                        ended.err), ended)


@case
def an_overwritten_lock_exits_with_79():
    def overwrite():
        server.say('DEL k')
        server.say('HSET k field value')

    with redis() as server:
        ended = run_during(server, overwrite, 79)
        check('lost' in ended.err and 'another type' in ended.err, ended)


# ---- Reports ---------------------------------------------------------------

@case
def verbose_reports_the_store_and_the_queue():
    with redis() as server:
        held = run('lock', '--ttl', LONG, 'k', env=server.env).out.split()
        first = Running('run', '--ttl', LONG, 'k', '--', 'cat',
                        env=server.env, stdin=subprocess.PIPE)
        until(lambda: '"waiters":1' in
              run('show', '--json', 'k', env=server.env).out, 'the first')
        env = dict(server.env,
                   HOLDFAST_URL=server.url.replace('//', '//default:sesame@'))
        server.say('CONFIG SET requirepass sesame')
        waiting = Running('run', '-v', 'k', '--', 'echo', 'ran', env=env)
        lines = waiting.process.stderr
        line = lines.readline().decode()
        check(f'default:******@127.0.0.1:{server.port} (HOLDFAST_URL)' in line,
              line)
        line = lines.readline().decode()
        check('waiting, position 2 in the queue: k is held by' in line, line)
        run('unlock', *held, env=env)
        while not re.search(r'position 1 .*held by cat\[', line):
            line = lines.readline().decode()
            check(line, 'it has ended')
        first.end(0)
        ended = waiting.end(0)
        check('held with token' in ended.err, ended)


@case
def verbose_reports_failed_renewals_and_retries():
    with redis() as server:
        running = Running('run', '-v', '--ttl', '3s', 'k', '--', 'sleep',
                          '600', env=server.env)
        line = ''
        while 'held with token' not in line:
            line = running.process.stderr.readline().decode()
            check(line, 'it has ended')
        server.stop()
        text = running.end(79).err
        check(re.search(r'at risk, \d+ ms left: renewals fail: .*efused',
                        text), text)
        check(re.search(r'the lock was lost .*efused', text), text)
        check(text.index('not renewed, ') < text.index('at risk, '), text)
    with redis(started=False) as server:
        running = Running('run', '-v', '-w', '1h', 'k', '--', 'true',
                          env=server.env)
        line = ''
        while 'trying again' not in line:
            line = running.process.stderr.readline().decode()
            check(line, 'it has ended')
        check('efused' in line, line)
        running.signal(signal.SIGTERM)


def read_report(running, wanted):
    """Read stderr up to a line that contains `wanted`, and return that."""
    line = ''
    while wanted not in line:
        line = running.process.stderr.readline().decode()
        if 'the lock is lost' in line:
            raise TooSlow
        check(line, 'it has ended, without', wanted)
    return line


@case
@lasting(6000)
def verbose_reports_each_outage_and_its_end(ttl_ms):
    with redis() as server:
        for verb in ['run', '-v'], ['lock', '-v', '--hold']:
            command = ['--', 'cat'] if verb[0] == 'run' else []
            running = Running(*verb, '--ttl', f'{ttl_ms}ms', 'k', *command,
                              env=server.env, stdin=subprocess.PIPE)
            read_report(running, 'held with token')
            for _ in range(2):
                server.process.send_signal(signal.SIGSTOP)
                line = read_report(running, 'not renewed, ')
                check(re.search(r', \d+ ms left: renewals fail: no answer',
                                line), line)
                read_report(running, 'at risk, ')
                server.process.send_signal(signal.SIGCONT)
                read_report(running, 'renewed again, ')
            running.end(0)


if __name__ == '__main__':
    main()
