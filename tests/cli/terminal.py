#!/usr/bin/env python3
"""`holdfast run` at a terminal: an interactive bash in a pty, and its jobs."""
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

from cases import (HOLDFAST, LIMIT, LONG, SLOWNESS, TooSlow, alive, alone, case,
                   check, equal, lasting, main, place, read, tool, until)

PROMPT = 'ready> '
TTL_MS = 1000


# Commands that are typed at are one process: a shell that is hit by a key just
# as it starts a child may miss it, holdfast or not.


class Terminal:
    """A bash with job control, and what it has shown."""

    def __init__(self, env):
        bash = tool('bash')
        env = dict(env, PS1=PROMPT, HF=HOLDFAST, PY=sys.executable,
                   TERM='vt100', HISTFILE='/dev/null')
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(bash, [bash, '--norc', '--noprofile', '--noediting',
                             '-i'], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ,
                    struct.pack('HHHH', 24, 100, 0, 0))
        self.shown = ''
        self.see(re.escape(PROMPT))
        self.enter('stty -echo')

    def __enter__(self):
        return self

    def __exit__(self, *why):
        os.close(self.fd)  # hangs up: bash and its jobs end
        end = time.monotonic() + 2 * SLOWNESS
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
        # A hang-up takes back the stop by which a leak checker looks at its
        # process, which then waits for it for ever.
        while left := members(self.pid):
            if time.monotonic() > end:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def read(self):
        if select.select([self.fd], [], [], 0.05)[0]:
            try:
                self.shown += os.read(self.fd, 65536).decode()
            except OSError:
                check(False, 'the shell is gone:', repr(self.shown))

    def see(self, pattern):
        """Wait until that is shown; forget what came before it. Returns all
        that was shown until then."""
        end = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.shown)):
            check(time.monotonic() < end,
                  f'{pattern!r} never came, but {self.shown!r}')
            self.read()
        seen = self.shown[:found.end()]
        self.shown = self.shown[found.end():]
        return seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def enter(self, line):
        """Enter a line, and wait for the prompt: what was shown."""
        self.type(line + '\n')
        return self.see(re.escape(PROMPT))

    def start(self, line, sign='go'):
        """Enter a line, and wait until it shows the sign."""
        self.type(line + '\n')
        return self.see(sign)

    def status(self):
        return int(re.search(r'=(\d+)=', self.enter('echo =$?=')).group(1))


def processes():
    """(pid, what /proc/PID/stat says from the state on) of each."""
    for name in filter(str.isdigit, os.listdir('/proc')):
        fields = read(f'/proc/{name}/stat').rpartition(')')[2].split()
        if fields:
            yield int(name), fields


def children(parent):
    """(pid, state) of each child of a process."""
    for pid, fields in processes():
        if int(fields[1]) == parent:
            yield pid, fields[0]


def members(session):
    """Who of a session lives."""
    return [pid for pid, fields in processes()
            if int(fields[3]) == session and fields[0] not in 'ZX']


def states_of_job(terminal):
    """The states of holdfast and of its command, one letter each."""
    return ''.join(state + ''.join(s for _, s in children(pid))
                   for pid, state in children(terminal.pid))


def is_in_foreground(terminal):
    """Whether holdfast's command runs and has the terminal."""
    jobs = [pid for pid, _ in children(terminal.pid)]
    return any(int(fields[1]) in jobs and fields[0] not in 'TZ' and
               fields[5] == fields[2] for _, fields in processes())


def has_lost_terminal(terminal):
    """Whether another group than the shell's own has the terminal."""
    return any(pid == terminal.pid and fields[5] != fields[2]
               for pid, fields in processes())


def bring_back(terminal):
    """fg, and until the command has the terminal."""
    terminal.type('fg\n')
    terminal.see('HF run')
    until(lambda: is_in_foreground(terminal), 'the command in the foreground')


