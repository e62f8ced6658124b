"""A Redis server for one case."""
import contextlib
import signal
import socket
import subprocess
import tempfile

from cases import LIMIT, Skip, environment, free_port, run, tool, until


class Redis:
    """A server for one case; its port stays the same over restarts."""

    def __init__(self, folder, *options):
        self.port = free_port()
        self.url = f'redis://127.0.0.1:{self.port}'
        self.env = environment(HOLDFAST_URL=self.url)
        self.command = [tool('redis-server'), '--port', str(self.port),
                        '--bind', '127.0.0.1', '--dir', folder, '--save', '',
                        *options]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command,
                                        stdout=subprocess.DEVNULL)
        until(self.answers, 'the server')

    def answers(self):
        with contextlib.suppress(OSError):
            self.say('PING')
            return True
        return False

    def say(self, line):
        with socket.create_connection(('127.0.0.1', self.port), LIMIT) as s:
            s.sendall(line.encode() + b'\r\n')
            return s.recv(4096).decode()

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def redis(*options, started=True):
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        server = Redis(folder, *options)
        probe = run('ls', '--url', 'redis://127.0.0.1:1', wanted=None)
        if 'no strategy' in probe.err:
            raise Skip('this build has no redis:')
        try:
            if started:
                server.start()
            yield server
        finally:
            server.stop()
