"""The test runner for the command: runs cases, prints TAP, starts the command.

A file of cases ends with cases.main(), and is called with the path of the built
command. HF_TEST_SLOWNESS multiplies every time limit, as in the other tests;
HF_TEST_TIMEOUT, in seconds, can shorten it.
The limits only catch a case that hangs: no case asserts an upper bound on time.
"""
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

HOLDFAST = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else 'holdfast'
SLOWNESS = int(os.environ.get('HF_TEST_SLOWNESS', '1'))
LIMIT = min(60, int(os.environ.get('HF_TEST_TIMEOUT', '60'))) * SLOWNESS

LONG = '600s'  # a ttl that outlasts every case

_cases = []


class Skip(Exception):
    pass


class TooSlow(Exception):
    """The machine was too busy, and a lease ended before it should."""


def lasting(ttl_ms, rounds=4):
    """Call a case with a ttl, and again with a longer one if it raises TooSlow:
    on a busy machine, a short lease may end before it should."""
    def decorate(function):
        @functools.wraps(function)
        def retry():
            for round_ in range(rounds):
                try:
                    return function(ttl_ms * 3 ** round_)
                except TooSlow:
                    _kill_running()
            raise AssertionError('too slow, even with the longest ttl')
        return retry
    return decorate


def case(function):
    """Register a test case."""
    _cases.append(function)
    return function


def check(condition, *what):
    if not condition:
        raise AssertionError(' '.join(str(w) for w in what))


def equal(got, wanted, *what):
    check(got == wanted, *what, f'got {got!r}, wanted {wanted!r}')


def until(condition, what, limit=LIMIT):
    """Poll until condition() is true."""
    end = time.monotonic() + limit
    while not condition():
        check(time.monotonic() < end, 'timed out waiting for', what)
        time.sleep(0.01)


_reservations = []  # sockets, open until this process ends


def reserve_port(port):
    """As reserve_port() in tests/lib/loopback.c, with the same name."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f'\0holdfast-test-port-{port}')
        # Without SO_REUSEADDR, which create_server() sets.
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', port))
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True


def free_port():
    """A port that no other test gets while this process runs. The kernel does
    not give these ports to outgoing connections."""
    for port in random.sample(range(15000, 20000), 5000):
        if reserve_port(port):
            return port
    raise Skip('no port is free')


def environment(**more):
    """The environment of the tests, without the user's HOLDFAST_ variables."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith('HOLDFAST_')}
    kept.update(more)
    return {n: v for n, v in kept.items() if v is not None}


class Ended:
    """The exit status and the output of a command."""

    def __init__(self, args, status, out, err):
        self.args, self.status = args, status
        self.out, self.err = out, err

    def json(self):
        """The objects on stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def __repr__(self):
        return (f'{self.args} ended with {self.status}\n'
                f'stdout: {self.out!r}\nstderr: {self.err!r}')


def run(*args, wanted=0, stdin=subprocess.DEVNULL, env=None, **options):
    """Run the command to its end, and check that its status is `wanted`."""
    done = subprocess.run([HOLDFAST, *args], stdin=stdin, env=env or
                          environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=2 * LIMIT,
                          check=False, **options)
    ended = Ended(args, done.returncode,
                  done.stdout.decode('utf-8', 'surrogateescape'),
                  done.stderr.decode('utf-8', 'surrogateescape'))
    if wanted is not None:
        equal(ended.status, wanted, ended, '\n')
    return ended


class Running:
    """A command in the background, which is killed at the end of the case."""

    def __init__(self, *args, env=None, program=(HOLDFAST,), **options):
        options.setdefault('stdin', subprocess.DEVNULL)
        options.setdefault('stdout', subprocess.PIPE)
        options.setdefault('stderr', subprocess.PIPE)
        self.args = args
        self.process = subprocess.Popen([*program, *args],
                                        env=env or environment(), **options)
        self.pid = self.process.pid
        _running.append(self.process)

    def signal(self, number):
        os.kill(self.pid, number)

    def line(self):
        """Read the next line of stdout."""
        return self.process.stdout.readline().decode().rstrip('\n')

    def end(self, wanted=0):
        """Close stdin, wait for the end, and check the status."""
        out, err = self.process.communicate(timeout=2 * LIMIT)
        ended = Ended(self.args, self.process.returncode,
                      (out or b'').decode(), (err or b'').decode())
        if wanted is not None:
            equal(ended.status, wanted, ended, '\n')
        return ended


_running = []


def _kill_running():
    while _running:
        process = _running.pop()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


class Store:
    """A directory for one case, and a file: store in it."""

    def __init__(self, path):
        self.path = path
        self.url = 'file:' + os.path.join(path, 'locks')
        self.env = environment(HOLDFAST_URL=self.url)

    def file(self, name):
        return os.path.join(self.path, name)

    def run(self, *args, **options):
        return run(*args, env=self.env, **options)

    def start(self, *args, **options):
        return Running(*args, env=self.env, **options)

    def lock(self, key, *options):
        """Take a lock and leave it held. Returns its nonce and token. The lease
        outlasts the case, unless the options have a --ttl."""
        if '--ttl' not in options:
            options = ('--ttl', LONG, *options)
        (held,) = self.run('lock', '--json', *options, '--', key).json()
        return held['nonce'], held['token']

    def show(self, key):
        (info,) = self.run('show', '--json', '--', key).json()
        return info

    def has_waiters(self, key, count=1):
        """A condition for until()."""
        return lambda: self.show(key)['waiters'] == count


@contextlib.contextmanager
def store():
    """A new Store. Skips the case if this build has no file: strategy."""
    with tempfile.TemporaryDirectory(prefix='holdfast-') as path:
        new = Store(path)
        probe = new.run('ls', wanted=None)
        if probe.status == 64 and 'no strategy' in probe.err:
            raise Skip('this build has no file:')
        equal(probe.status, 0, probe, '\n')
        yield new


_stores = tempfile.TemporaryDirectory(prefix='holdfast-')


def alone(**more):
    """An environment that names a new store, which nobody else uses."""
    path = tempfile.mkdtemp(dir=_stores.name)
    return environment(HOLDFAST_URL=f'file:{path}/locks', **more)


def alive(pid):
    """Whether a process runs; a zombie does not."""
    fields = read(f'/proc/{pid}/stat').rpartition(')')[2].split()
    return bool(fields) and fields[0] != 'Z'


def read(path):
    """The contents of a file; empty if it does not exist yet."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ''