@case
def the_command_is_in_the_foreground_and_the_shell_again_after_it():
    with Terminal(alone()) as terminal:
        shown = terminal.enter(
            '$HF run k -- $PY -c "import os; '
            'print(os.tcgetpgrp(0) == os.getpgrp() == os.getpid())"')
        check('True' in shown, shown)
        descriptors = '$PY -c "import os; print(os.listdir(\'/proc/self/fd\'))"'
        equal(terminal.enter('$HF run -o k -- ' + descriptors),
              terminal.enter(descriptors))
        terminal.type('$HF run k -- head -n1\n')
        terminal.type('typed\n')
        check('typed' in terminal.see(re.escape(PROMPT)))
        equal(terminal.status(), 0)


# Reads from the terminal while its input is a pipe, as less(1) does.
PAGER = ('$PY -c "import sys; text = sys.stdin.readline(); print(\'go\', '
         'flush=True); print(\'got\', text, open(\'/dev/tty\').readline())"')


@case
def the_rest_of_a_pipeline_has_the_terminal():
    for line in (f"$HF run k -- sh -c 'echo first; sleep 0.5' | {PAGER}",
                 f"sleep 0.5 | $HF run k -- sh -c 'echo first; cat' | {PAGER}",
                 "{ sleep 0.1; $HF run k -- sh -c 'sleep 1.5' </dev/null "
                 f">/dev/null; }} | (echo x | {PAGER})"):
        with Terminal(alone()) as terminal:
            terminal.start(line)
            terminal.type('typed\n')
            shown = terminal.see(re.escape(PROMPT))
            check('got' in shown and 'typed' in shown, shown)
            equal(terminal.status(), 0)


@case
def a_command_in_a_pipeline_is_given_the_terminal_when_it_reads_from_it():
    with Terminal(alone()) as terminal:
        terminal.start('$HF run k -- $PY -c "print(\'go\', flush=True); '
                       'print(\'got\', open(\'/dev/tty\').readline())" | cat')
        terminal.type('typed\n')
        check('got typed' in terminal.see(re.escape(PROMPT)))
        equal(terminal.status(), 0)


@case
def ctrl_c_and_ctrl_z_reach_a_command_in_a_pipeline():
    with Terminal(alone()) as terminal:
        terminal.enter('set -o pipefail')
        terminal.start("$HF run --ttl 600s k -- $PY -c \"import time; "
                       "print('go', flush=True); time.sleep(600)\" | cat")
        terminal.type('\x1a')
        check('Stopped' in terminal.see(re.escape(PROMPT)))
        check('T' in states_of_job(terminal), 'not stopped')
        terminal.type('fg\n')
        terminal.see('HF run')
        until(lambda: 'T' not in states_of_job(terminal), 'the end of the stop')
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 130)


@case
def a_script_has_the_terminal_back_after_it():
    with Terminal(alone()) as terminal:
        terminal.start("bash -c '$HF run k -- true; echo go; head -n1'")
        terminal.type('typed\n')
        check('typed' in terminal.see(re.escape(PROMPT)))
        equal(terminal.status(), 0)


@case
def ctrl_c_ends_the_command_and_the_status_is_130():
    with Terminal(alone()) as terminal:
        terminal.start("$HF run k -- sh -c 'echo go; exec sleep 600'")
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 130)


@case
def a_command_may_catch_ctrl_c():
    with Terminal(alone()) as terminal:
        terminal.start("$HF run k -- sh -c 'trap \"exit 9\" INT; echo go; "
                       "while :; do sleep 0.1; done'")
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 9)


@case
def ctrl_c_ends_the_script_around_it_too():
    with Terminal(alone()) as terminal:
        terminal.start("bash -c '$HF run k -- sh -c \"echo go; exec sleep 600\"; "
                       "echo wrong'")
        terminal.type('\x03')
        shown = terminal.see(re.escape(PROMPT))
        check('wrong' not in shown, shown)
        equal(terminal.status(), 130)


