#!/usr/bin/env python3
"""Nodes of a cluster that are stopped or ended, seen from outside.

    members.py COMMAND [CASE...]

holdfastd is beside COMMAND.
"""
import contextlib
import fcntl
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nodes import cluster, leader_of  # noqa: E402
from cases import LIMIT, case, check, equal, main, read, until  # noqa: E402

VALUE = b'x' * 60000

# AddressSanitizer keeps freed memory, which memory_of() would count.
os.environ['ASAN_OPTIONS'] = ':'.join(
    [os.environ.get('ASAN_OPTIONS', ''), 'quarantine_size_mb=1'])


def bulk(*words):
    """A request, as an array of bulk strings."""
    return b'*%d\r\n' % len(words) + b''.join(
        b'$%d\r\n%s\r\n' % (len(word), word) for word in words)


def memory_of(node):
    """The bytes of memory that the process has now."""
    kib = re.search(r'VmRSS:\s+(\d+)', read(f'/proc/{node.process.pid}/status'))
    return int(kib[1]) * 1024


@contextlib.contextmanager
def stopped(node):
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


class Holder:
    """A connection that holds the key `k`."""

    def __init__(self, link):
        self.link = link
        self.lines = link.makefile('rb')
        link.sendall(bulk(b'LOCK', b'k', b'600000'))
        equal(self.lines.readline(), b'*3\r\n')
        _, nonce, token, _ = [self.lines.readline().strip() for _ in range(4)]
        self.nonce, self.token = nonce, token[1:]

    def update(self, value):
        self.link.sendall(bulk(b'UPDATE', b'k', self.nonce, self.token, value))
        equal(self.lines.readline(), b'+OK\r\n')


@case
def a_stopped_follower_costs_its_leader_little_memory():
    with cluster() as nodes:
        leader = leader_of(nodes)
        follower = next(each for each in nodes if each is not leader)
        with leader.connect() as link:
            holder = Holder(link)
            before = memory_of(leader)
            with stopped(follower):
                for _ in range(1000):
                    holder.update(VALUE)
                check(memory_of(leader) < before + (96 << 20))
            holder.update(b'last')

        def has_caught_up():
            with follower.connect() as link:
                link.sendall(b'READ k LOCAL\r\n')
                return b'last' in link.recv(4096)
        until(has_caught_up, 'the follower that goes on')


@case
def a_leader_that_is_ended_hands_over_and_loses_nothing():
    # A leader ends without a successor after an election timeout.
    with cluster(options=['--election-ms', '3000']) as nodes:
        leader = leader_of(nodes)
        term = leader.status()['term']
        with leader.connect() as link:
            Holder(link).update(b'kept')
        leader.stop()
        check(re.search('stopping:.*follower in term', leader.log(), re.DOTALL),
              leader.log())
        rest = [each for each in nodes if each is not leader]
        until(lambda: leader_of(rest), 'another leader')
        for each in rest:
            with each.connect() as link:
                link.sendall(b'READ k\r\n')
                check(b'kept' in link.recv(4096))
            check(each.status()['term'] > term, each.log())
        leader.start()
        until(lambda: leader_of(nodes), 'a leader of all')


@case
def a_second_signal_ends_a_node_at_once():
    with cluster(options=['--election-ms', '3000']) as nodes:
        leader = leader_of(nodes)
        with contextlib.ExitStack() as stack:
            for each in nodes:
                if each is not leader:
                    stack.enter_context(stopped(each))
            leader.process.send_signal(signal.SIGTERM)
            until(lambda: 'stopping' in leader.log(), 'the first signal')
            equal(leader.process.poll(), None)
            leader.stop(wanted=-signal.SIGTERM)
        leader.start()


@case
def a_signal_during_recovery_does_no_harm():
    with cluster(1) as (node,):
        with node.connect() as link:
            Holder(link).update(b'kept')
        node.stop()
        for i in range(20):
            process = node.spawn()
            time.sleep(i / 1000)
            process.send_signal(signal.SIGTERM)
            check(process.wait(LIMIT) in (0, -signal.SIGTERM), node.log())
        node.start()
        until(lambda: leader_of([node]), 'a leader')
        with node.connect() as link:
            link.sendall(b'READ k\r\n')
            check(b'kept' in link.recv(4096))


@case
def a_log_that_nobody_reads_does_not_stop_the_node():
    with cluster(1) as (node,):
        node.stop()
        ready, written = os.pipe()
        fcntl.fcntl(written, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(written, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(written, b'x')
        os.set_blocking(written, True)
        node.process = node.spawn(stderr=written)
        until(node.listens, 'a node')
        node.check_alive()
        node.stop()
        os.close(ready)
        os.close(written)


if __name__ == '__main__':
    main()
