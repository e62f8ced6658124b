#!/usr/bin/env python3
"""`holdfast cluster` and `holdfast status`, with masters of a quorum."""
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from cases import (HOLDFAST, LONG, Running, TooSlow, alive, case, check,
                   environment, equal, lasting, main, read, run)
from clusters import cluster, status_of_server

# Masters that have restarted are quiet for this long. It is a lower bound.
LEASE_MAX = '2s'


def quorum(c, *args, **options):
    """Start a quorum cluster."""
    return c.up('--mode', 'quorum', *args, **options)


def settings(c):
    """{name: value} of the lines of the file `cluster`, without the nodes."""
    return dict(line.split(' ', 1) for line in
                read(c.path('cluster')).splitlines()
                if not line.startswith('node '))


# ---- up and down


@case
def up_prints_the_url_alone():
    with cluster() as c:
        ended = quorum(c)
        equal(ended.err, '')
        equal([len(node) for node in c.addresses()], [1, 1, 1])
        wanted = ','.join(f'127.0.0.1:{node[0][1]}' for node in c.addresses())
        equal(ended.out, f'quorum://{wanted}\n')
        equal(settings(c)['mode'], 'quorum')
        (shown,) = c.up('--json').json()
        equal(shown, {'url': f'quorum://{wanted}', 'directory': c.dir})


@case
def a_new_cluster_is_not_quiet():
    with cluster() as c:
        quorum(c, '--nodes', '5')
        shown = c.status()
        equal([node['role'] for node in shown['nodes']], ['master'] * 5)
        equal([node['quiet_ms'] for node in shown['nodes']], [0] * 5)


@case
def up_again_keeps_ports_and_processes():
    with cluster() as c:
        url, pids = quorum(c, '--lease-max', LEASE_MAX).out, c.pids()
        for options in ([], ['--mode', 'quorum'], ['--nodes', '3'],
                        ['--lease-max', LEASE_MAX]):
            ended = c.up(*options)
            equal((ended.out, ended.err), (url, ''))
        equal(c.pids(), pids)


# The others serve meanwhile.
@case
def up_starts_what_is_down_and_does_not_wait_for_it():
    with cluster() as c:
        url, pids = quorum(c, '--lease-max', '1h').out, c.pids()
        c.kill(2)
        ended = c.up()
        equal(ended.out, url)
        check('node 2 has restarted, and is quiet for ' in ended.err, ended)
        equal(ended.err.count('quiet'), 1, ended)
        after = c.pids()
        equal((after[1], after[3]), (pids[1], pids[3]))
        check(after[2] != pids[2], after)
        nodes = c.status()['nodes']
        equal([node['quiet_ms'] > 0 for node in nodes], [False, True, False])
        check(re.search(r'^2 .* master .* [0-9]+m [0-9]+s +0$',
                        c.run('status').out, re.MULTILINE))


# Otherwise the next command would fail.
@case
@lasting(2000)
def up_waits_until_a_majority_is_not_quiet(lease_ms):
    with cluster() as c:
        url = quorum(c, '--lease-max', f'{lease_ms}ms').out
        c.down()
        ended = c.up()
        equal(ended.out, url)
        nodes = c.status()['nodes']
        check([node['quiet_ms'] for node in nodes].count(0) >= 2, nodes)
        if 'quiet' not in ended.err:
            raise TooSlow
        check('the masters have restarted, and are quiet for ' in ended.err,
              ended)
        check('Waiting.' in ended.err, ended)


@case
@lasting(3000)
def up_shows_on_a_terminal_how_long_the_masters_are_quiet(lease_ms):
    with cluster() as c:
        url = quorum(c, '--lease-max', f'{lease_ms}ms').out
        c.down()
        shown = up_at_terminal(c)
        equal(read(c.path('shown')), url)
        if 'quiet' not in shown:
            raise TooSlow
        check(shown.startswith('\rholdfast: the masters have restarted, and '
                               'are quiet for '), repr(shown))
        check(shown.endswith('\r\x1b[K'), repr(shown))
        check('\n' not in shown, repr(shown))