@case
def ctrl_backslash_ends_the_command():
    with Terminal(alone()) as terminal:
        terminal.enter('ulimit -c 0')
        terminal.start("$HF run k -- sh -c 'echo go; exec sleep 600'")
        terminal.type('\x1c')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 131)


@case
def ctrl_z_stops_both_and_fg_goes_on():
    with Terminal(alone()) as terminal:
        terminal.start('$HF run --ttl 600s k -- $PY -c "print(\'go\', '
                       'flush=True); print(\'got\', input())"')
        for _ in range(3):
            terminal.type('\x1a')
            shown = terminal.see(re.escape(PROMPT))
            check('Stopped' in shown, shown)
            equal(terminal.status(), 148)
            equal(states_of_job(terminal), 'TT')
            bring_back(terminal)
        terminal.type('line\n')
        check('got line' in terminal.see(re.escape(PROMPT)))
        equal(terminal.status(), 0)


@case
def bg_goes_on_until_it_wants_the_terminal():
    with Terminal(alone()) as terminal:
        terminal.start('$HF run --ttl 600s k -- $PY -c "import time; print(\'go\','
                       ' flush=True); time.sleep(0.5); print(\'got\', input())"')
        terminal.type('\x1a')
        terminal.see(re.escape(PROMPT))
        terminal.enter('bg')
        until(lambda: states_of_job(terminal) == 'TT', 'a stop')
        bring_back(terminal)
        terminal.type('line\n')
        check('got line' in terminal.see(re.escape(PROMPT)))
        equal(terminal.status(), 0)


@case
def a_job_in_the_background_leaves_the_terminal_alone():
    with Terminal(alone()) as terminal:
        terminal.enter("$HF run k -- sh -c 'sleep 0.3; exit 3' &")
        check('still' in terminal.enter('echo still here'))
        terminal.enter('wait %1')
        equal(terminal.status(), 3)


@case
def fg_of_a_running_job_reaches_the_command():
    with Terminal(alone()) as terminal:
        terminal.enter('$HF run k -- $PY -c "import time; time.sleep(0.5); '
                       'print(\'got\', input())" &')
        terminal.type('fg\n')
        terminal.see('HF run')
        terminal.type('line\n')
        check('got line' in terminal.see(re.escape(PROMPT)))
        # The shell tells nobody that a job which runs already is in the
        # foreground, and a command that reads nothing does not ask for it.
        # Until the job has executed its program, the shell's own handler would
        # have the Ctrl-C.
        terminal.type("$HF run k -- sh -c 'echo star\"\"ted; exec sleep 600' &\n")
        terminal.see('started')
        terminal.type('fg\n')
        terminal.see('HF run')
        until(lambda: has_lost_terminal(terminal), 'the job in the foreground')
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        check(terminal.status() in (130, 143), 'Ctrl-C had no effect')


@case
@lasting(TTL_MS)
def a_job_that_is_stopped_for_longer_than_the_lease_is_killed_by_fg(ttl_ms):
    with Terminal(alone()) as terminal:
        terminal.start(f'$HF run --ttl {ttl_ms}ms k -- $PY -c "import time; '
                       'print(\'go\', flush=True); time.sleep(600); '
                       'print(\'wr\' + \'ong\', flush=True)"')
        terminal.type('\x1a')
        if 'lost' in terminal.see(re.escape(PROMPT)):
            raise TooSlow
        time.sleep(ttl_ms / 1000 * 1.3)
        terminal.type('fg\n')
        shown = terminal.see(re.escape(PROMPT))
        check('lost' in shown and 'wrong' not in shown, shown)
        equal(terminal.status(), 79)


@case
def a_hang_up_ends_the_command():
    with Terminal(alone()) as terminal:
        shown = terminal.start("$HF run k -- sh -c 'echo pid $$ go; "
                               "exec sleep 600'")
        pid = int(re.search(r'pid (\d+)', shown).group(1))
    until(lambda: not alive(pid), 'the end of the command')


