"""Nodes for the tests of holdfastd.

A node has a directory, two ports and a log; it runs while the case does.
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'tests', 'cli'))
from cases import (HOLDFAST, LIMIT, Skip, check,  # noqa: E402
                   environment, equal, free_port, read, until)

DAEMON = os.path.join(os.path.dirname(HOLDFAST), 'holdfastd')
ID = '00112233445566778899aabbccddeeff'


def is_sanitized():
    """Returns True if holdfastd is built with a sanitizer of memory or
    threads."""
    with open(DAEMON, 'rb') as file:
        return re.search(rb'__[amt]san_init', file.read()) is not None


def daemon(*args, wanted=0):
    """Run holdfastd to its end. Returns its stdout, or stderr if it failed."""
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    done = subprocess.run([DAEMON, *args], env=environment(), timeout=LIMIT,
                          stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(done.returncode, wanted, args, done.stderr.decode())
    return done.stdout.decode() if wanted == 0 else done.stderr.decode()


class Node:
    """A node, alone in its cluster unless `members` has others."""

    def __init__(self, folder, number=1, members=None):
        self.dir = os.path.join(folder, f'node-{number}')
        self.number = number
        self.members = members or {1: (free_port(), free_port())}
        self.peer, self.client = self.members[number]
        self.process = None

    def init(self, *more, wanted=0):
        members = [f'--member={i}=127.0.0.1:{peer},127.0.0.1:{client}'
                   for i, (peer, client) in self.members.items()]
        return daemon('--dir', self.dir, '--init', '--cluster', ID, '--node',
                      str(self.number), *members, *more, wanted=wanted)

    def spawn(self, *more, stderr=None, pass_fds=(), through=()):
        """Start the process of the node, and return it. `through` is a command
        that executes the command behind it."""
        with open(self.dir + '.log', 'ab') as log:
            return subprocess.Popen(
                [*through, DAEMON, '--dir', self.dir, *more],
                env=environment(),
                stdin=subprocess.DEVNULL, stderr=stderr or log,
                pass_fds=pass_fds)

    def start(self, *more, through=()):
        """Start the node, and wait until it accepts connections."""
        ready, written = os.pipe()
        self.process = self.spawn('--ready-fd', str(written), *more,
                                  pass_fds=[written], through=through)
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

    def listens(self):
        with contextlib.suppress(ConnectionRefusedError):
            self.connect().close()
            return True
        return False

    def answers(self):
        with self.connect() as link:
            link.sendall(b'*1\r\n$4\r\nPING\r\n')
            return link.recv(64) == b'+PONG\r\n'

    def status(self):
        with self.connect() as link, link.makefile('rb') as lines:
            link.sendall(b'STATUS\r\n')
            size = int(lines.readline()[1:])
            return json.loads(lines.read(size))

    def info(self, link=None):
        """The values that INFO shows, over `link` or a new connection."""
        with contextlib.ExitStack() as stack:
            link = link or stack.enter_context(self.connect())
            lines = stack.enter_context(link.makefile('rb'))
            link.sendall(b'INFO\r\n')
            text = lines.read(int(lines.readline()[1:])).decode()
        return {name: value for name, _, value in
                (line.partition(':') for line in text.split('\r\n'))}

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


@contextlib.contextmanager
def cluster(count=3, options=()):
    """Running nodes that have a leader; `options` are passed to --init."""
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    ports = [free_port() for _ in range(2 * count)]
    members = {i + 1: (ports[2 * i], ports[2 * i + 1]) for i in range(count)}
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        nodes = [Node(folder, i, members) for i in members]
        try:
            for each in nodes:
                each.init(*options)
                each.start()
            until(lambda: leader_of(nodes), 'a leader')
            yield nodes
        finally:
            for each in nodes:
                each.close()


def leader_of(nodes):
    """The node that leads, and is followed by all nodes that answer; or
    None."""
    leaders = {each.status()['leader'] for each in nodes
               if each.process.poll() is None}
    return next((each for each in nodes if leaders == {each.number}), None)


def closes(link):
    """Read until the other side closes the connection, and return True."""
    try:
        while link.recv(65536):
            pass
    except ConnectionError:
        pass
    return True