def tool(name):
    """The path of a program. Skips the case if it is not installed."""
    found = shutil.which(name)
    if not found:
        raise Skip(f'{name} is not installed')
    return found


def _on_alarm(number, frame):
    raise AssertionError('the case timed out')


def _reset_signals():
    """The command would inherit an ignored signal, for example under nohup."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT,
                   signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _run_case(function):
    """Run a case. Returns what comes before and after its number in TAP."""
    verdict, lines, why = 'ok', [], ''
    signal.alarm(4 * LIMIT)
    try:
        function()
    except Skip as skip:
        why = f' # SKIP {skip}'
    except Exception:
        verdict = 'not ok'
        lines = traceback.format_exc().splitlines()
    finally:
        signal.alarm(0)
        _kill_running()
    return verdict, '\n# '.join([f'{function.__name__}{why}', *lines])


class _Fork:
    """A case that runs in a process of its own."""

    def __init__(self, function):
        self.function = function
        self.file = tempfile.TemporaryFile('w+', encoding='utf-8',
                                           errors='replace')
        self.result = None
        self.pid = os.fork()
        if self.pid == 0:
            random.seed()
            json.dump(_run_case(function), self.file)
            self.file.flush()
            os._exit(0)

    def set_ended(self, status):
        self.result = ('not ok', f'{self.function.__name__}\n'
                       f'# its process ended with {status}')
        self.file.seek(0)
        if status == 0:
            self.result = json.load(self.file)
        self.file.close()


def _run_forked(functions, jobs):
    """Yield the results of the cases in their order; `jobs` cases run at a
    time."""
    waiting, started, running = list(functions), [], {}
    while waiting or started:
        while waiting and len(running) < jobs:
            fork = _Fork(waiting.pop(0))
            started.append(fork)
            running[fork.pid] = fork
        while started and started[0].result:
            yield started.pop(0).result
        if running:
            pid, status = os.wait()
            running.pop(pid).set_ended(status)


def main(jobs=1):
    """Run every case of the file, or those whose names match an argument. If
    `jobs` is more than one, each case runs in a process of its own, and that
    many run at a time: for cases that mostly wait."""
    patterns = sys.argv[2:]
    chosen = [c for c in _cases if not patterns or
              any(re.search(p, c.__name__) for p in patterns)]
    failed = False
    signal.signal(signal.SIGALRM, _on_alarm)
    _reset_signals()
    print(f'1..{len(chosen)}', flush=True)
    results = _run_forked(chosen, jobs) if jobs > 1 else map(_run_case, chosen)
    for number, (verdict, text) in enumerate(results, 1):
        failed = failed or verdict != 'ok'
        print(f'{verdict} {number} - {text}', flush=True)
    sys.exit(1 if failed else 0)
