#!/usr/bin/env python3
"""Masters of a quorum as real processes: their directory, restarts, and their
client port, over which this script coordinates by itself.

    quorum.py COMMAND [CASE...]

holdfastd is beside COMMAND.
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nodes import DAEMON, ID, Node, closes, daemon  # noqa: E402
from mux import Error, Mux, string  # noqa: E402
from cases import (Skip, case, check, equal, free_port, main,  # noqa: E402
                   read, until)

# Kinds of requests and of replies, as in holdfast-protocol(7).
ASK, PREPARE, COMMIT, RENEW, END, READ, FORCE = range(1, 8)
(VOTE, BUSY, LOW, PROMISE, OK, MISSING, FORCED, ENDED, REPORT, QUIET,
 REFUSED) = range(1, 12)
FAST, QUEUE = 1, 2
LEASE_MAX_MS = 2000
A, B, C = b'a' * 16, b'b' * 16, b'c' * 16


class Master(Node):
    """A master, with the client ports `members`, by id."""

    def __init__(self, folder, number, members):
        super().__init__(folder, number, {i: (0, port)
                                          for i, port in members.items()})

    def init(self, *more, wanted=0):
        members = [f'--member={i}=127.0.0.1:{client}'
                   for i, (_, client) in self.members.items()]
        return daemon('--dir', self.dir, '--init', '--mode', 'quorum',
                      '--cluster', ID, '--node', str(self.number), *members,
                      f'--lease-max-ms={LEASE_MAX_MS}', *more, wanted=wanted)

    def file(self):
        return os.path.join(self.dir, 'master')

    def mark(self):
        return int(re.search(r'^mark (\d+)$', read(self.file()),
                             re.MULTILINE).group(1))


@contextlib.contextmanager
def masters(count=1, start=True):
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    members = {i + 1: free_port() for i in range(count)}
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        nodes = [Master(folder, i, members) for i in members]
        try:
            for each in nodes if start else []:
                each.init()
                each.start()
            yield nodes
        finally:
            for each in nodes:
                each.close()


class Answer:
    """A decoded answer of a master, with the lease of its report."""

    def __init__(self, data):
        (form, self.kind, self.end, self.error, self.number, self.highest,
         self.serial, self.anchor, self.age_ms, self.position,
         self.quiet_ms) = struct.unpack_from('<BBBIQQIIIII', data)
        equal(form, 1)
        at = struct.calcsize('<BBBIQQIIIII')
        self.state, self.flags, self.promised = struct.unpack_from('<BBQ',
                                                                   data, at)
        at += struct.calcsize('<BBQ')
        self.token = 0
        if self.state:
            _, self.token = struct.unpack_from('<QQ', data, at)


class Coordinator(Mux):
    """A connection to a master."""

    serial = 0

    def ask(self, kind, key, nonce=bytes(16), number=0, token=0, ballot=0,
            ticket=0, lease_ms=0, flags=0, value=b''):
        """Send a message to the master, and return its answer."""
        self.serial += 1
        data = struct.pack('<BBB', 1, kind, flags) + string(key) + nonce
        data += struct.pack('<QQQQII', number, token, ballot, ticket,
                            self.serial, lease_ms)
        if kind in (ASK, COMMIT):
            data += string(value) + string(b'note') + string(b'owner')
        [answer] = self.call('QUORUM', data)
        check(isinstance(answer, bytes), answer)
        return Answer(answer)

    def vote(self, key, nonce, number, flags=FAST, lease_ms=LEASE_MAX_MS):
        return self.ask(ASK, key, nonce, number, ticket=number, flags=flags,
                        lease_ms=lease_ms, value=b'value')

    def commit(self, key, nonce, number, token=None):
        return self.ask(COMMIT, key, nonce, number, token=token or number,
                        lease_ms=LEASE_MAX_MS, value=b'value')

    def end(self, key, nonce, number, ballot=0):
        return self.ask(END, key, nonce, number, ballot=ballot)


def typed(n, line):
    """The reply to a line of plain mode, as JSON or its first line."""
    with n.connect() as link, link.makefile('rb') as lines:
        link.sendall(line.encode() + b'\r\n')
        first = lines.readline().decode().rstrip('\r\n')
        if first.startswith('$'):
            return json.loads(lines.read(int(first[1:])))
        return first


# ---- The command line and the directory -------------------------------------

@case
def a_wrong_command_line_of_a_master_is_refused():
    base = ('--dir', '/nowhere', '--init', '--cluster', ID, '--node', '1')
    client, both = '--member=1=127.0.0.1:1', '--member=1=127.0.0.1:1,[::1]:2'
    for more, text, status in (
            (['--mode', 'what', client], 'not raft or quorum', 64),
            (['--mode=quorum', both], 'ID=CLIENT', 69),
            ([client], 'ID=PEER,CLIENT', 69),
            (['--mode=quorum', '--member=1'], 'ID=CLIENT', 64),
            (['--mode=quorum', '--member=1=10.0.0.1:1'], 'loopback', 64),
            (['--mode=quorum', client, '--member=2=127.0.0.1:1'],
             'used twice', 69),
            (['--mode=quorum', '--member=2=127.0.0.1:1'], 'not one of', 69),
            (['--mode=quorum', client, '--election-ms=500'],
             'masters have no leader', 64),
            (['--mode=quorum', client, '--lease-max-ms=0'],
             'number from 1', 64),
            ([both, '--lease-max-ms=1000'], 'is for --mode quorum', 64)):
        shown = daemon(*base, *more, wanted=status)
        check(text in shown, more, shown)
    for option in ('--mode=quorum', '--lease-max-ms=1000'):
        check('are for --init' in daemon('--dir', 'd', option, wanted=64))


@case
def a_master_starts_only_in_its_initialised_directory():
    with masters(start=False) as [m]:
        os.mkdir(m.dir)
        check('--init' in daemon('--dir', m.dir, wanted=69))
        equal(os.listdir(m.dir), [])
        m.init()
        check('already initialised' in m.init(wanted=69))
        equal(m.mark(), 0)
        m.start()
        check(f'process {m.process.pid} runs' in
              daemon('--dir', m.dir, wanted=69))
        check(m.mark() > 0, 'the first mark is durable before it is ready')
        m.stop()
        check('this is a master' in
              daemon('--dir', m.dir, '--election-ms=500', wanted=69))


@case
def a_directory_with_other_files_is_not_initialised():
    with masters(start=False) as [m]:
        os.mkdir(m.dir)
        with open(os.path.join(m.dir, 'thesis.txt'), 'w', encoding='ascii'):
            pass
        shown = m.init(wanted=69)
        check('not empty' in shown and 'thesis.txt' in shown, shown)


@case
def an_interrupted_initialisation_can_be_repeated():
    with masters(start=False) as [m]:
        m.init()
        os.remove(m.file())
        with open(os.path.join(m.dir, 'initialising'), 'w', encoding='ascii'):
            pass
        check('interrupted' in daemon('--dir', m.dir, wanted=69))
        m.init()
        check(not os.path.exists(os.path.join(m.dir, 'initialising')))
        m.start()


@case
def a_missing_file_never_starts_as_a_member():
    with masters() as [m]:
        m.stop()
        os.remove(m.file())
        shown = daemon('--dir', m.dir, wanted=69)
        check(m.file() in shown and 'missing' in shown, shown)
        check(not os.path.exists(m.file()), 'it is not created')


@case
def a_damaged_file_is_refused_by_name():
    with masters() as [m]:
        m.stop()
        with open(m.file(), 'rb') as file:
            sound = file.read()
        mark = re.search(rb'mark (\d)', sound).start(1)
        for text in (b'', sound[:-1], sound + b'\n', sound[:mark] + b'9' +
                     sound[mark + 1:], sound.replace(b'node 1', b'node 2'),
                     sound.replace(b'127.0.0.1', b'127.0.0.2'),
                     b'\0' * len(sound), sound.replace(b'\n', b'\r\n')):
            with open(m.file(), 'wb') as file:
                file.write(text)
            shown = daemon('--dir', m.dir, wanted=69)
            check(f'{m.file()}: damaged' in shown, text, shown)
        with open(m.file(), 'wb') as file:
            file.write(sound.replace(b'holdfast-master 1',
                                     b'holdfast-master 2'))
        check('newer' in daemon('--dir', m.dir, wanted=69))
        with open(m.file(), 'wb') as file:
            file.write(sound)
        m.start()


@case
def the_file_of_another_master_is_refused():
    with masters(2) as [m, other]:
        m.stop()
        other.stop()
        shutil.copy(other.file(), m.file())
        shown = daemon('--dir', m.dir, wanted=69)
        check(m.file() in shown and 'node 2' in shown, shown)


# ---- Locks ------------------------------------------------------------------

# LK-01, LK-02: a majority grants, and all agree on the token.
@case
def three_masters_vote_commit_and_release():
    with masters(3) as nodes:
        links = [Coordinator(m) for m in nodes]
        text = '1 ' + ' '.join(f'master {m.number} 127.0.0.1:{m.client}'
                               for m in nodes)
        for m, link in zip(nodes, links):
            equal(link.hello[1:4], [ID.encode(), m.number, 0])
            equal(link.hello[8:10], [b'quorum', text.encode()])
        number = 1 + max(link.ask(READ, b'k').highest for link in links)
        for link in links:
            equal(link.vote(b'k', A, number).kind, VOTE)
        for link in links:
            equal(link.vote(b'k', B, number + 1).kind, BUSY)
            equal(link.commit(b'k', A, number).kind, OK)
        for m, link in zip(nodes, links):
            equal(link.ask(READ, b'k').token, number)
            equal(m.status()['held'], 1)
            equal(m.status()['nodes'],
                  [{'id': n.number, 'address': f'127.0.0.1:{n.client}',
                    'role': 'master'} for n in nodes])
            equal(link.end(b'k', A, number, number).kind, ENDED)
            equal(m.status()['held'], 0)


# LK-20: in the step that frees the key.
@case
def a_waiter_is_pushed_the_vote():
    with masters() as [m]:
        holder, waiter = Coordinator(m), Coordinator(m)
        equal(holder.vote(b'k', A, 5).kind, VOTE)
        equal(waiter.vote(b'k', B, 6, flags=QUEUE).position, 1)
        equal(holder.end(b'k', A, 5, 5).kind, ENDED)
        [name, claim, data] = waiter.push()
        equal([name, len(claim)], [b'VOTE', 16])
        push = Answer(data)
        equal([push.kind, push.number, push.serial], [VOTE, 6, 0])


# LK-25: it has forgotten the lease, and does not vote for another. MS-05:
# numbers, and so tokens, rise all the same.
@case
def a_restarted_master_is_quiet():
    with masters() as [m]:
        link = Coordinator(m)
        equal(link.vote(b'k', A, 7).kind, VOTE)
        equal(link.commit(b'k', A, 7).kind, OK)
        mark = m.mark()
        m.stop(signal.SIGKILL, wanted=-signal.SIGKILL)
        began = time.monotonic()
        m.start()
        check(m.mark() > mark, 'the mark rises with each start')
        link = Coordinator(m)
        answer = link.vote(b'k', B, 8)
        equal(answer.kind, QUIET)
        check(0 < answer.quiet_ms <= LEASE_MAX_MS, answer.quiet_ms)
        check(m.status()['quiet_ms'] <= LEASE_MAX_MS)
        until(lambda: link.ask(READ, b'k').kind == REPORT, 'the end of quiet')
        check(time.monotonic() - began >= LEASE_MAX_MS / 1000, 'not before')
        equal(m.status()['quiet_ms'], 0)
        until(lambda: 'no longer quiet' in m.log(), 'a line about it')
        equal(link.vote(b'k', B, 8).kind, LOW)
        answer = link.vote(b'k', B, link.ask(READ, b'k').highest + 1)
        equal(answer.kind, VOTE)
        check(answer.number > mark, 'numbers rise over restarts')


@case
def a_longer_lease_than_the_setting_is_refused():
    with masters() as [m]:
        link = Coordinator(m)
        equal(link.vote(b'k', A, 5, lease_ms=LEASE_MAX_MS + 1).kind, REFUSED)
        equal(link.vote(b'k', A, 5, lease_ms=LEASE_MAX_MS).kind, VOTE)
        equal(m.status()['lease_max_ms'], LEASE_MAX_MS)


@case
def a_signal_stops_a_master():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with masters() as [m]:
            link = Coordinator(m)
            m.stop(number)
            check(closes(link.link))
            check('stopped' in m.log(), m.log())


@case
def a_mark_that_cannot_be_written_refuses_numbers():
    """A number above the mark is refused while the file cannot be written, and
    accepted when it can."""
    with masters() as [m]:
        link = Coordinator(m)
        mark = m.mark()
        obstacle = os.path.join(m.dir, 'tmp-master')
        os.mkdir(obstacle)
        equal(link.vote(b'k', A, mark + 1).kind, REFUSED)
        until(lambda: m.status()['mark_failed'], 'the failure')
        equal(link.vote(b'k', A, mark + 1).kind, REFUSED)
        equal(link.vote(b'other', A, mark - 1).kind, VOTE)
        equal(m.mark(), mark)
        os.rmdir(obstacle)
        until(lambda: not m.status()['mark_failed'], 'the next attempt')
        check(m.mark() > mark + 1)
        equal(link.vote(b'k', A, mark + 1).kind, VOTE)
        check(f'{m.file()}: cannot write' in m.log(), m.log())
        check('written again' in m.log(), m.log())


# ---- What a master knows by itself ------------------------------------------

# LK-28: summary, metadata and a dump of one key.
@case
def reads_lists_and_debug_show_one_master():
    with masters() as [m]:
        link = Coordinator(m)
        for i in range(3):
            equal(link.vote(b'key-%d' % i, A, 5).kind, VOTE)
        equal(link.vote(b'key-0', B, 6, flags=QUEUE).kind, BUSY)
        [index, info] = link.call('READ', b'key-0', 0)
        flags, at, token = struct.unpack_from('<BQQ', info)
        equal([flags, at, token], [1, index, 5])
        check(isinstance(link.call('READ', b'key-0', 1)[0], Error))
        [_, more, *infos] = link.call('LIST', b'key-', 0)
        equal([more, len(infos)], [0, 3])
        dump = typed(m, 'DEBUG key-0')
        equal([dump['record'], dump['vote']['number'], dump['waiters']],
              [True, 5, 1])
        equal([bid['number'] for bid in dump['queue']], [6])
        check(A.hex() not in json.dumps(dump), 'a nonce is a secret')
        equal(typed(m, 'DEBUG nothing')['record'], False)
        status = m.status()
        equal([status[name] for name in
               ('mode', 'role', 'set', 'held', 'votes', 'waiters')],
              ['quorum', 'master', 1, 0, 3, 1])
        equal(m.info()['votes'], '3')
        check(typed(m, 'READ key-0').startswith('-UNSUPPORTED'))
        equal(typed(m, 'READ key-0 LOCAL'), '*22')
        equal(typed(m, 'LIST key- COUNT 2'), '*3')


@case
def events_of_a_master_are_watched():
    with masters() as [m]:
        link = Coordinator(m)
        link.call('WATCH', 1, b'', 0, 0)
        link.vote(b'k', A, 5)
        link.commit(b'k', A, 5)
        link.ask(RENEW, b'k', A, token=5, lease_ms=LEASE_MAX_MS)
        link.end(b'k', A, 5, 5)
        kinds = []
        for _ in range(3):
            [name, number, event] = link.push()
            equal([name, number], [b'EVENT', 1])
            kinds.append(struct.unpack_from('<I', event)[0])
        equal(kinds, [1, 2, 8])


@case
def commands_on_locks_say_what_to_use_instead():
    with masters() as [m]:
        nonce = 'aa' * 16
        for line in ('LOCK k 1000', f'UNLOCK k {nonce} 5',
                     f'RENEW k {nonce} 5 1000', f'UPDATE k {nonce} 5 v',
                     f'CANCEL k {nonce}', 'FORCE k 5', f'LOOKUP k {nonce}'):
            shown = typed(m, line)
            check(shown.startswith('-UNSUPPORTED ') and
                  'command holdfast' in shown, line, shown)
        link = Coordinator(m)
        for words in (('OPEN', A, b'label'), ('DETACH',),
                      ('LOOKUP', b'k', A, 0), ('DO', 1000, b'x')):
            [error] = link.call(*words)
            check(error.startswith('UNSUPPORTED'), words, error)


@case
def malformed_input_does_no_harm():
    with masters() as [m]:
        chance = random.Random(20)
        good = Coordinator(m)
        for _ in range(200):
            data = chance.randbytes(chance.randrange(100))
            [error] = Coordinator(m).call('QUORUM', data)
            check(isinstance(error, Error), data, error)
        for _ in range(100):
            with m.connect() as link:
                with contextlib.suppress(OSError):
                    link.sendall(chance.randbytes(chance.randrange(1, 2000)))
        equal(good.vote(b'k', A, 5).kind, VOTE)
        m.check_alive()


if __name__ == '__main__':
    main()
