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
                   check, equal, lasting, main, store, read, tool, until)

PROMPT = 'ready> '
TTL_MS = 1000


# A command that gets Ctrl-C or Ctrl-Z is a single process here. A shell may miss
# the signal while it starts a child, with or without holdfast.


class Terminal:
    """An interactive bash with job control, and its output."""

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
        os.close(self.fd)  # SIGHUP ends bash and its jobs
        end = time.monotonic() + 2 * SLOWNESS
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
        # A leak checker stops its process to inspect it. SIGHUP is followed by
        # SIGCONT, which undoes the stop, and the leak checker hangs.
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
                check(False, 'the shell has ended:', repr(self.shown))

    def see(self, pattern):
        """Wait until the output matches. Returns and removes the output up to
        the end of the match."""
        end = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.shown)):
            check(time.monotonic() < end,
                  f'{pattern!r} not shown, but {self.shown!r}')
            self.read()
        seen = self.shown[:found.end()]
        self.shown = self.shown[found.end():]
        return seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def enter(self, line):
        """Enter a line, and wait for the prompt. Returns the output."""
        self.type(line + '\n')
        return self.see(re.escape(PROMPT))

    def start(self, line, sign='go'):
        """Enter a line, and wait until the command prints the sign."""
        self.type(line + '\n')
        return self.see(sign)

    def status(self):
        return int(re.search(r'=(\d+)=', self.enter('echo =$?=')).group(1))


def processes():
    """(pid, the fields of /proc/PID/stat from the state on) of each process."""
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
    """The live processes of a session."""
    return [pid for pid, fields in processes()
            if int(fields[3]) == session and fields[0] not in 'ZX']


def states_of_job(terminal):
    """The states of holdfast and of its command, one letter each."""
    return ''.join(state + ''.join(s for _, s in children(pid))
                   for pid, state in children(terminal.pid))


def is_in_foreground(terminal):
    """Whether the command of holdfast runs and has the terminal."""
    jobs = [pid for pid, _ in children(terminal.pid)]
    return any(int(fields[1]) in jobs and fields[0] not in 'TZ' and
               fields[5] == fields[2] for _, fields in processes())


def has_lost_terminal(terminal):
    """Whether a process group other than the shell's has the terminal."""
    return any(pid == terminal.pid and fields[5] != fields[2]
               for pid, fields in processes())


def bring_back(terminal):
    """Enter fg, and wait until the command has the terminal."""
    terminal.type('fg\n')
    terminal.see('HF run')
    until(lambda: is_in_foreground(terminal), 'the command in the foreground')


@case
def the_command_gets_the_foreground_and_returns_it_to_the_shell():
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
def the_rest_of_a_pipeline_keeps_the_terminal():
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
def a_command_in_a_pipeline_gets_the_terminal_when_it_reads():
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
def a_script_gets_the_terminal_back():
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
def a_command_can_catch_ctrl_c():
    with Terminal(alone()) as terminal:
        terminal.start("$HF run k -- sh -c 'trap \"exit 9\" INT; echo go; "
                       "while :; do sleep 0.1; done'")
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 9)


@case
def ctrl_c_ends_the_surrounding_script_too():
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
def ctrl_z_stops_run_and_command_and_fg_continues_both():
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
def bg_continues_until_the_command_reads_the_terminal():
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
def a_background_job_does_not_take_the_terminal():
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
        # fg does not signal a job that is running, and a command that does
        # not read never claims the terminal. Wait until the job has executed
        # its program: before, the handler of the shell would catch Ctrl-C.
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
def fg_kills_a_job_stopped_beyond_its_lease(ttl_ms):
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
def a_hangup_ends_the_command():
    with Terminal(alone()) as terminal:
        shown = terminal.start("$HF run k -- sh -c 'echo pid $$ go; "
                               "exec sleep 600'")
        pid = int(re.search(r'pid (\d+)', shown).group(1))
    until(lambda: not alive(pid), 'the end of the command')


@case
def ctrl_z_has_no_effect_without_a_shell_to_continue_it():
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


# ---- Waiting ---------------------------------------------------------------

