#!/usr/bin/env python3
"""Hostile clients and strangers at both ports of a cluster, while a
well-behaved client goes on locking.

    hostile.py COMMAND [CASE...]

holdfastd is beside COMMAND.
"""
import contextlib
import os
import random
import re
import resource
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nodes import cluster, closes, is_sanitized  # noqa: E402
from cases import Skip, case, check, equal, main, until  # noqa: E402

MIB = 1 << 20
PAUSE = 0.01  # of the locker, so that it does not use up the processor


class Locker:
    """A thread that locks and unlocks a key, over one connection to `node`."""

    def __init__(self, node):
        self.pairs = 0
        self.failure = None
        self.is_stopped = False
        self.link = node.connect()
        self.lines = self.link.makefile('rb')
        self.thread = threading.Thread(target=self.run)

    def ask(self, text):
        """Send a command. Returns the lines of its reply."""
        self.link.sendall(text.encode() + b'\r\n')
        first = self.lines.readline().decode().rstrip()
        if first != '*3':
            return [first]
        return [self.lines.readline().decode().rstrip() for _ in range(4)]

    def run(self):
        try:
            token = 0
            while not self.is_stopped:
                grant = self.ask('LOCK well-behaved 60000 WAIT 60000')
                check(len(grant) == 4, 'LOCK:', grant)
                check(int(grant[2][1:]) > token, 'tokens grow')
                token = int(grant[2][1:])
                done = self.ask(f'UNLOCK well-behaved {grant[1]} {token}')
                check(done == ['+OK'], 'UNLOCK:', done)
                self.pairs += 1
                time.sleep(PAUSE)
        except Exception as error:  # pylint: disable=broad-except
            self.failure = error

    def goes_on(self):
        """Wait until the thread has locked the key some more times."""
        wanted = self.pairs + 20

        def has_locked():
            if self.failure:
                raise self.failure
            return self.pairs >= wanted
        until(has_locked, 'the well-behaved client')

    def close(self):
        self.is_stopped = True
        self.thread.join()
        self.lines.close()
        self.link.close()


@contextlib.contextmanager
def attacked():
    """A cluster, and a client whose work must go on: it is connected to the
    first node, which the case attacks."""
    with cluster() as nodes:
        locker = Locker(nodes[0])
        locker.thread.start()
        try:
            locker.goes_on()
            yield nodes, locker
            locker.goes_on()
            for node in nodes:
                node.check_alive()
        finally:
            locker.close()


def resident(node):
    """The memory of a node, in bytes."""
    with open(f'/proc/{node.process.pid}/status', encoding='ascii') as file:
        return 1024 * int(re.search(r'VmRSS:\s+(\d+)', file.read()).group(1))


def check_growth(node, before, limit):
    """Sanitizers keep freed memory, so only the plain build is measured."""
    if not is_sanitized():
        grown = resident(node) - before
        check(grown < limit, 'the node has grown by', grown, 'bytes')


def raise_descriptors(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (OSError, ValueError) as error:
        raise Skip(f'{wanted} descriptors are not allowed (the limit is '
                   f'{hard})') from error


# ---- The client port --------------------------------------------------------

@case
def announced_lengths_take_no_memory():
    with attacked() as (nodes, locker), contextlib.ExitStack() as stack:
        node = nodes[0]
        before = resident(node)
        for data in (b'*100000000\r\n', b'*1\r\n$100000000\r\n',
                     b'*1024\r\n', b'*2\r\n$4\r\nREAD\r\n$190000\r\n'):
            for mode in (b'', b'HELLO 1 MUX\r\n'):
                links = [stack.enter_context(node.connect())
                         for _ in range(100)]
                for link in links:
                    link.sendall(mode + data)
        locker.goes_on()
        check_growth(node, before, 32 * MIB)
        check(int(node.info()['connections_broken']) >= 400, node.info())


@case
def ten_thousand_connections_are_served():
    raise_descriptors(10200)
    with attacked() as (nodes, locker), contextlib.ExitStack() as stack:
        node = nodes[0]
        hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)[1]
        if hard < 10200:
            raise Skip(f'the node may have only {hard} descriptors')
        before = resident(node)
        links = []
        for _ in range(100):
            links += [stack.enter_context(node.connect()) for _ in range(100)]
            for link in links[-100:]:
                link.sendall(b'PING\r\n')
        locker.goes_on()
        for link in links:
            check(link.recv(64) == b'+PONG\r\n')
        # On a slow machine, the first may have been idle for too long.
        counts = node.info()
        check(int(counts['connected_clients']) +
              int(counts['connections_idle']) >= 10000, counts)
        check_growth(node, before, 128 * MIB)


