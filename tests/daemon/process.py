#!/usr/bin/env python3
"""holdfastd, from outside: its command line, its directory, and what arrives
at its two ports.

    process.py COMMAND [CASE...]

holdfastd is beside COMMAND.
"""
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nodes import (DAEMON, ID, ROOT, closes, cluster,  # noqa: E402
                   daemon, leader_of, node)
from cases import (case, check, equal, main, read, tool,  # noqa: E402
                   until)

REFUSAL = b'-LIMIT this node has too many connections\r\n'
PAGE = os.path.join(ROOT, 'docs', 'man', 'holdfastd.8')


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
                       (('--dir', 'd', '--node', '0'), 'begin at 1'),
                       (('--dir', 'd', '--election-ms', '0'), 'number from 1'),
                       (('--dir', 'd', '--heartbeat-ms=0'), 'number from 1'),
                       (('--dir', 'd', '--table-mib', '0'), 'number from 1'),
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
            check('another member' in shown or 'Upgrade' in shown or
                  'Restore' in shown or 'Check' in shown, shown)
        os.remove(path)
        check('Copy the file' in daemon('--dir', n.dir, wanted=69))
        with open(path, 'w', encoding='ascii') as file:
            file.write(good.replace('\n', ' \r\n') + '\n# a comment\n')
        n.start()


@case
def a_damaged_log_is_reported_once_with_the_next_step():
    with node() as n:
        check(n.answers())
        until(lambda: n.status()['leader'] == 1, 'a leader')
        n.stop()
        name = min(f for f in os.listdir(n.dir) if f.startswith('log-'))
        with open(os.path.join(n.dir, name), 'r+b') as file:
            file.truncate(1000)
        shown = daemon('--dir', n.dir, wanted=69)
        equal(shown.count(name), 1, shown)
        check('Keep this node stopped' in shown, shown)
        check('adding members is not supported yet.\n' in shown, shown)