def up_at_terminal(c):
    """Run `cluster up` with a terminal as stderr. Returns what it shows."""
    shown = b''
    pid, fd = pty.fork()
    if pid == 0:
        os.dup2(os.open(c.path('shown'), os.O_WRONLY | os.O_CREAT), 1)
        os.execve(HOLDFAST, [HOLDFAST, 'cluster', 'up', '--dir', c.dir], c.env)
    with contextlib.suppress(OSError):  # EIO at the end
        while data := os.read(fd, 65536):
            shown += data
    os.close(fd)
    equal(os.waitpid(pid, 0)[1], 0, shown)
    return shown.decode()


@case
def masters_can_be_stopped_while_up_waits():
    with cluster() as c:
        quorum(c, '--lease-max', '1h')
        c.down()
        waiting = Running('cluster', 'up', '--dir', c.dir, env=c.env)
        line = waiting.process.stderr.readline().decode()
        check('are quiet for ' in line, line)
        equal(c.run('cluster', 'down', '--json').json(), [{'stopped': 3}])
        ended = waiting.end(wanted=69)
        equal(ended.out, '')
        check('node 3 has stopped' in ended.err, ended)
        check('0 of 3 nodes run' in ended.err, ended)


# The masters stay.
@case
def up_can_be_interrupted_while_it_waits():
    with cluster() as c:
        quorum(c, '--lease-max', '1h')
        c.down()
        waiting = Running('cluster', 'up', '--dir', c.dir, env=c.env)
        line = waiting.process.stderr.readline().decode()
        check('are quiet for ' in line, line)
        waiting.signal(signal.SIGINT)
        equal(waiting.end(wanted=-signal.SIGINT).out, '')
        equal(sorted(c.pids()), [1, 2, 3])


@case
def down_stops_all_masters():
    with cluster() as c:
        url, pids = quorum(c, '--lease-max', LEASE_MAX).out, c.pids()
        equal(len(pids), 3)
        equal(c.run('cluster', 'down', '--json').json(), [{'stopped': 3}])
        check(not any(alive(pid) for pid in pids.values()), pids)
        equal(c.up().out, url)


@case
def a_missing_master_is_not_created_again():
    with cluster() as c:
        url = quorum(c, '--lease-max', LEASE_MAX).out
        c.down()
        shutil.rmtree(c.path('node-2'))
        ended = c.up()
        equal(ended.out, url)
        check('node 2 was not started' in ended.err, ended)
        check('2 of 3 nodes serve' in ended.err, ended)
        check(not os.path.exists(c.path('node-2')))
        equal(sorted(c.pids()), [1, 3])
        c.down()
        shutil.rmtree(c.path('node-3'))
        ended = c.up(wanted=69)
        equal(ended.out, '')
        check('1 of 3 nodes run, which is not a majority' in ended.err, ended)
        equal(sorted(c.pids()), [1])


# Without it, the master would promise numbers a second time.
@case
def a_master_without_its_file_is_refused():
    with cluster() as c:
        quorum(c, '--lease-max', LEASE_MAX)
        c.down()
        os.remove(c.path('node-3', 'master'))
        ended = c.up()
        check('node 3 did not start' in ended.err, ended)
        check('node-3/master' in ended.err, ended)
        check(not os.path.exists(c.path('node-3', 'master')))
        equal(sorted(c.pids()), [1, 2])


@case
def the_directory_of_another_master_is_refused():
    with cluster() as c:
        quorum(c, '--lease-max', LEASE_MAX)
        c.down()
        shutil.rmtree(c.path('node-2'))
        shutil.copytree(c.path('node-1'), c.path('node-2'))
        ended = c.up()
        check('node 2 was not started' in ended.err, ended)
        check('is that of another node' in ended.err, ended)
        equal(sorted(c.pids()), [1, 3])


@case
def an_interrupted_creation_is_started_again():
    for delay in range(0, 40, 8):
        with cluster() as c:
            process = subprocess.Popen(
                [HOLDFAST, 'cluster', 'up', '--mode', 'quorum', '--dir', c.dir,
                 '--lease-max', LEASE_MAX], env=c.env,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay / 1000)
            process.kill()
            process.wait()
            quorum(c, '--lease-max', LEASE_MAX)
            equal(len(c.pids()), 3)
            check(not os.path.exists(c.path('creating')))


# ---- Options