@case
def ctrl_z_changes_nothing_where_no_shell_could_wake_it():
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(HOLDFAST, [HOLDFAST, 'run', 'k', '--', sys.executable, '-c',
                             'print("go", flush=True); print("got", input())'],
                  alone())
    shown = b''
    while b'go' not in shown:
        shown += os.read(fd, 1024)
    os.write(fd, b'\x1a')
    time.sleep(0.3)
    os.write(fd, b'line\n')
    while b'got line' not in shown:
        shown += os.read(fd, 1024)
    equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
    os.close(fd)


# ---- Waiting: these need locks that processes share ------------------------

LINE = r'holdfast: waiting for (\S+), position (\d+), held by (\S+) for '


@case
def a_wait_says_who_holds_it_on_one_line_and_removes_it():
    with place() as p, Terminal(p.env) as terminal:
        nonce, token = p.lock('k', '--ttl', LONG, '--note', 'nightly report')
        terminal.type('$HF run k -- echo mine\n')
        seen = terminal.see(LINE + r'[\d.]+s \(nightly report\)')
        equal(re.search(LINE, seen).group(1, 2), ('k', '1'))
        check('[' in re.search(LINE, seen).group(3), seen)
        again = terminal.see(LINE)
        check('\n' not in again and '\r' in again, repr(again))
        p.run('unlock', 'k', nonce, token)
        after = terminal.see('mine')
        check(after.endswith('\r\x1b[Kmine'), repr(after))


@case
@lasting(300, rounds=20)
def a_wait_shorter_than_a_second_says_nothing(_):
    with place() as p, Terminal(p.env) as terminal:
        nonce, token = p.lock('k')
        begun = time.monotonic()
        terminal.type('$HF run k -- echo mine\n')
        time.sleep(0.3)
        p.run('unlock', 'k', nonce, token)
        seen = terminal.see('mine')
        if time.monotonic() - begun >= 1:
            raise TooSlow  # to wait for less
        check('holdfast' not in seen, seen)


@case
def a_narrow_terminal_cuts_the_line():
    with place() as p, Terminal(p.env) as terminal:
        nonce, token = p.lock('k', '--ttl', LONG, '--note', 'n' * 200)
        fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ,
                    struct.pack('HHHH', 24, 40, 0, 0))
        terminal.type('$HF run k -- echo mine\n')
        seen = terminal.see(r'holdfast: [^\x1b]*\x1b\[K')
        shown = seen.rpartition('\r')[2].partition('\x1b')[0]
        equal(len(shown), 39)
        p.run('unlock', 'k', nonce, token)
        terminal.see('mine')


@case
def a_wait_in_the_background_or_in_a_pipe_says_nothing():
    with place() as p, Terminal(p.env) as terminal:
        nonce, token = p.lock('k', '--ttl', LONG)
        terminal.enter('$HF run k -- echo mine &')
        terminal.enter('$HF run k -- echo mine 2>err &')
        time.sleep(1.6)
        p.run('unlock', 'k', nonce, token)
        check('waiting' not in terminal.see('mine[^$]*mine'))


@case
def ctrl_c_ends_a_wait_and_leaves_no_one_in_line():
    with place() as p, Terminal(p.env) as terminal:
        p.lock('k', '--ttl', LONG)
        terminal.type('$HF run k -- echo mine\n')
        terminal.see(LINE)
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 130)
        equal(p.show('k')['waiters'], 0)


@case
def ctrl_z_stops_a_wait_and_fg_goes_on():
    with place() as p, Terminal(p.env) as terminal:
        nonce, token = p.lock('k', '--ttl', LONG)
        terminal.type('$HF run k -- echo mine\n')
        terminal.see(LINE)
        terminal.type('\x1a')
        check('Stopped' in terminal.see(re.escape(PROMPT)))
        terminal.type('fg\n')
        terminal.see(LINE)
        p.run('unlock', 'k', nonce, token)
        terminal.see('mine')


if __name__ == '__main__':
    main()
