#!/usr/bin/env python3
"""`holdfast cluster` and `holdfast status`, with real nodes."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from cases import (HOLDFAST, LIMIT, Skip, alive, case, check, environment,
                   equal, main, read, run, tool, until)
from clusters import cluster, status_of_server


@case
def up_prints_the_url_alone():
    with cluster() as c:
        ended = c.up()
        equal(ended.err, '')
        wanted = ','.join(f'127.0.0.1:{client[1]}'
                          for _, client in c.addresses())
        equal(ended.out, f'raft://{wanted}\n')
        equal(len(c.addresses()), 3)


# G2-12: the nodes know nothing but their addresses.
@case
def up_returns_when_the_cluster_has_a_leader():
    with cluster() as c:
        c.up()
        roles = sorted(node['role'] for node in c.status()['nodes'])
        equal(roles, ['follower', 'follower', 'leader'])


# GO-21
@case
def a_cluster_of_one_node_answers():
    with cluster() as c:
        c.up('--nodes', '1')
        (node,) = c.status()['nodes']
        equal(node['role'], 'leader')


@case
def up_again_keeps_ports_and_processes():
    with cluster() as c:
        url, pids = c.up().out, c.pids()
        equal(c.up('--nodes', '3').out, url)
        equal(c.pids(), pids)


@case
def up_starts_only_what_is_down():
    with cluster() as c:
        url, pids = c.up().out, c.pids()
        c.kill(2)
        equal(c.up().out, url)
        after = c.pids()
        equal((after[1], after[3]), (pids[1], pids[3]))
        check(after[2] != pids[2], after)


@case
def up_starts_a_node_that_was_killed_a_moment_ago():
    with cluster() as c:
        c.up()
        for _ in range(5):
            os.kill(c.pids()[3], signal.SIGKILL)
            c.up()
            equal(sorted(c.pids()), [1, 2, 3])


# GO-32
@case
def a_node_that_was_started_again_counts_for_the_majority():
    with cluster() as c:
        c.up()
        c.kill(2)
        c.up()
        c.kill(1)
        until(lambda: c.grants(3), 'a grant by nodes 2 and 3')


@case
def a_stopped_leader_hands_over():
    with cluster() as c:
        c.up()
        (leader,) = [node for node in c.status()['nodes']
                     if node['role'] == 'leader']
        others = {1, 2, 3} - {leader['id']}
        os.kill(leader['pid'], signal.SIGTERM)
        for number in others:
            until(lambda n=number: c.grants(n), 'another leader')
        until(lambda: ': stopped\n' in read(c.path(
            f'node-{leader["id"]}.log')), 'the end of the old one')


@case
def down_waits_for_the_end_of_all_nodes():
    with cluster() as c:
        url, pids = c.up().out, c.pids()
        equal(len(pids), 3)
        equal(c.down().out, '')
        check(not any(alive(pid) for pid in pids.values()), pids)
        equal(c.down().out, '', 'nothing is left to do')
        equal(c.up().out, url)


@case
def down_reports_how_many_nodes_it_has_stopped():
    with cluster() as c:
        c.up()
        c.kill(1)
        (ended,) = c.run('cluster', 'down', '--json').json()
        equal(ended, {'stopped': 2})
        (ended,) = c.run('cluster', 'down', '--json').json()
        equal(ended, {'stopped': 0})


@case
def down_names_only_the_nodes_that_do_not_stop():
    with cluster() as c:
        c.up()
        pids = c.pids()
        os.kill(pids[1], signal.SIGSTOP)
        ended = c.down(wanted=69)
        check(f'node 1, process {pids[1]}, did not stop' in ended.err, ended)
        equal(ended.err.count('did not stop'), 1, ended)
        check(not alive(pids[2]) and not alive(pids[3]), ended)
        os.kill(pids[1], signal.SIGCONT)
        c.down()
        check(not alive(pids[1]))


@case
def down_without_a_cluster_is_refused():
    with cluster() as c:
        check('no cluster here' in c.down(wanted=69).err)
        check(not os.path.exists(c.dir))


# The cluster serves without it, so the status is 0.
@case
def a_missing_member_is_not_created_again():
    with cluster() as c:
        url = c.up().out
        c.down()
        shutil.rmtree(c.path('node-2'))
        ended = c.up()
        equal(ended.out, url)
        check('node 2' in ended.err and 'forgotten its votes' in ended.err,
              ended)
        equal(ended.err.count('node 2'), 1, ended)
        check('2 of 3 nodes serve' in ended.err, ended)
        check(not os.path.exists(c.path('node-2')))
        equal(sorted(c.pids()), [1, 3], 'the others are started')


@case
def without_a_majority_no_url_is_printed():
    with cluster() as c:
        c.up()
        c.down()
        for number in (1, 3):
            shutil.rmtree(c.path(f'node-{number}'))
        ended = c.up(wanted=69)
        equal(ended.out, '')
        for text in ('node 1 was not started', 'node 3 was not started',
                     '1 of 3 nodes run, which is not a majority'):
            check(text in ended.err, text, ended)
        equal(sorted(c.pids()), [2], 'it is started')


@case
def an_incomplete_member_is_refused():
    with cluster() as c:
        url = c.up().out
        c.down()
        os.remove(c.path('node-3', 'identity'))
        ended = c.up()
        equal(ended.out, url)
        check('node 3 did not start' in ended.err, ended)
        os.remove(c.path('node-1', 'config'))
        c.down()
        ended = c.up(wanted=69)
        check('node 1 did not start' in ended.err, ended)
        check('Copy the file of another member' in ended.err, ended)


@case
def the_directory_of_another_member_is_refused():
    with cluster() as c:
        c.up()
        c.down()
        shutil.rmtree(c.path('node-2'))
        shutil.copytree(c.path('node-1'), c.path('node-2'))
        ended = c.up()
        check('node 2 was not started' in ended.err, ended)
        check('is that of another node' in ended.err, ended)
        equal(sorted(c.pids()), [1, 3])


@case
def a_damaged_member_is_named():
    with cluster() as c:
        url = c.up().out
        c.down()
        name = min(f for f in os.listdir(c.path('node-1'))
                   if f.startswith('log-'))
        with open(c.path('node-1', name), 'r+b') as file:
            file.truncate(1000)
        (warning,) = [line for line in c.up('--json').err.splitlines()
                      if 'node 1' in line]
        check('did not start' in warning and name in warning, warning)
        equal(c.up().out, url)


# Another process may answer at the address of a node that does not run.
@case
def a_stranger_at_a_port_is_not_taken_for_a_node():
    def serve():
        with contextlib.suppress(OSError):
            while True:
                link, _ = server.accept()
                with link:
                    asked.append(link.recv(1000))
                    link.sendall(b'*0\r\n')

    asked = []
    with cluster() as c:
        c.up('--nodes', '1')
        c.down()
        with socket.create_server(c.addresses()[0][1]) as server:
            thread = threading.Thread(target=serve)
            thread.start()
            ended = c.up(wanted=69)
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
        equal((ended.out, asked), ('', []))


@contextlib.contextmanager
def full_cluster():
    """A cluster whose lock table is full, and its URL."""
    def is_full():
        c.keys += 1
        return c.request(1, 'LOCK', f'large {c.keys}', '600000', 'VALUE',
                         'x' * 60000).startswith('-LIMIT')

    with cluster() as c:
        url = c.up().out
        c.down()
        for number in (1, 2, 3):
            with open(c.path(f'node-{number}', 'config'), 'a',
                      encoding='ascii') as file:
                file.write('table_mib 1\n')
        c.up()
        until(is_full, 'a full table')
        yield c, url


# A full table here; a full disk is answered with NOSPACE in the same way.
@case
def a_cluster_that_refuses_locks_answers():
    with full_cluster() as (c, url):
        ended = c.up()
        equal(ended.out, url)
        check('LIMIT the lock table is full' in ended.err, ended)


# Otherwise nothing but the end of leases would free the table.
@case
def a_full_table_can_be_listed_and_emptied():
    with full_cluster() as (_, url):
        url = url.strip()
        held = run('ls', '--json', '--url', url).json()
        check(len(held) >= 10, held)
        for lock in held:
            run('force', '--now', '--url', url, '--token', lock['token'],
                lock['key'])
        run('lock', '--url', url, 'another')


@case
def a_stale_pid_is_never_trusted():
    with cluster() as c:
        c.up()
        c.kill()
        bystander = subprocess.Popen(['sleep', '600'])
        try:
            for number in (1, 2, 3):
                with open(c.path(f'node-{number}', 'pid'), 'w',
                          encoding='ascii') as file:
                    file.write(f'{bystander.pid}\n')
            equal(c.run('cluster', 'down', '--json').json(), [{'stopped': 0}])
            equal(bystander.poll(), None)
            c.up()
            equal(len(c.pids()), 3)
            c.down()
            equal(bystander.poll(), None)
        finally:
            bystander.kill()
            bystander.wait()


@case
def a_port_in_use_is_named():
    with cluster() as c:
        url = c.up().out
        c.down()
        port = c.addresses()[1][1][1]
        with socket.create_server(('127.0.0.1', port)):
            ended = c.up()
            equal(ended.out, url)
            check('node 2 did not start' in ended.err, ended)
            check(f'127.0.0.1:{port}' in ended.err, ended)
        ended = c.up()
        equal((ended.out, ended.err), (url, ''))
        equal(sorted(c.pids()), [1, 2, 3])


@case
def another_number_of_nodes_is_refused():
    with cluster() as c:
        c.up('--nodes', '1')
        check('cannot be changed' in c.up('--nodes', '3', wanted=64).err)
        for number in ('0', '10', 'x'):
            c.up('--nodes', number, wanted=64)


@case
def a_directory_with_something_else_is_refused():
    with cluster() as c:
        os.makedirs(c.dir)
        with open(c.path('letter'), 'w', encoding='ascii'):
            pass
        ended = c.up(wanted=69)
        check("'letter'" in ended.err, ended)
        equal(sorted(os.listdir(c.dir)), ['letter', 'lock'])


@case
def an_interrupted_creation_is_started_again():
    for delay in range(0, 40, 4):
        with cluster() as c:
            process = subprocess.Popen(
                [HOLDFAST, 'cluster', 'up', '--dir', c.dir], env=c.env,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay / 1000)
            process.kill()
            process.wait()
            c.up()
            equal(len(c.pids()), 3)
            check(not os.path.exists(c.path('creating')))


@case
def nodes_that_have_run_are_never_discarded():
    with cluster() as c:
        c.up()
        c.down()
        os.rename(c.path('cluster'), c.path('elsewhere'))
        for marked in (False, True):
            if marked:
                with open(c.path('creating'), 'w', encoding='ascii'):
                    pass
            check("no file 'cluster'" in c.up(wanted=69).err)
            check(os.path.exists(c.path('node-1', 'identity')))
        os.rename(c.path('elsewhere'), c.path('cluster'))
        c.up()
        check(not os.path.exists(c.path('creating')))


@case
def two_ups_at_once_start_each_node_once():
    with cluster() as c:
        ups = [subprocess.Popen([HOLDFAST, 'cluster', 'up', '--dir', c.dir],
                                env=c.env, stdout=subprocess.PIPE)
               for _ in range(3)]
        urls = {process.communicate(timeout=2 * LIMIT)[0] for process in ups}
        equal([process.returncode for process in ups], [0, 0, 0])
        equal(len(urls), 1)
        equal(len(c.pids()), 3)


# G2-05
@case
def status_shows_each_node():
    with cluster() as c:
        c.up()
        shown = c.status()
        equal(list(shown), ['cluster', 'term', 'commit', 'nodes', 'mode'])
        equal(shown['mode'], 'raft')
        check(shown['term'] > 0 and shown['commit'] > 0, shown)
        for number, node in enumerate(shown['nodes'], 1):
            equal(list(node), ['id', 'address', 'role', 'lag', 'first', 'last',
                               'uncommitted_earlier_term', 'pid'])
            equal(node['id'], number)
            equal(node['first'], 1)
            check(node['last'] > 0, node)
            equal(node['uncommitted_earlier_term'], False)
            check(alive(node['pid']), node)
        lines = c.run('status').out.splitlines()
        check(lines[0].startswith(f'cluster {shown["cluster"]}  term '), lines)
        equal(lines[1].split(), ['ID', 'ADDRESS', 'ROLE', 'PID', 'LAG'])
        equal(len(lines), 5)


@case
def status_needs_no_quorum():
    with cluster() as c:
        c.up()
        c.kill(1, 3)
        shown = c.status()
        roles = [node['role'] for node in shown['nodes']]
        equal((roles[0], roles[2]), ('unreachable', 'unreachable'))
        check(roles[1] != 'unreachable', shown)
        equal([node['id'] for node in shown['nodes']], [1, 2, 3])


@case
def status_reports_a_stopped_process_as_unreachable():
    with cluster() as c:
        c.up()
        pid = c.pids()[2]
        os.kill(pid, signal.SIGSTOP)
        try:
            shown = c.status()['nodes'][1]
            equal((shown['role'], shown['pid']), ('unreachable', pid))
        finally:
            os.kill(pid, signal.SIGCONT)


@case
def status_shows_the_lag_of_a_stopped_follower():
    def leaders():
        return [n for n in c.status()['nodes'] if n['role'] == 'leader']

    def shows_lag():
        shown = c.status()['nodes']
        return ([n['lag'] for n in shown if n['role'] == 'leader'] == [0] and
                shown[stopped - 1]['lag'] >= 20 and
                'reason' in shown[stopped - 1])

    def prints_lag():
        words = c.run('status').out.splitlines()[1 + stopped].split()
        return words[2] == 'unreachable' and words[4] != '-' and \
            int(words[4]) >= 20 and len(words) > 5

    with cluster() as c:
        url = c.up().out.strip()
        until(leaders, 'a leader')
        stopped = min({1, 2, 3} - {leaders()[0]['id']})
        pid = c.pids()[stopped]
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(10):
                run('run', '--url', url, 'key', '--', 'true')
            until(shows_lag, 'the lag in JSON')
            until(prints_lag, 'the lag')
        finally:
            os.kill(pid, signal.SIGCONT)


@case
def status_of_a_cluster_that_is_down():
    with cluster() as c:
        c.up()
        c.down()
        shown = c.status(wanted=69)
        equal({node['role'] for node in shown['nodes']}, {'unreachable'})


@case
def status_finds_the_cluster_by_url():
    with cluster() as c:
        url = c.up().out.strip()
        (shown,) = run('status', '--json', url).json()
        equal([node['id'] for node in shown['nodes']], [1, 2, 3])
        (other,) = run('status', '--json',
                       env=environment(HOLDFAST_URL=url)).json()
        equal([node['pid'] for node in other['nodes']],
              [node['pid'] for node in shown['nodes']])
        first = url.partition(',')[0]
        (one,) = run('status', '--json', first).json()
        equal(len(one['nodes']), 3, 'a node names the others')


@case
def status_shows_a_node_once():
    with cluster() as c:
        hosts = c.up().out.strip().replace('127.0.0.1', 'localhost')
        for url in (hosts, hosts.partition(',')[0]):
            (shown,) = run('status', '--json', url).json()
            equal([node['id'] for node in shown['nodes']], [1, 2, 3])
            check(all('pid' in node and 'lag' in node
                      for node in shown['nodes']), shown)
            check(shown['nodes'][0]['address'].startswith('localhost:'), shown)


@case
def status_resolves_names():
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise Skip(f'the name {host} of this machine is unknown') from error
    shown = status_of_server(b'{"id":1,"role":"leader","nodes":[]}', address,
                             host)
    check(f'{host}:' in shown and ' leader ' in shown, shown)


# As a resolver does whose servers do not answer.
HANGING = b"""
#include <unistd.h>
int getaddrinfo(const char *a, const char *b, const void *c, void *d);
int getaddrinfo(const char *a, const char *b, const void *c, void *d)
{
    (void)a, (void)b, (void)c, (void)d;
    for (;;)
        pause();
}
"""


@case
def status_does_not_wait_for_a_name_for_ever():
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        library = os.path.join(folder, 'hanging.so')
        subprocess.run([tool('cc'), '-shared', '-fPIC', '-x', 'c', '-', '-o',
                        library], input=HANGING, check=True)
        options = os.environ.get('ASAN_OPTIONS', '')
        env = environment(LD_PRELOAD=library,
                          ASAN_OPTIONS=f'{options}:verify_asan_link_order=0')
        (shown,) = run('status', '--json', 'raft://somewhere:1', env=env,
                       wanted=69).json()
        equal(shown['nodes'][0]['reason'], 'the name was not resolved in time')


@case
def status_names_what_is_not_an_address():
    for address, reason in (('1.2.3.4', 'not an address'),
                            ('host:0', 'not an address'),
                            ('[]:1', 'the name '),
                            ('no.such.name.invalid:1', 'the name ')):
        (shown,) = run('status', '--json', f'raft://{address}',
                       wanted=69).json()
        check(shown['nodes'][0]['reason'].startswith(reason), shown)


@case
def status_shows_no_control_characters_of_a_server():
    shown = status_of_server(
        b'{"id":1,"role":"\x1b[31mleader","cluster":"\x9b1m","nodes":[]}')
    check('?[31mleader' in shown and '\x1b' not in shown, shown)


@case
def status_refuses_other_stores():
    check('raft://' in run('status', 'file:', wanted=64).err)
    check('raft://' in run('status', 'raft:127.0.0.1:1', wanted=64).err)
    check('empty' in run('status', 'raft://', wanted=64).err)
    run('status', 'raft://127.0.0.1:1', wanted=69)
    run('status', '--url', 'raft://127.0.0.1:1', 'raft://127.0.0.1:1',
        wanted=64)


@case
def cluster_has_no_url_option():
    check('--dir' in run('cluster', '--help').out)
    check('--url' not in run('cluster', '--help').out)
    check('--dir' in run('cluster', 'up', '--url', 'file:', wanted=64).err)


@case
def locks_survive_the_death_of_every_node():
    with cluster() as c:
        c.up()
        reply = c.request(1, 'LOCK', 'k', '600000')
        check(reply.startswith('*3'), reply)
        c.kill()
        c.up()
        reply = c.request(2, 'LOCK', 'k', '600000')
        check(reply.startswith('-BUSY'), reply)


if __name__ == '__main__':
    main(jobs=4)