@case
def another_mode_is_refused():
    with cluster() as c:
        quorum(c)
        ended = c.up('--mode', 'raft', wanted=64)
        check(f'{c.dir} is a quorum cluster' in ended.err, ended)
        check('cannot be changed' in ended.err, ended)
        equal(ended.out, '')
    with cluster() as c:
        c.up('--mode', 'raft', '--nodes', '1')
        equal(settings(c)['mode'], 'raft')
        ended = c.up('--mode', 'quorum', wanted=64)
        check(f'{c.dir} is a raft cluster' in ended.err, ended)


@case
def a_file_without_a_mode_is_that_of_a_raft_cluster():
    with cluster() as c:
        url = c.up('--nodes', '1').out
        c.down()
        text = read(c.path('cluster'))
        check('mode raft\n' in text, text)
        with open(c.path('cluster'), 'w', encoding='ascii') as file:
            file.write(text.replace('mode raft\n', ''))
        equal(c.up('--mode', 'raft').out, url)
        equal(c.status()['mode'], 'raft')
        c.up('--mode', 'quorum', wanted=64)


@case
def malformed_settings_of_a_cluster_are_refused():
    with cluster() as c:
        quorum(c, '--lease-max', LEASE_MAX)
        text = read(c.path('cluster'))
        for before, after in (('mode quorum\n', 'mode other\n'),
                              ('mode quorum\n', 'mode\n'),
                              ('lease_max_ms 2000\n', 'lease_max_ms x\n'),
                              ('mode quorum\n', ''),
                              ('node 3', 'mode quorum\nnode 3')):
            with open(c.path('cluster'), 'w', encoding='ascii') as file:
                file.write(text.replace(before, after))
            check('Restore this file' in c.up(wanted=69).err, after)
        with open(c.path('cluster'), 'w', encoding='ascii') as file:
            file.write(text)


@case
def the_maximum_lease_is_set_once():
    with cluster() as c:
        quorum(c, '--lease-max', '90s')
        equal(settings(c)['lease_max_ms'], '90000')
        for number in (1, 2, 3):
            check('"lease_max_ms":90000,' in c.request(number, 'STATUS'))
        ended = c.up('--lease-max', '10s', wanted=64)
        check('the maximum lease is 1m 30s' in ended.err, ended)
    with cluster() as c:
        quorum(c)
        check('lease_max_ms' not in settings(c))
        ended = c.up('--lease-max', '10s', wanted=64)
        check('the maximum lease is the default' in ended.err, ended)


@case
def options_of_a_quorum_are_refused_elsewhere():
    with cluster() as c:
        for mode in ([], ['--mode', 'raft']):
            ended = c.up('--lease-max', '10s', *mode, wanted=64)
            check('--lease-max is for --mode quorum' in ended.err, ended)
        check(not os.path.exists(c.path('cluster')))
        for option in (['--mode', 'other'], ['--mode', ''],
                       ['--lease-max', '0'], ['--lease-max', '8d'],
                       ['--lease-max', '169h']):
            check(option[0] in c.up(*option, wanted=64).err, option)
        c.up('--nodes', '1')
        ended = c.up('--lease-max', '10s', wanted=64)
        check('--lease-max is for --mode quorum' in ended.err, ended)
        for option in (['--mode', 'raft'], ['--lease-max', '1s']):
            ended = c.run('cluster', 'down', *option, wanted=64)
            check(f"{option[0]} is for 'cluster up'" in ended.err, ended)


# ---- status


def master(**more):
    """What a master replies to STATUS."""
    reply = {'cluster': '8e3f41c2a0a54d5f9d1c3c3c1f9b7a60', 'mode': 'quorum',
             'id': 1, 'role': 'master', 'set': 7, 'lease_max_ms': 60000,
             'quiet_ms': 0, 'mark': 1, 'mark_failed': False, 'highest': 0,
             'held': 4, 'votes': 1, 'waiters': 2, 'records': 9, 'index': 30,
             'clients': 1, 'nodes': []}
    reply.update(more)
    return json.dumps(reply, separators=(',', ':')).encode()


