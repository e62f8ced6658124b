"""Clusters for the tests of `cluster` and `status`, in folders of their own."""
import contextlib
import os
import signal
import socket
import tempfile
import threading

from cases import HOLDFAST, LIMIT, Skip, environment, read, run, until

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
        """[(peer address, client address)], as (host, port). Masters of a
        quorum have one address each, for clients."""
        lines = [line.split() for line in
                 read(self.path('cluster')).splitlines()]
        return [tuple(('127.0.0.1', int(word.rpartition(':')[2]))
                      for word in line[2:]) for line in lines
                if line[0] == 'node']

    def client(self, number):
        """The address of a node for clients."""
        return self.addresses()[number - 1][-1]

    def kill(self, *ids):
        pids = self.pids()
        for number in ids or pids:
            os.kill(pids[number], signal.SIGKILL)
            until(lambda n=number: not self.listens(n), 'the end of a node')

    def listens(self, number):
        with socket.socket() as link:
            return link.connect_ex(self.client(number)) == 0

    def request(self, node, *words, limit=LIMIT):
        """The reply of a node, as text, or '' if it closes the connection."""
        with socket.create_connection(self.client(node),
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


def status_of_server(text, address='127.0.0.1', host='127.0.0.1',
                     scheme='raft', options=(), wanted=0):
    """What `status` shows of a server that sends `text`."""
    def serve(server):
        link, _ = server.accept()
        with link:
            link.recv(100)
            link.sendall(b'$%d\r\n%s\r\n' % (len(text), text))
    with socket.create_server((address, 0)) as server:
        thread = threading.Thread(target=serve, args=[server])
        thread.start()
        shown = run('status',
                    f'{scheme}://{host}:{server.getsockname()[1]}',
                    *options, wanted=wanted).out
        thread.join()
        return shown
