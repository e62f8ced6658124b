#!/usr/bin/env python3
"""`holdfast cluster` and `holdfast status`, with real nodes."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile

from cases import (HOLDFAST, LIMIT, Skip, alive, case, check, environment,
                   equal, main, read, run, until)

DAEMON = os.path.join(os.path.dirname(HOLDFAST), 'holdfastd')


class Cluster:
    """A cluster in a folder of its own; its nodes are killed at the end."""

    def __init__(self, folder):
        self.dir = os.path.join(folder, 'cluster')
        self.env = environment()
        self.keys = 0

    def run(self, *args, **options):
        return run(*args, '--dir', self.dir, env=self.env, **options)

    def up(self, *args, **options):
        return self.run('cluster', 'up', *args, **options)

    def down(self, **options):
        return self.run('cluster', 'down', **options)

    def status(self, **options):
        (shown,) = self.run('status', '--json', **options).json()
        return shown

    def pids(self):
        """{id: process} of the nodes that run."""
        return {node['id']: node['pid'] for node in self.status(
            wanted=None)['nodes'] if 'pid' in node}

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def addresses(self):
        """[(peer address, client address)], as (host, port)."""
        lines = [line.split() for line in
                 read(self.path('cluster')).splitlines()]
        return [tuple(('127.0.0.1', int(word.rpartition(':')[2]))
                      for word in line[2:]) for line in lines
                if line[0] == 'node']

    def kill(self, *ids):
        pids = self.pids()
        for number in ids or pids:
            os.kill(pids[number], signal.SIGKILL)
            until(lambda n=number: not self.listens(n), 'the end of a node')

    def listens(self, number):
        with socket.socket() as link:
            return link.connect_ex(self.addresses()[number - 1][1]) == 0

    def request(self, node, *words, limit=LIMIT):
        """The reply of a node, as text, or '' if it closes the connection."""
        with socket.create_connection(self.addresses()[node - 1][1],
                                      timeout=limit) as link:
            link.sendall(f'*{len(words)}\r\n'.encode() + b''.join(
                b'$%d\r\n%s\r\n' % (len(word), word.encode())
                for word in words))
            return link.recv(65536).decode()

    def grants(self, node):
        """Whether a node grants a key that was never locked before."""
        self.keys += 1
        return self.request(node, 'LOCK', f'key {self.keys}',
                            '600000').startswith('*3')

    def close(self):
        with contextlib.suppress(Exception):
            self.kill()


@contextlib.contextmanager
def cluster():
    if not os.path.exists(DAEMON):
        raise Skip('this build has no holdfastd')
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        new = Cluster(folder)
        try:
            yield new
        finally:
            new.close()


@case
def up_prints_the_url_alone():
    with cluster() as c:
        ended = c.up()
        equal(ended.err, '')
        wanted = ','.join(f'127.0.0.1:{client[1]}'
                          for _, client in c.addresses())
        equal(ended.out, f'raft://{wanted}\n')
        equal(len(c.addresses()), 3)


@case
def up_returns_when_the_cluster_has_a_leader():
    with cluster() as c:
        c.up()
        roles = sorted(node['role'] for node in c.status()['nodes'])
        equal(roles, ['follower', 'follower', 'leader'])


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
def down_without_a_cluster_is_refused():
    with cluster() as c:
        check('no cluster here' in c.down(wanted=69).err)
        check(not os.path.exists(c.dir))


@case
def a_missing_member_is_not_created_again():
    with cluster() as c:
        c.up()
        c.down()
        shutil.rmtree(c.path('node-2'))
        ended = c.up(wanted=69)
        equal(ended.out, '')
        check('node 2' in ended.err and 'forgotten its votes' in ended.err,
              ended)
        check(not os.path.exists(c.path('node-2')))
        equal(sorted(c.pids()), [1, 3], 'the others are started')


@case
def an_incomplete_member_is_refused():
    with cluster() as c:
        c.up()
        c.down()
        os.remove(c.path('node-3', 'identity'))
        ended = c.up(wanted=69)
        check('node 3 did not start' in ended.err, ended)


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
        c.up()
        c.down()
        port = c.addresses()[1][1][1]
        with socket.create_server(('127.0.0.1', port)):
            ended = c.up(wanted=69)
            check('node 2 did not start' in ended.err, ended)
            check(f'127.0.0.1:{port}' in ended.err, ended)
        c.up()


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
def two_ups_at_once_start_each_node_once():
    with cluster() as c:
        ups = [subprocess.Popen([HOLDFAST, 'cluster', 'up', '--dir', c.dir],
                                env=c.env, stdout=subprocess.PIPE)
               for _ in range(3)]
        urls = {process.communicate(timeout=2 * LIMIT)[0] for process in ups}
        equal([process.returncode for process in ups], [0, 0, 0])
        equal(len(urls), 1)
        equal(len(c.pids()), 3)


@case
def status_shows_each_node():
    with cluster() as c:
        c.up()
        shown = c.status()
        equal(list(shown), ['cluster', 'term', 'commit', 'nodes'])
        check(shown['term'] > 0 and shown['commit'] > 0, shown)
        for number, node in enumerate(shown['nodes'], 1):
            equal(list(node), ['id', 'address', 'role', 'lag', 'pid'])
            equal(node['id'], number)
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
def status_refuses_other_stores():
    check('raft://' in run('status', 'file:', wanted=64).err)
    check('empty' in run('status', 'raft://', wanted=64).err)
    run('status', 'raft://127.0.0.1:1', wanted=69)
    run('status', '--url', 'raft://127.0.0.1:1', 'raft://127.0.0.1:1',
        wanted=64)


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
    main()
