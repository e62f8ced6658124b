#!/usr/bin/env python3
"""holdfast-protocol(7), tried on a real node: every command of plain mode with
redis-cli, and MUX mode with a client that is written from the page alone.

    protocol.py COMMAND [CASE...]

holdfastd is beside COMMAND.
"""
import json
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nodes import ID, ROOT, closes, node  # noqa: E402
from mux import Error, Mux, string  # noqa: E402
from cases import (LIMIT, case, check, equal, main, read,  # noqa: E402
                   tool, until)

PAGE = os.path.join(ROOT, 'docs', 'man', 'holdfast-protocol.7')
A, B = 'aa' * 16, 'bb' * 16


# ---- redis-cli --------------------------------------------------------------

def command(n, *words, start=False):
    """What redis-cli shows to a person for a command. With `start`, return the
    process instead, and do not wait for its end."""
    process = subprocess.Popen(
        [tool('redis-cli'), '-p', str(n.client), '--no-raw', *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return process if start else shown(process)


def shown(process):
    return process.communicate(timeout=LIMIT)[0].decode().rstrip('\n')


def typed(n, lines):
    """What redis-cli shows if a person types these lines."""
    done = subprocess.run([tool('redis-cli'), '-p', str(n.client), '--no-raw'],
                          input='\n'.join(lines).encode() + b'\n',
                          stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    return done.stdout.decode()


@case
def the_commands_of_a_connection():
    with node() as n:
        equal(command(n, 'PING'), 'PONG')
        equal(command(n, 'PING', 'text'), '"text"')
        equal(command(n, 'ECHO', 'text'), '"text"')
        equal(command(n, 'QUIT'), 'OK')
        equal(command(n, 'COMMAND', 'DOCS'), '(empty array)')
        lines = [line.strip() for line in
                 command(n, 'HELLO', '1').split('\n')]
        equal(lines[:3], ['1) (integer) 1', f'2) "{ID}"', '3) (integer) 1'])
        equal(lines[5:], ['6) (integer) 1', '7) (integer) 1024',
                          '8) (integer) 196608', '9) "raft"', '10) ""',
                          '11) (integer) 0'])
        check(command(n, 'HELLO', '3').startswith('(error) UNSUPPORTED'))
        check('# Clients' in command(n, 'INFO') and 'requests_refused:' in
              command(n, 'INFO', 'clients'))


@case
def the_status_is_json():
    with node() as n, n.connect() as link, link.makefile('rb') as lines:
        link.sendall(b'LOCK k 60000\r\nSTATUS\r\n')
        for _ in range(5):
            lines.readline()
        status = json.loads(lines.read(int(lines.readline()[1:])))
        equal([status[name] for name in ('cluster', 'id', 'role', 'leader',
                                         'held', 'sessions', 'clients')],
              [ID, 1, 'leader', 1, 1, 1, 1])
        check(status['term'] > 0 and
              status['commit'] >= status['applied'] > 0)
        equal(status['first'], 1)
        check(status['last'] >= status['commit'])
        equal(status['uncommitted_earlier_term'], False)
        equal(status['nodes'], [{
            'id': 1, 'address': f'127.0.0.1:{n.client}',
            'peer_address': f'127.0.0.1:{n.peer}', 'lag': 0,
            'role': 'leader'}])


@case
def the_commands_of_locks():
    with node() as n:
        equal(command(n, 'LOCK', 'k', '60000', 'NONCE', A, 'VALUE', 'one',
                      'NOTE', 'text'),
              f'1) "{A}"\n2) (integer) 1\n3) (integer) 0')
        equal(command(n, 'lock', 'k', '60000', 'nonce', A).split('\n')[1],
              '2) (integer) 1')
        check(re.fullmatch(r'1\) "[0-9a-f]{32}"\n2\) \(integer\) 2\n'
                           r'3\) \(integer\) 0',
                           command(n, 'LOCK', 'other', '60000')))
        equal(command(n, 'LOCK', 'k', '60000'),
              '(error) BUSY held by another claim')
        equal(command(n, 'LOCK', 'k', '60000', 'WAIT', '10'),
              '(error) TIMEDOUT timed out')
        equal(command(n, 'RENEW', 'k', A, '1', '60000'), 'OK')
        equal(command(n, 'UPDATE', 'k', A, '1', 'two', 'IF', 'one'), 'OK')
        check(command(n, 'UPDATE', 'k', A, '1', 'x', 'IF', 'one').startswith(
            '(error) MISMATCH'))
        check(command(n, 'UNLOCK', 'k', B, '1').startswith(
            '(error) NOTOWNER'))
        equal(command(n, 'FORCE', 'k', '1'), 'OK')
        check(command(n, 'RENEW', 'k', A, '1', '60000').startswith(
            '(error) FORCED'))
        equal(command(n, 'UNLOCK', 'k', A, '1'), 'OK')
        check(command(n, 'UNLOCK', 'k', A, '1').startswith('(error) NOTHELD'))
        equal(command(n, 'FORCE', 'other', '2', 'NOW'), 'OK')
        check(command(n, 'CANCEL', 'k', A).startswith('(error) NOTHELD'))


@case
def a_lock_blocks_redis_cli_until_it_is_granted():
    with node() as n:
        command(n, 'LOCK', 'k', '60000', 'NONCE', A)
        waiter = command(n, 'LOCK', 'k', '60000', 'WAIT', '60000', 'NONCE', B,
                         start=True)
        until(lambda: command(n, 'LOOKUP', 'k', B) ==
              '1) "queued"\n2) (integer) 0\n3) (integer) 1', 'the waiter')
        equal(command(n, 'LOOKUP', 'k', A),
              '1) "held"\n2) (integer) 1\n3) (integer) 0')
        equal(command(n, 'UNLOCK', 'k', A, '1'), 'OK')
        check(shown(waiter).startswith(f'1) "{B}"\n2) (integer) 2\n3) '))
        waiter = command(n, 'LOCK', 'k', '60000', 'WAIT', '60000', 'NONCE', A,
                         start=True)
        until(lambda: 'queued' in command(n, 'LOOKUP', 'k', A), 'the waiter')
        waiter.kill()
        waiter.communicate()
        until(lambda: command(n, 'LOOKUP', 'k', A) ==
              '1) "unknown"\n2) (integer) 0\n3) (integer) 0',
              'the end of the waiter')


@case
def the_commands_that_read():
    with node() as n:
        for key, value in ('ab', 'v'), ('ac', ''), ('x', ''):
            command(n, 'LOCK', key, '600000', 'VALUE', value, 'NOTE', 'text')
        for local in [], ['LOCAL']:
            lines = command(n, 'READ', 'ab', *local).split('\n')
            equal([re.sub(r' *\d+\) ', '', line) for line in lines], [
                '"key"', '"ab"', '"held"', '(integer) 1', '"index"',
                '(integer) 3', '"token"', '(integer) 1', '"held_ms"',
                lines[9][4:], '"left_ms"', lines[11][4:], '"waiters"',
                '(integer) 0', '"forced"', '(integer) 0', '"owner"',
                '"plain client"', '"note"', '"text"', '"value"', '"v"'])
        equal(command(n, 'READ', 'none'), '1) "key"\n2) "none"\n3) "held"\n'
              '4) (integer) 0\n5) "index"\n6) (integer) 3')
        listed = command(n, 'LIST', 'a', 'COUNT', '1')
        check(listed.startswith('1) (integer) 1\n2)  1) "key"\n    2) "ab"'))
        listed = command(n, 'LIST', 'a', 'AFTER', '1')
        check(listed.startswith('1) (integer) 0\n2)  1) "key"\n    2) "ac"'))
        equal(command(n, 'LIST').count('"key"'), 3)
        equal(command(n, 'LIST', 'none'), '1) (integer) 0')
        equal(command(n, 'WATCH', 'a'), '(integer) 3')
        equal(command(n, 'UNWATCH'), 'OK')


def normalised(text):
    """Without the numbers that differ from run to run."""
    return re.sub(r'\(integer\) \d+', '(integer) N',
                  re.sub(r'[0-9a-f]{32}', 'NONCE', text)).split()


@case
def the_example_of_the_page_is_true():
    example = re.search(r'\$ redis-cli -p 7000\n(.*?)\.Ed', read(PAGE),
                        re.DOTALL)[1]
    prompt = '127.0.0.1:7000> '
    lines = [line[len(prompt):] for line in example.split('\n')
             if line.startswith(prompt)]
    with node() as n:
        nonce, token = re.search(r'"(\w{32})"\n2\) \(integer\) (\d+)',
                                 example).groups()
        first = typed(n, lines[:1])
        found = re.search(r'"(\w{32})"\n2\) \(integer\) (\d+)', first).groups()
        rest = typed(n, [line.replace(nonce, found[0]).replace(
            f' {token}', f' {found[1]}') for line in lines[1:]])
        answers = re.sub(rf'^{re.escape(prompt)}.*\n', '', example,
                         flags=re.MULTILINE)
        equal(normalised(first + rest), normalised(answers))


@case
def the_bytes_of_the_page_are_true():
    text = re.search(r'The bytes of a LOCK:\n.*?\n(\*3.*?)\n', read(PAGE),
                     re.DOTALL)[1]
    data = text.replace('\\er', '\r').replace('\\en', '\n').encode()
    with node() as n, n.connect() as link:
        link.sendall(data)
        check(re.fullmatch(rb'\*3\r\n\$32\r\n[0-9a-f]{32}\r\n:1\r\n:0\r\n',
                           link.recv(256)))


@case
def the_page_passes_mandoc_lint_and_renders():
    done = subprocess.run([tool('mandoc'), '-Tlint', '-Wwarning', PAGE],
                          stdout=subprocess.PIPE, check=False)
    equal(done.stdout.decode(), '')
    done = subprocess.run([tool('man'), '-l', PAGE], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=True,
                          env={**os.environ, 'MANWIDTH': '80'})
    equal(done.stderr.decode(), '')
    check('ENCODINGS' in done.stdout.decode())


# ---- A client that is written from the page ---------------------------------

class Client(Mux):
    """A client of a raft node."""

    def __init__(self, n):
        super().__init__(n)
        self.session = 0
        self.sequence = 0

    def open(self):
        [self.session] = self.call('OPEN', os.urandom(16), 'label')

    def do(self, kind, key, rest):
        """Execute a command. Returns error, position, generation, token."""
        self.sequence += 1
        done = self.call('DO', 5000, struct.pack(
            '<BBQQQ', self.hello[5], kind, self.session, self.sequence,
            self.sequence) + string(key) + rest)
        equal([type(word) for word in done], [bytes, int, int])
        error, position, generation, token, session = struct.unpack(
            '<BIIQQ', done[0])
        equal(session, 0)
        return error, position, generation, token

    def lock(self, key, nonce, queue=False, value=b'', note=b''):
        return self.do(3, key, nonce + struct.pack('<IB', 60000, queue) +
                       string(value) + string(note))


def unpack(form, data):
    """Decode numbers, then strings: s is bytes, t is text."""
    numbers, strings = re.fullmatch(r'([A-Z]*)([a-z]*)', form).groups()
    values = list(struct.unpack_from('<' + numbers, data))
    at = struct.calcsize('<' + numbers)
    for kind in strings:
        [size] = struct.unpack_from('<I', data, at)
        found = data[at + 4:at + 4 + size]
        at += 4 + size
        if kind == 't':
            check(found.endswith(b'\0') and found.count(b'\0') == 1, found)
        values.append(found)
    equal(at, len(data))
    return values


def error_numbers():
    """The numbers of errors, as the page lists them."""
    return {name: int(number) for number, name in re.findall(
        r'^\.It (\d+) Ta ([A-Z]+)$', read(PAGE), re.MULTILINE)}


@case
def sessions_in_mux_mode():
    with node() as n:
        one, two = Client(n), Client(n)
        equal(one.hello[:4], [1, ID.encode(), 1, 1])
        secret = os.urandom(16)
        [session] = one.call('OPEN', secret, 'label')
        check(isinstance(session, int) and session > 0)
        equal(two.call('ATTACH', session, secret), ['OK'])
        equal(one.call('PING'), ['OK'])
        status = json.loads(one.call('STATUS')[0])
        equal((status['sessions'], status['clients']), (1, 2))
        equal(two.call('DETACH'), ['OK'])
        [gone] = two.call('ATTACH', session, secret)
        check(isinstance(gone, Error) and gone.startswith('GONE '), gone)


@case
def commands_in_mux_mode():
    numbers = error_numbers()
    nonce_a, nonce_b = os.urandom(16), os.urandom(16)
    with node() as n:
        one, two = Client(n), Client(n)
        one.open()
        two.open()
        equal(one.lock(b'k', nonce_a, value=b'v', note=b'n'), (0, 0, 0, 1))
        error, position, _, _ = two.lock(b'k', nonce_b, queue=True)
        equal((error, position), (numbers['BUSY'], 1))
        equal(two.call('LOOKUP', 'k', nonce_b, 1)[:4], [b'queued', 0, 0, 1])
        renew = nonce_a + struct.pack('<QI', 1, 60000)
        equal(one.do(5, b'k', renew)[0], 0)
        update = nonce_a + struct.pack('<QB', 1, 4) + string(b'w')
        equal(one.do(6, b'k', update + string(b'x'))[0], numbers['MISMATCH'])
        equal(one.do(6, b'k', update + string(b'v'))[0], 0)
        equal(one.do(4, b'k', nonce_a + struct.pack('<Q', 1))[0], 0)
        push = two.push()
        equal(push[:3], [b'GRANT', nonce_b, 2])
        check(push[4] >= 0, push)
        equal(two.do(9, b'k', struct.pack('<QB', 2, 0))[0], 0)
        renew = nonce_b + struct.pack('<QI', 2, 60000)
        equal(two.do(5, b'k', renew)[0], numbers['FORCED'])
        equal(two.do(8, b'k', nonce_b)[0], 0)
        equal(two.do(8, b'k', nonce_b)[0], numbers['NOTHELD'])
        head = struct.pack('<BBQQQ', one.hello[5], 9, one.session, 99, 99)
        for wrong in (struct.pack('<QB', 2, 8), struct.pack('<QBB', 2, 0, 0)):
            [error] = one.call('DO', 5000, head + string(b'k') + wrong)
            check(isinstance(error, Error) and error.startswith('PROTO'))


@case
def commands_of_nodes_are_denied_in_mux_mode():
    with node() as n:
        one = Client(n)
        one.open()
        close = struct.pack('<BBQQQ', one.hello[5], 2, one.session, 1, 1)
        [error] = one.call('DO', 5000, close + string(b''))
        check(isinstance(error, Error), error)
        equal(one.lock(b'k', os.urandom(16)), (0, 0, 0, 1))


@case
def reads_in_mux_mode():
    with node() as n:
        one = Client(n)
        one.open()
        one.lock(b'ab', os.urandom(16), value=b'v', note=b'n')
        one.lock(b'ac', os.urandom(16))
        for linearizable in 0, 1:
            index, info = one.call('READ', 'ab', linearizable)
            found = unpack('BQQIIIsstt', info)
            equal(index, 2)
            equal(found[:3] + found[5:],
                  [1, 2, 1, 0, b'ab', b'v', b'label\0', b'n\0'])
            check(0 < found[4] <= 60000, found)
            index, more, *infos = one.call('LIST', 'a', linearizable)
            equal((index, more, len(infos)), (2, 0, 2))
        equal(one.call('WATCH', 7, 'a', 1, 0), [2])
        for index, key in (1, b'ab'), (2, b'ac'):
            name, number, event = one.push()
            equal((name, number), (b'EVENT', 7))
            equal(unpack('IBQQst', event),
                  [1, 0, index, index, key, b'label\0'])
        equal(one.call('UNWATCH', 7), ['OK'])


@case
def malformed_requests_in_mux_mode():
    with node() as n:
        one = Client(n)
        [error] = one.call('NONSENSE')
        check(isinstance(error, Error) and error.startswith('PROTO'), error)
        one.send('PING')
        check(one.receive().startswith('PROTO'))
        check(closes(one.link))


if __name__ == '__main__':
    main()