def damage(path):
    """Change the first bytes of both halves of a file."""
    with open(path, 'r+b') as file:
        for offset in (0, os.path.getsize(path) // 2):
            file.seek(offset)
            file.write(b'damaged!')


@case
def a_file_that_is_lost_is_named_with_the_next_step():
    with node() as n:
        until(lambda: n.status()['leader'] == 1, 'a leader')
        n.stop()
        copy = n.dir + '.copy'
        shutil.copytree(n.dir, copy)
        first = min(f for f in os.listdir(copy) if f.startswith('log-'))
        for name in (first, 'identity', 'incarnation'):
            for harm in (damage, os.remove):
                harm(os.path.join(n.dir, name))
                shown = daemon('--dir', n.dir, wanted=69)
                check(name in shown or 'segment' in shown, shown)
                check('Keep this node stopped' in shown, shown)
                # It does not start at the second attempt, either.
                equal(daemon('--dir', n.dir, wanted=69).count('Keep this'), 1)
                shutil.rmtree(n.dir)
                shutil.copytree(copy, n.dir)
        damage(os.path.join(n.dir, first))
        with open(os.path.join(n.dir, 'snapshot-' + '0' * 15 + '1'), 'w',
                  encoding='ascii') as file:
            file.write('x')
        shown = daemon('--dir', n.dir, wanted=69)
        check('truncated. Keep this node stopped' in shown, shown)


@case
def ports_in_use_are_named():
    with node(start=False) as n:
        n.init()
        for port in (n.peer, n.client):
            with socket.create_server(('127.0.0.1', port)):
                shown = daemon('--dir', n.dir, wanted=69)
                check(f'127.0.0.1:{port}: another process' in shown, shown)
        n.start().check_alive()


def descriptors(process):
    """{number: file} of the descriptors of a process, without those that it
    closes meanwhile."""
    folder = f'/proc/{process.pid}/fd'
    files = {}
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            files[int(name)] = os.readlink(os.path.join(folder, name))
    return files


@case
def a_ready_descriptor_must_be_open():
    """It would become that of a file of the node."""
    with node() as n:
        numbers = list(descriptors(n.process))
        check(len(numbers) > 10, numbers)
        n.stop()
        for number in set(range(3, max(numbers) + 10)):
            shown = daemon('--dir', n.dir, '--ready-fd', str(number),
                           wanted=64)
            check(f'descriptor {number} is not open' in shown, shown)
        n.start()


@case
def closed_standard_descriptors_are_not_used_for_files():
    with node() as n:
        n.stop()
        n.process = subprocess.Popen(
            ['sh', '-c', 'exec "$0" --dir "$1" 0<&- 1>&- 2>&-', DAEMON, n.dir])
        until(n.listens, 'the node')
        opened = descriptors(n.process)
        equal([opened[fd] for fd in (0, 1, 2)], ['/dev/null'] * 3)
        n.stop()
        process = n.spawn('--ready-fd', '2')
        n.process = process
        until(n.listens, 'the node')
        until(lambda: descriptors(process)[2] == '/dev/null', 'fd 2')
        n.stop()
        check(n.log().endswith('ready\n'), n.log())
        n.start()


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
def a_request_sees_the_time_of_its_arrival():
    """It does not see the time of the last turn, before the node was idle."""
    with node() as one, one.connect() as link:
        link.sendall(b'LOCK k 60000\r\n')
        check(link.recv(256).startswith(b'*'), one.log())
        held = time.monotonic()
        for _ in range(5):
            time.sleep(0.09)
            least = (time.monotonic() - held) * 1000 - 2
            link.sendall(b'READ k LOCAL\r\n')
            shown = re.search(rb'held_ms\r\n:(\d+)', link.recv(1024))
            check(int(shown.group(1)) >= least, shown.group(), least)


# GO-33, G2-14: changes of the role are reported.
@case
def events_are_reported_on_stderr():
    with node() as n:
        until(lambda: 'leader in term' in n.log(), 'an election')
        n.stop()
        for line in n.log().splitlines():
            check(re.match(r'\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z node 1: ', line),
                  line)
        check(f'ready: clients at 127.0.0.1:{n.client}, ' in n.log(), n.log())


def roles_of(n, since=0):
    """The roles that a node has reported, without repeats: [(role, leader)]."""
    found = []
    for role, leader in re.findall(
            r' (follower|candidate|leader) in term \d+, leader (\d+)\n',
            n.log()[since:]):
        if (role, int(leader)) not in found[-1:]:
            found.append((role, int(leader)))
    return found


def replace_leader(nodes):
    """Kill the leader, and start it again. Returns what its successor reports
    meanwhile; or nothing if that had become the leader before, because the
    machine stopped the processes for long."""
    old = leader_of(nodes)
    rest = [n for n in nodes if n is not old]
    until(lambda: all(('follower', old.number) in roles_of(n) for n in rest),
          'the followers')
    check(('leader', old.number) in roles_of(old), old.log())
    before = {n: len(n.log()) for n in nodes}
    old.stop(signal.SIGKILL, wanted=-signal.SIGKILL)
    until(lambda: leader_of(rest), 'another leader')
    new = leader_of(rest)
    until(lambda: ('leader', new.number) in roles_of(new), 'its report')
    other = next(n for n in rest if n is not new)
    until(lambda: ('follower', new.number) in roles_of(other), 'its follower')
    old.start()
    until(lambda: ('follower', new.number) in roles_of(old, before[old]),
          'the node that is back')
    return [role for role, _ in roles_of(new, before[new])]


# G2-14
@case
def nodes_report_how_a_killed_leader_is_replaced():
    with cluster() as nodes:
        roles = []
        while 'leader' not in roles:
            until(lambda: leader_of(nodes), 'a leader')
            roles = replace_leader(nodes)
        check('candidate' in roles[:roles.index('leader')], roles)


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
                # The answer shows that the node has had another turn.
                other.sendall(b'*1\r\n$4\r\nPING\r\n')
                equal(other.recv(64), b'+PONG\r\n')
            check(False, 'the node keeps 60 MB of output')
        except ConnectionError:
            n.check_alive()
        other.sendall(b'INFO\r\n')
        shown = other.recv(65536).decode()
        check('connections_slow:1\r\n' in shown, 'the node cut it off', shown)


def received(link):
    """What arrives until the other side closes the connection."""
    with link.makefile('rb') as file:
        return file.read()


# The limit of the process leaves descriptors for the node itself.
@case
def the_limit_on_open_files_limits_the_clients():
    with node(start=False) as n, contextlib.ExitStack() as stack:
        n.init()
        n.start(through=(tool('prlimit'), '--nofile=300:300'))
        served = stack.enter_context(n.connect())
        limit = int(n.info(served)['maxclients'])
        check(100 <= limit < 300, limit)
        for _ in range(limit - 1):
            link = stack.enter_context(n.connect())
            link.sendall(b'PING\r\n')
            equal(link.recv(64), b'+PONG\r\n')
        for _ in range(20):
            with n.connect() as link:
                equal(received(link), REFUSAL)
        shown = n.info(served)
        equal(shown['connections_refused'], '20')
        equal(shown['connected_clients'], str(limit))


@case
def refused_peers_are_counted():
    with node() as n:
        for _ in range(3):
            with n.connect(n.peer) as link:
                link.sendall(b'PING\r\n')
                check(closes(link))
        equal(n.info()['links_refused'], '3')


@case
def no_free_descriptor_is_survived():
    with node() as n, contextlib.ExitStack() as stack:
        # The log needs descriptors until it has made these.
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
        equal(received(links[-1]), REFUSAL, 'it is accepted and refused')
        served.sendall(b'*1\r\n$4\r\nPING\r\n')
        equal(served.recv(64), b'+PONG\r\n')
        shown = n.info(served)
        check(int(shown['connections_refused']) >= 40, shown)
        resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE, old)
        n.check_alive()


def spare_descriptors(n):
    """The number of descriptors that a node can close to refuse with."""
    folder = f'/proc/{n.process.pid}/fd'
    count = 0
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f'{folder}/{fd}') == '/dev/null'
    return count


@case
def connections_wait_without_any_descriptor():
    with node() as n, contextlib.ExitStack() as stack:
        served = stack.enter_context(n.connect())
        served.sendall(b'*1\r\n$4\r\nPING\r\n')
        equal(served.recv(64), b'+PONG\r\n')
        hard = resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE)[1]
        old = resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE,
                               (3, hard))
        spares = spare_descriptors(n)
        links = [stack.enter_context(n.connect()) for _ in range(20)]
        for link in links:
            link.sendall(b'*1\r\n$4\r\nPING\r\n')
        # With the spare one, and the old limit, it would refuse a connection.
        until(lambda: spare_descriptors(n) < spares, 'the spare descriptor')
        served.sendall(b'*1\r\n$4\r\nPING\r\n')
        equal(served.recv(64), b'+PONG\r\n')
        resource.prlimit(n.process.pid, resource.RLIMIT_NOFILE, old)
        for link in links:
            equal(link.recv(64), b'+PONG\r\n')


if __name__ == '__main__':
    main()