@case
def slow_writers_are_cut_off():
    """They send byte after byte, but no complete request."""
    with attacked() as (nodes, locker), contextlib.ExitStack() as stack:
        node = nodes[0]
        links = [stack.enter_context(node.connect()) for _ in range(200)]
        for i, link in enumerate(links):
            link.settimeout(0)
            link.sendall(b'HELLO 1 MUX\r\n' if i % 2 else b'')
            link.sendall(b'*2\r\n$190000\r\n')

        def are_cut():
            for link in list(links):
                try:
                    link.sendall(b'x')
                except BlockingIOError:
                    pass
                except OSError:
                    links.remove(link)
            locker.goes_on()
            return not links
        until(are_cut, 'the slow writers to be cut off')
        check(int(node.info()['connections_idle']) >= 200, node.info())


@case
def clients_that_never_read_are_cut_off():
    """Their requests are not executed any more when their output is full, and
    they are cut off later."""
    with attacked() as (nodes, locker), contextlib.ExitStack() as stack:
        node = nodes[0]
        before = resident(node)
        data = {False: b'INFO\r\n' * 1000,
                True: b''.join(b'%d STATUS\r\n' % i for i in range(1, 1000))}
        links = {}
        for i in range(40):
            link = stack.enter_context(node.connect())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.sendall(b'HELLO 1 MUX\r\n' if i % 2 else b'')
            link.settimeout(0)
            links[link] = data[bool(i % 2)]

        def are_cut():
            for link, requests in list(links.items()):
                try:
                    link.send(requests)
                except BlockingIOError:
                    pass
                except OSError:
                    del links[link]
            locker.goes_on()
            return not links
        until(are_cut, 'the clients that never read to be cut off')
        check_growth(node, before, 200 * MIB)
        check(int(node.info()['connections_slow']) >= 40, node.info())


def bulk(*words):
    """A request, as an array of bulk strings."""
    return b'*%d\r\n' % len(words) + b''.join(
        b'$%d\r\n%s\r\n' % (len(word), word) for word in words)


@case
def reads_whose_replies_nobody_reads_do_not_keep_others_from_locking():
    """They wait for room, and use up the limit of requests without a reply."""
    large = b''.join(bulk(b'%d' % i, b'READ', b'large', b'1')
                     for i in range(1, 91))
    small = b''.join(bulk(b'%d' % i, b'READ', b'k' * 1024, b'1')
                     for i in range(100, 1020))
    with attacked() as (nodes, locker), contextlib.ExitStack() as stack:
        node = nodes[0]
        with node.connect() as link:
            link.sendall(bulk(b'LOCK', b'large', b'600000', b'VALUE',
                              b'x' * 65536))
            check(link.recv(64).startswith(b'*3'))
        links = []
        for _ in range(90):
            link = stack.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect(('127.0.0.1', node.client))
            link.sendall(b'HELLO 1 MUX\r\n' + large)
            link.settimeout(0)
            links.append([link, small])

        def is_full():
            for pair in links:
                with contextlib.suppress(OSError):
                    pair[1] = pair[1][pair[0].send(pair[1]):]
            counts = node.info()
            return (int(counts['unanswered_bytes']) > 64 * MIB - 2000 or
                    int(counts['connections_slow']) > 0)
        until(is_full, 'requests without a reply')
        locker.goes_on()