LINE = r'holdfast: waiting for (\S+), position (\d+), held by (\S+) for '


@case
def a_wait_shows_the_holder_on_one_line_and_removes_it():
    with store() as s, Terminal(s.env) as terminal:
        nonce, token = s.lock('k', '--ttl', LONG, '--note', 'nightly report')
        terminal.type('$HF run k -- echo mine\n')
        seen = terminal.see(LINE + r'[\d.]+s \(nightly report\)')
        equal(re.search(LINE, seen).group(1, 2), ('k', '1'))
        check('[' in re.search(LINE, seen).group(3), seen)
        again = terminal.see(LINE)
        check('\n' not in again and '\r' in again, repr(again))
        s.run('unlock', 'k', nonce, token)
        after = terminal.see('mine')
        check(after.endswith('\r\x1b[Kmine'), repr(after))


@case
@lasting(300, rounds=20)
def a_wait_shorter_than_a_second_shows_nothing(_):
    with store() as s, Terminal(s.env) as terminal:
        nonce, token = s.lock('k')
        begun = time.monotonic()
        terminal.type('$HF run k -- echo mine\n')
        time.sleep(0.3)
        s.run('unlock', 'k', nonce, token)
        seen = terminal.see('mine')
        if time.monotonic() - begun >= 1:
            raise TooSlow  # to wait for less
        check('holdfast' not in seen, seen)


@case
def the_status_line_is_cut_to_the_terminal_width():
    with store() as s, Terminal(s.env) as terminal:
        nonce, token = s.lock('k', '--ttl', LONG, '--note', 'n' * 200)
        fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ,
                    struct.pack('HHHH', 24, 40, 0, 0))
        terminal.type('$HF run k -- echo mine\n')
        seen = terminal.see(r'holdfast: [^\x1b]*\x1b\[K')
        shown = seen.rpartition('\r')[2].partition('\x1b')[0]
        equal(len(shown), 39)
        s.run('unlock', 'k', nonce, token)
        terminal.see('mine')


@case
def a_wait_in_the_background_or_without_a_terminal_shows_nothing():
    with store() as s, Terminal(s.env) as terminal:
        nonce, token = s.lock('k', '--ttl', LONG)
        terminal.enter('$HF run k -- echo mine &')
        terminal.enter('$HF run k -- echo mine 2>err &')
        time.sleep(1.6)
        s.run('unlock', 'k', nonce, token)
        check('waiting' not in terminal.see('mine[^$]*mine'))


@case
def ctrl_c_ends_a_wait_and_leaves_no_waiter():
    with store() as s, Terminal(s.env) as terminal:
        s.lock('k', '--ttl', LONG)
        terminal.type('$HF run k -- echo mine\n')
        terminal.see(LINE)
        terminal.type('\x03')
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 130)
        equal(s.show('k')['waiters'], 0)


@case
def ctrl_z_stops_a_wait_and_fg_continues_it():
    with store() as s, Terminal(s.env) as terminal:
        nonce, token = s.lock('k', '--ttl', LONG)
        terminal.type('$HF run k -- echo mine\n')
        terminal.see(LINE)
        terminal.type('\x1a')
        check('Stopped' in terminal.see(re.escape(PROMPT)))
        terminal.type('fg\n')
        terminal.see(LINE)
        s.run('unlock', 'k', nonce, token)
        terminal.see('mine')


@case
def torture_shows_its_progress_and_obeys_the_keyboard():
    line = r'holdfast: \d+s of 1h 0m, \d+ operations, \d+ grants'
    with store() as s, Terminal(s.env) as terminal:
        terminal.type('$HF torture --for 1h\n')
        terminal.see(line)
        again = terminal.see(line)
        check('\n' not in again and '\r' in again, repr(again))
        terminal.type('\x1a')
        check('Stopped' in terminal.see(re.escape(PROMPT)))
        terminal.type('fg\n')
        terminal.see(line)
        terminal.type('\x03')
        after = terminal.see('no violation')
        check(re.search(r'\r\x1b\[K\d+ operations', after), repr(after))
        terminal.see(re.escape(PROMPT))
        equal(terminal.status(), 130)


if __name__ == '__main__':
    main()