@case
def status_shows_what_a_master_reports():
    shown = json.loads(status_of_server(master(), scheme='quorum',
                                        options=['--json']))
    (node,) = shown.pop('nodes')
    equal(shown, {'cluster': '8e3f41c2a0a54d5f9d1c3c3c1f9b7a60', 'set': 7,
                  'mode': 'quorum'})
    node.pop('address')
    node.pop('pid')
    equal(node, {'id': 1, 'role': 'master', 'quiet_ms': 0, 'held': 4,
                 'waiters': 2, 'mark_failed': False})
    lines = status_of_server(master(), scheme='quorum').splitlines()
    equal(lines[0], 'cluster 8e3f41c2a0a54d5f9d1c3c3c1f9b7a60  set 7')
    equal(lines[1].split(), ['ID', 'ADDRESS', 'ROLE', 'PID', 'QUIET', 'HELD'])
    words = lines[2].split()
    equal(words[0] + words[2], '1master')
    equal(words[4:], ['-', '4'])


@case
def status_says_that_a_master_is_quiet():
    line = status_of_server(master(quiet_ms=58999),
                            scheme='quorum').splitlines()[2]
    equal(line.split()[4:], ['58s', '4'])


@case
def status_says_that_a_master_cannot_write_its_file():
    line = status_of_server(master(mark_failed=True),
                            scheme='quorum').splitlines()[2]
    check(line.endswith('its file cannot be written'), line)


@case
def status_adds_the_members_that_a_master_names():
    reply = master(nodes=[{'id': 2, 'address': '127.0.0.1:1',
                           'role': 'master'}])
    shown = json.loads(status_of_server(reply, scheme='quorum',
                                        options=['--json']))
    equal(shown['nodes'][1], {'id': 2, 'address': '127.0.0.1:1',
                              'role': 'unreachable',
                              'reason': 'nothing listens there'})


@case
def status_says_that_the_scheme_is_the_other_one():
    shown = status_of_server(master(), scheme='raft', wanted=69)
    check('a node of a quorum cluster; use quorum://' in shown, shown)
    shown = status_of_server(b'{"id":1,"role":"leader","nodes":[]}',
                             scheme='quorum', wanted=69)
    check('a node of a raft cluster; use raft://' in shown, shown)


@case
def status_shows_no_control_characters_of_a_master():
    shown = status_of_server(
        b'{"id":1,"role":"\x1b[31mmaster","cluster":"\x9b1m","quiet_ms":0,'
        b'"nodes":[]}', scheme='quorum')
    check('?[31mmaster' in shown and '\x1b' not in shown, shown)


@case
def status_needs_a_url_of_a_quorum_with_addresses():
    check('empty' in run('status', 'quorum://', wanted=64).err)
    check('quorum://' in run('status', 'quorum:127.0.0.1:1', wanted=64).err)
    run('status', 'quorum://127.0.0.1:1', wanted=69)


@case
def status_shows_each_master():
    with cluster() as c:
        url = quorum(c).out.strip()
        shown = c.status()
        equal(list(shown), ['cluster', 'set', 'nodes', 'mode'])
        equal((shown['cluster'], shown['set'], shown['mode']),
              (settings(c)['cluster'], 1, 'quorum'))
        for number, node in enumerate(shown['nodes'], 1):
            equal(list(node), ['id', 'address', 'role', 'quiet_ms', 'held',
                               'waiters', 'mark_failed', 'pid'])
            equal((node['id'], node['role']), (number, 'master'))
            check(alive(node['pid']), node)
        first = url.partition(',')[0]
        for ended in (run('status', '--json', url),
                      run('status', '--json', first),
                      run('status', '--json',
                          env=environment(HOLDFAST_URL=url))):
            (other,) = ended.json()
            equal(other, shown)
        named = url.replace('127.0.0.1', 'localhost')
        (other,) = run('status', '--json', named).json()
        equal([node['id'] for node in other['nodes']], [1, 2, 3])


@case
def status_needs_no_quorum():
    with cluster() as c:
        quorum(c)
        c.kill(1, 3)
        shown = c.status()
        equal([node['role'] for node in shown['nodes']],
              ['unreachable', 'master', 'unreachable'])
        equal([node['id'] for node in shown['nodes']], [1, 2, 3])
        c.kill(2)
        shown = c.status(wanted=69)
        equal({node['role'] for node in shown['nodes']}, {'unreachable'})
        equal(shown['mode'], 'quorum')


# ---- locks