@case
def a_flood_of_cheap_requests_is_answered_in_parts():
    """The replies to all requests that arrive at once would take 70 MiB."""
    count = 200000
    with attacked() as (nodes, locker), nodes[0].connect() as link, \
            link.makefile('rb') as lines:
        before = resident(nodes[0])
        link.sendall(b'HELLO 1 MUX\r\n')
        writer = threading.Thread(target=link.sendall,
                                  args=(b'7 STATUS\r\n' * count,))
        writer.start()
        until(lambda: int(nodes[0].info()['connections_paused']) > 0,
              'the client to be paused')
        locker.goes_on()
        answered = 0
        while answered < count:
            line = lines.readline()
            check(line, 'the node has closed the connection')
            answered += line == b':7\r\n'
        writer.join()
        check_growth(nodes[0], before, 32 * MIB)


# ---- The peer port ----------------------------------------------------------

def garbage(chance):
    """Bytes that no node sends, some of them with the size of a frame."""
    yield b'PING\r\n'
    yield b'*100000000\r\n'
    yield (2 ** 32 - 1).to_bytes(4, 'little') + b'x' * 1000
    yield (8 * MIB).to_bytes(4, 'little') + b'x' * 1000  # never complete
    for _ in range(60):
        size = chance.randrange(2000)
        yield size.to_bytes(4, 'little') + chance.randbytes(size)
        yield chance.randbytes(chance.randrange(1, 20000))


@case
def garbage_at_the_peer_port_is_refused():
    seed = random.randrange(2 ** 32)
    with attacked() as (nodes, locker):
        term = nodes[0].status()['term']
        for node in nodes:
            for data in garbage(random.Random(seed)):
                with node.connect(node.peer) as link:
                    with contextlib.suppress(OSError):
                        link.sendall(data)
                        link.shutdown(socket.SHUT_WR)
                        closes(link)
            locker.goes_on()
            check(node.process.poll() is None, 'seed', seed, node.log())
        check(nodes[0].status()['term'] >= term)


class Hello:
    """The HELLO of a node, as node/packet.c encodes it: a frame that begins a
    connection."""

    SIZE = 4 + 12 + 16 + 8 + 8 + 8 + 4

    def __init__(self, frame):
        equal(len(frame), self.SIZE)
        self.head, self.tail = frame[:32], frame[-4:]
        self.from_, self.to, self.incarnation = struct.unpack(
            '<QQQ', frame[32:-4])

    def encode(self, to):
        return self.head + struct.pack('<QQQ', self.from_, to,
                                       self.incarnation) + self.tail


def hellos_of(nodes):
    """{node: its HELLO}, as the nodes send it to one that is not running."""
    found = {}
    for away in nodes[1:]:
        away.stop()
        with socket.create_server(('127.0.0.1', away.peer)) as server:
            while len(found.keys() - {away}) < 2:
                link, _ = server.accept()
                with link, link.makefile('rb') as data:
                    hello = Hello(data.read(Hello.SIZE))
                equal(hello.to, away.number)
                found[nodes[hello.from_ - 1]] = hello
        away.start()
    # The last one that was away has a HELLO with its former incarnation.
    check(len(found) == len(nodes))
    return found


def garbage_after_hello(chance, hello):
    """What a connection with the HELLO of a member sends next. Frames that are
    forged without a mistake are not among it: members trust each other."""
    yield from garbage(chance)
    yield from refused_after_hello(chance, hello)
    for _ in range(60):
        rest = chance.randbytes(chance.randrange(2000))
        yield frame(struct.pack('<QQ', hello.from_, hello.incarnation) + rest)


def refused_after_hello(chance, hello):
    """That for which a node closes the connection."""
    yield (2 ** 32 - 1).to_bytes(4, 'little')
    yield hello.encode(hello.to)
    for _ in range(20):
        rest = chance.randbytes(chance.randrange(16, 2000))
        yield frame(rest)
        yield frame(struct.pack('<Q', hello.from_) + rest)
        yield frame(struct.pack('<QQ', hello.from_, 2 ** 64 - 1) + rest)
        yield frame(struct.pack('<Q', hello.from_))


