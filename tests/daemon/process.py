#!/usr/bin/env python3
"""holdfastd, from outside: its command line, its directory, and whatever may
come in at its two ports.

    process.py COMMAND [CASE...]

holdfastd is beside COMMAND.
"""
import contextlib
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'tests', 'cli'))
from cases import (HOLDFAST, LIMIT, Skip, case, check,  # noqa: E402
                   environment, equal, main, read, tool, until)

DAEMON = os.path.join(os.path.dirname(HOLDFAST), 'holdfastd')
ID = '00112233445566778899aabbccddeeff'
PAGE = os.path.join(ROOT, 'docs', 'man', 'holdfastd.8')


def daemon(*args, wanted=0):
    """Run holdfastd to its end. Returns its stdout, or stderr if it failed."""
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    done = subprocess.run([DAEMON, *args], env=environment(), timeout=LIMIT,
                          stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(done.returncode, wanted, args, done.stderr.decode())
    return done.stdout.decode() if wanted == 0 else done.stderr.decode()


def free_ports(count):
    """Ports that the kernel does not give to outgoing connections."""
    ports = []
    while len(ports) < count:
        port = random.randrange(15000, 20000)
        with contextlib.suppress(OSError), socket.create_server(
                ('127.0.0.1', port)):
            ports += [port] if port not in ports else []
    return ports


class Node:
    """A node, alone in its cluster unless `members` has others."""

    def __init__(self, folder, number=1, members=None):
        self.dir = os.path.join(folder, f'node-{number}')
        self.number = number
        self.members = members or {1: tuple(free_ports(2))}
        self.peer, self.client = self.members[number]
        self.process = None

    def init(self, *more, wanted=0):
        members = [f'--member={i}=127.0.0.1:{peer},127.0.0.1:{client}'
                   for i, (peer, client) in self.members.items()]
        return daemon('--dir', self.dir, '--init', '--cluster', ID, '--node',
                      str(self.number), *members, *more, wanted=wanted)

    def start(self, *more):
        """Start the node, and wait until it accepts connections."""
        ready, written = os.pipe()
        with open(self.dir + '.log', 'ab') as log:
            self.process = subprocess.Popen(
                [DAEMON, '--dir', self.dir, '--ready-fd', str(written), *more],
                env=environment(), stdin=subprocess.DEVNULL, stderr=log,
                pass_fds=[written])
        os.close(written)
        with open(ready, 'rb') as pipe:
            equal(pipe.read(), b'ready\n', self.log())
        return self

    def log(self):
        return read(self.dir + '.log')

    def stop(self, number=signal.SIGTERM, wanted=0):
        self.process.send_signal(number)
        equal(self.process.wait(LIMIT), wanted, self.log())

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def connect(self, port=None):
        return socket.create_connection(('127.0.0.1', port or self.client),
                                        timeout=LIMIT)

    def answers(self):
        with self.connect() as link:
            link.sendall(b'*1\r\n$4\r\nPING\r\n')
            return link.recv(64) == b'+PONG\r\n'

    def check_alive(self):
        check(self.answers(), self.log())
        equal(self.process.poll(), None, self.log())


@contextlib.contextmanager
def node(start=True):
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        new = Node(folder)
        try:
            if start:
                new.init()
                new.start()
            yield new
        finally:
            new.close()


def closes(link):
    """Whether the other side closes the connection; reads what it sends."""
    try:
        while link.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


# ---- The command line -------------------------------------------------------

@case
def a_wrong_command_line_is_refused():
    for args, text in (((), '--dir is missing'),
                       (('--dir',), 'requires a value'),
                       (('--dir', 'd', '--what'), "unknown option '--what'"),
                       (('--dir', 'd', 'word'), "unknown option 'word'"),
                       (('--dir', 'd', '--init'), '--init requires'),
                       (('--dir', 'd', '--node', '1'), 'are for --init'),
                       (('--dir', 'd', '--node', 'x'), 'not a number'),
                       (('--dir', 'd', '--cluster', 'x'), '32 hexadecimal'),
                       (('--dir', 'd', '--member', 'x'), 'ID=PEER,CLIENT')):
        shown = daemon(*args, wanted=64)
        check(text in shown, args, shown)


@case
def only_loopback_addresses_are_accepted():
    for bad, text in (('10.0.0.1:1', 'not a loopback address'),
                      ('0.0.0.0:1', 'not a loopback address'),
                      ('[2001:db8::1]:1', 'not a loopback address'),
                      ('[::]:1', 'not a loopback address'),
                      ('example.org:1', 'not resolved'),
                      ('127.0.0.1:0', 'expected HOST:PORT'),
                      ('127.0.0.1:70000', 'expected HOST:PORT'),
                      ('127.0.0.1', 'expected HOST:PORT')):
        for member in (f'1={bad},127.0.0.1:2', f'1=127.0.0.1:2,{bad}'):
            shown = daemon('--dir', '/nowhere', '--init', '--cluster', ID,
                           '--node', '1', '--member', member, wanted=64)
            check(text in shown, member, shown)


@case
def members_that_make_no_sense_are_refused():
    base = ('--dir', '/nowhere', '--init', '--cluster', ID, '--node', '1')
    one = '--member=1=127.0.0.1:1,127.0.0.1:2'
    for more, text, status in (
            (['--member=2=127.0.0.1:1,127.0.0.1:2'], 'not one of', 69),
            ([one, '--member=1=127.0.0.1:3,127.0.0.1:4'], 'given twice', 64),
            ([one, '--member=2=127.0.0.1:2,127.0.0.1:4'], 'used twice', 69),
            (['--member=0=127.0.0.1:1,127.0.0.1:2'], 'from 1 on', 64),
            ([one, '--heartbeat-ms=300'], 'heartbeat_ms', 69),
            ([f'--member={i}=127.0.0.1:{i},127.0.0.1:{i + 50}'
              for i in range(1, 11)], 'at most 9', 64)):
        shown = daemon(*base, *more, wanted=status)
        check(text in shown, more, shown)


@case
def the_manual_documents_every_option():
    shown = daemon('--help')
    options = set(re.findall(r'--[a-z-]+', shown))
    page = set('-' + name for name in
               re.findall(r'^\.It Fl (-[a-z-]+)', read(PAGE), re.MULTILINE))
    equal(options, page)
    check(re.fullmatch(r'holdfastd \d+\.\d+\.\d+\n', daemon('--version')))


@case
def the_manual_passes_mandoc_lint():
    done = subprocess.run([tool('mandoc'), '-Tlint', '-Wwarning', PAGE],
                          stdout=subprocess.PIPE, check=False)
    equal(done.stdout.decode(), '')


# ---- The directory ----------------------------------------------------------

@case
def a_node_starts_only_in_its_initialised_directory():
    with node(start=False) as n:
        shown = daemon('--dir', n.dir, wanted=69)
        check('no such directory' in shown and 'votes' in shown, shown)
        os.mkdir(n.dir)
        check('--init' in daemon('--dir', n.dir, wanted=69))
        equal(os.listdir(n.dir), [])
        n.init()
        check('already initialised' in n.init(wanted=69))
        n.start()


@case
def a_directory_runs_once():
    with node() as n:
        shown = daemon('--dir', n.dir, wanted=69)
        check(f'process {n.process.pid} runs this node' in shown, shown)
        n.check_alive()


@case
def a_damaged_configuration_is_refused():
    with node(start=False) as n:
        n.init()
        path = os.path.join(n.dir, 'config')
        good = read(path)
        for bad, text in (
                ('', 'not the configuration'), ('x' * 9000, 'not the config'),
                (good.replace('-node 1\n', '-node 2\n'), 'format 2'),
                (good.replace('\nnode 1\n', '\nnode 7\n'), 'not one of'),
                (good.replace('cluster 0', 'cluster g'), 'cluster'),
                (good.replace('127.0.0.1', '8.8.8.8', 1), 'loopback'),
                (good + 'colour blue\n', "unknown setting 'colour'"),
                (good + 'member 3\n', 'expected member'),
                (good.replace('\nnode 1\n', '\nnode 2\n').replace(
                    'member 1', 'member 2'), 'node')):
            with open(path, 'w', encoding='ascii') as file:
                file.write(bad)
            shown = daemon('--dir', n.dir, wanted=69)
            check(text in shown, bad[:200], shown)
        with open(path, 'w', encoding='ascii') as file:
            file.write(good + '# a comment\n')
        n.start()


@case
def ports_in_use_are_named():
    with node(start=False) as n:
        n.init()
        for port in (n.peer, n.client):
            with socket.create_server(('127.0.0.1', port)):
                shown = daemon('--dir', n.dir, wanted=69)
                check(f'127.0.0.1:{port}: another process' in shown, shown)
        n.start().check_alive()


@case
def signals_stop_the_node_cleanly():
    with node() as n:
        with n.connect() as holder, n.connect() as waiter:
            holder.sendall(b'LOCK k 600000\r\n')
            check(holder.recv(256).startswith(b'*3'), n.log())
            waiter.sendall(b'LOCK k 600000 WAIT 600000\r\n')
            n.stop()
            check(closes(holder) and closes(waiter))
        for number in (signal.SIGINT, signal.SIGHUP):
            n.start()
            n.stop(number)
        equal(n.log().count('stopped\n'), 3)


@case
def a_killed_node_starts_again():
    with node() as n:
        for _ in range(3):
            n.stop(signal.SIGKILL, wanted=-signal.SIGKILL)
            n.start().check_alive()


@case
def events_are_reported_on_stderr():
    with node() as n:
        until(lambda: 'leader in term' in n.log(), 'an election')
        n.stop()
        for line in n.log().splitlines():
            check(re.match(r'\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z node 1: ', line),
                  line)
        check(f'ready: clients at 127.0.0.1:{n.client}, ' in n.log(), n.log())


# ---- Hostile input ----------------------------------------------------------

def hostile_inputs(seed):
    chance = random.Random(seed)
    yield b'*100000000\r\n'
    yield b'*1\r\n$100000000000\r\n'
    yield b'*-5\r\n$-9\r\n'
    yield b'\xff' * 4096
    yield (2 ** 32 - 1).to_bytes(4, 'little') + b'x' * 1000
    yield b'\0' * 100000
    yield b'*1000000\r\n' + b'$1\r\nx\r\n' * 10000
    for _ in range(40):
        yield chance.randbytes(chance.randrange(1, 20000))


@case
def random_bytes_harm_neither_port():
    seed = random.randrange(2 ** 32)
    with node() as n:
        for port in (n.client, n.peer):
            for data in hostile_inputs(seed):
                with n.connect(port) as link:
                    with contextlib.suppress(OSError):
                        link.sendall(data)
                        link.shutdown(socket.SHUT_WR)
                        closes(link)
            check(n.process.poll() is None, 'seed', seed, n.log())
            n.check_alive()


@case
def a_thousand_connections_are_served():
    with node() as n, contextlib.ExitStack() as stack:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 2000:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        links = [stack.enter_context(n.connect()) for _ in range(1000)]
        for link in links:
            link.sendall(b'*1\r\n$4\r\nPING\r\n')
        for link in links:
            equal(link.recv(64), b'+PONG\r\n')
        peers = [stack.enter_context(n.connect(n.peer)) for _ in range(500)]
        check(closes(peers[0]), 'the longest silent link is closed')
        n.check_alive()


@case
def slow_requests_do_not_stop_others():
    with node() as n, contextlib.ExitStack() as stack:
        links = [stack.enter_context(n.connect(port)) for port in
                 (n.client, n.peer) for _ in range(50)]
        for byte in b'*1\r\n$4\r\nPIN':
            for link in links[:50]:
                link.sendall(bytes([byte]))
            n.check_alive()
        for link in links[:50]:
            link.sendall(b'G\r\n')
            equal(link.recv(64), b'+PONG\r\n')


@case
def a_client_that_never_reads_is_cut_off():
    request = b'*2\r\n$4\r\nECHO\r\n$60000\r\n' + b'x' * 60000 + b'\r\n'
    with node() as n, n.connect() as link, n.connect() as other:
        try:
            for _ in range(1000):
                link.sendall(request)
                # In another turn of its loop the node answers this.
                other.sendall(b'*1\r\n$4\r\nPING\r\n')
                equal(other.recv(64), b'+PONG\r\n')
            check(False, 'the node keeps 60 MB of output')
        except ConnectionError:
            n.check_alive()


@case
def no_free_descriptor_is_survived():
    with node() as n, contextlib.ExitStack() as stack:
        # The log opens files only while it makes these.
        until(lambda: {'reserve', 'spare'} <= {
            name.partition('-')[0] for name in os.listdir(n.dir)},
              'the reserve of the log')
        served = stack.enter_context(n.connect())
        served.sendall(b'*1\r\n$4\r\nPING\r\n')
        equal(served.recv(64), b'+PONG\r\n')
        hard = resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE)[1]
        used = len(os.listdir(f'/proc/{n.process.pid}/fd'))
        old = resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE,
                               (used, hard))
        links = [stack.enter_context(n.connect()) for _ in range(50)]
        check(closes(links[-1]), 'it is accepted and closed')
        served.sendall(b'*1\r\n$4\r\nPING\r\n')
        equal(served.recv(64), b'+PONG\r\n')
        resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE, old)
        n.check_alive()


if __name__ == '__main__':
    main()