@case
def a_quorum_holds_locks():
    with cluster() as c:
        url = quorum(c).out.strip()
        ended = run('run', '--url', url, 'k', '--', 'sh', '-c',
                    'echo $HOLDFAST_TOKEN')
        first = int(ended.out)
        held = run('lock', '--url', url, '--ttl', '30s', 'k')
        key, nonce, token = held.out.split()
        check(int(token) > first, held)
        run('lock', '--url', url, '--no-wait', 'k', wanted=75)
        run('unlock', '--url', url, key, nonce, str(int(token) + 1), wanted=77)
        run('unlock', '--url', url, key, '0' * 32, token, wanted=77)
        run('update', '--url', url, key, nonce, token, 'v')
        (shown,) = run('show', '--url', url, '--json', key).json()
        equal((shown['held'], shown['token']), (True, token))
        run('renew', '--url', url, key, nonce, token)
        run('unlock', '--url', url, key, nonce, token)
        run('unlock', '--url', url, key, nonce, token, wanted=77)
        equal(run('ls', '--url', url, '--json').out, '')


@case
def a_longer_ttl_than_the_longest_lease_is_refused():
    with cluster() as c:
        url = quorum(c, '--lease-max', LEASE_MAX).out.strip()
        ended = run('run', '--url', url, '--ttl', '3s', 'k', '--', 'true',
                    wanted=64)
        check('--lease-max' in ended.err, ended)


@case
def doctor_says_how_locks_are_lost():
    with cluster() as c:
        url = quorum(c).out.strip()
        ended = run('doctor', url)
        check('3 of 3 usable' in ended.out, ended)
        check('restart one master at a time' in ended.out, ended)


# ---- masters that do not count


def copy_bytes(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def serve_forwards(server, target):
    with contextlib.suppress(OSError):
        while True:
            link = server.accept()[0]
            other = socket.create_connection(target)
            for pair in ((link, other), (other, link)):
                threading.Thread(target=copy_bytes, args=pair,
                                 daemon=True).start()


@contextlib.contextmanager
def forward(address, target):
    """Let the master at `target` answer at `address`, too."""
    with socket.create_server(address) as server:
        threading.Thread(target=serve_forwards, args=[server, target],
                         daemon=True).start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)


def refused_lock(c, *targets):
    """The error of a lock if masters 2 and 3 are replaced by `targets`."""
    with forward(c.client(2), targets[0]), forward(c.client(3), targets[1]):
        ended = run('lock', '--no-wait', '--url',
                    f'quorum://127.0.0.1:{c.client(1)[1]}', 'k', wanted=64)
    check('1 of 3 masters are usable' in ended.err, ended)
    return ended.err


# Otherwise it would be a majority alone.
@case
def a_master_that_answers_at_three_addresses_counts_once():
    with cluster() as c:
        quorum(c)
        c.kill(2, 3)
        said = refused_lock(c, c.client(1), c.client(1))
        check('another master answers at this address' in said, said)


@case
def masters_of_another_cluster_do_not_count():
    with cluster() as c, cluster() as other:
        quorum(c)
        quorum(other)
        c.kill(2, 3)
        said = refused_lock(c, other.client(2), other.client(3))
        check('belongs to another cluster' in said, said)


@case
def masters_that_are_quiet_do_not_count():
    with cluster() as c:
        url = quorum(c, '--lease-max', '1h').out.strip()
        c.kill(2, 3)
        waiting = Running('cluster', 'up', '--dir', c.dir, env=c.env)
        check('are quiet for ' in waiting.process.stderr.readline().decode())
        ended = run('lock', '--no-wait', '--url', url, 'k', wanted=80)
        check('decides nothing' in ended.err, ended)
        check('1 of 3 masters are usable' in ended.err, ended)


# The master that stands still has missed the release.
@case
def a_list_shows_what_a_majority_holds():
    with cluster() as c:
        url, pids = quorum(c, '--lease-max', '1h').out.strip(), c.pids()
        held = run('lock', '--ttl', LONG, '--url', url, 'k').out.split()
        run('renew', '--ttl', LONG, '--url', url, *held)
        os.kill(pids[3], signal.SIGSTOP)
        run('unlock', '--url', url, *held)
        os.kill(pids[3], signal.SIGCONT)
        equal([node['held'] for node in c.status()['nodes']], [0, 0, 1])
        equal(run('ls', '--url', url, '--json').out, '')


if __name__ == '__main__':
    main()