def frame(body):
    return struct.pack('<I', len(body)) + body


def attack_peer_port(node, hello, chance):
    """Send garbage in the name of the member with this HELLO."""
    for data in garbage_after_hello(chance, hello):
        with node.connect(node.peer) as link, contextlib.suppress(OSError):
            link.sendall(hello.encode(node.number) + data)
            link.shutdown(socket.SHUT_WR)
            closes(link)
    for data in refused_after_hello(chance, hello):
        with node.connect(node.peer) as link:
            with contextlib.suppress(ConnectionError):
                link.sendall(hello.encode(node.number) + data)
            check(closes(link))


@case
def garbage_in_the_name_of_a_member_is_refused():
    """Afterwards the nodes still accept what the members send: each of the
    others is a majority with the first, whose client goes on."""
    seed = random.randrange(2 ** 32)
    with attacked() as (nodes, locker):
        hellos = hellos_of(nodes)
        for node in nodes:
            for member in nodes:
                if member is not node:
                    attack_peer_port(node, hellos[member],
                                     random.Random(seed))
            locker.goes_on()
            check(node.process.poll() is None, 'seed', seed, node.log())
            check('refused a connection of a peer: ' in node.log(), node.log())
        for away in nodes[1:]:
            away.stop()
            locker.goes_on()
            away.start()


@case
def silent_strangers_do_not_keep_peers_out():
    """More connections than the peer port takes, which send nothing."""
    with attacked() as (nodes, locker), contextlib.ExitStack() as stack:
        for _ in range(300):
            for node in nodes:
                stack.enter_context(node.connect(node.peer))
        locker.goes_on()
        nodes[2].stop()
        nodes[2].start()
        until(lambda: nodes[2].status()['leader'] != 0, 'the restarted node')


class Drip:
    """A thread that keeps more connections to the peer ports open than these
    take. Each announces a long HELLO and sends a byte now and then."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.links = {node: [] for node in nodes}
        self.closed = {node: 0 for node in nodes}
        self.is_stopped = False
        self.thread = threading.Thread(target=self.run)

    def connect(self, node):
        with contextlib.suppress(OSError):
            link = node.connect(node.peer)
            link.settimeout(0)
            self.links[node].append(link)
            link.sendall((4000).to_bytes(4, 'little'))

    def send(self, node):
        for link in list(self.links[node]):
            try:
                link.send(b'x')
            except BlockingIOError:
                pass
            except OSError:
                link.close()
                self.links[node].remove(link)
                self.closed[node] += 1

    def run(self):
        while not self.is_stopped:
            for node in self.nodes:
                if len(self.links[node]) < 80:
                    self.connect(node)
                self.send(node)
            time.sleep(0.01)

    def has_closed(self, count):
        return all(closed >= count for closed in self.closed.values())

    def close(self):
        self.is_stopped = True
        self.thread.join()
        for links in self.links.values():
            for link in links:
                link.close()


@case
def slow_strangers_do_not_keep_peers_out():
    """More connections than the peer port takes, which send byte after byte,
    but no complete HELLO. The cluster is idle at first: its nodes then send
    less often than the strangers do."""
    with cluster() as nodes:
        until(lambda: all(node.status()['leader'] for node in nodes), 'a leader')
        drip = Drip(nodes)
        drip.thread.start()
        try:
            until(lambda: drip.has_closed(100), 'strangers to be cut off')
            until(lambda: all(node.status()['leader'] for node in nodes),
                  'a leader in spite of the strangers')
            nodes[2].stop()
            nodes[2].start()
            until(lambda: nodes[2].status()['leader'] != 0,
                  'the restarted node')
        finally:
            drip.close()
        for node in nodes:
            node.check_alive()


if __name__ == '__main__':
    main()
