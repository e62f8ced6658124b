#!/usr/bin/env python3
"""`holdfast run` and the processes that the command leaves running."""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from cases import (HOLDFAST, LONG, Running, Skip, TooSlow, alive, case, check,
                   equal, lasting, main, store, read, tool, until)

NOBODY = 65534

# A process that writes its pid, then waits for a file or the end of the case.
DAEMON = ('exec >/dev/null 2>&1; echo $$ >{0}/pid; '
          'while [ -d {0} ] && ! [ -e {0}/end ]; do sleep 0.02; done')


def daemon(s, *options, how='setsid sh -c "$1" &', **more):
    """Run a command that ends at once and leaves a daemon running."""
    running = s.start('run', '--ttl', LONG, *options, 'k', '--', 'sh', '-c',
                      how, 'sh', DAEMON.format(s.path), **more)
    until(lambda: read(s.file('pid')), 'the daemon')
    return running, int(read(s.file('pid')))


def error_line(running):
    """Read the next line of stderr."""
    return running.process.stderr.readline().decode()


def touch(path):
    with open(path, 'w', encoding='ascii'):
        pass


@case
def run_keeps_the_lock_until_every_descendant_has_ended():
    for how in ('setsid sh -c "$1" &', 'sh -c "$1" & exit 7',
                '(setsid sh -c "$1" &)'):
        with store() as s:
            running, pid = daemon(s, how=how)
            line = error_line(running)
            check('running' in line and '-o' in line, line)
            check(s.show('k')['held'] and alive(pid), 'the lock was released')
            touch(s.file('end'))
            running.end(7 if 'exit' in how else 0)
            check(not s.show('k')['held'] and not alive(pid))


@case
def close_releases_the_lock_when_the_command_ends():
    with store() as s:
        running, pid = daemon(s, '--close', how='setsid sh -c "$1" >&- 2>&- &')
        running.end(0)
        check(not s.show('k')['held'] and alive(pid))
        os.kill(pid, signal.SIGKILL)


@case
def run_waits_for_a_command_in_a_new_session():
    with store() as s:
        ended = s.run('run', 'k', '--', 'setsid', 'sh', '-c',
                      f'sleep 0.3; "{HOLDFAST}" show --json k')
        check('"held":true' in ended.out, ended)


@case
def after_a_killed_run_the_lock_is_free_when_its_last_process_ends():
    with store() as s:
        running, pid = daemon(s, how='setsid sh -c "$1" & wait')
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        check(alive(pid))
        s.run('run', '--no-wait', 'k', '--', 'true', wanted=75)
        touch(s.file('end'))
        s.run('run', '--wait', LONG, 'k', '--', 'true')


@case
def a_killed_run_keeps_the_lock_with_a_low_descriptor_limit():
    with store() as s:
        running, pid = daemon(
            s, how='setsid sh -c "$1" & wait',
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                  (64, 64)))
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        check(alive(pid))
        s.run('run', '--no-wait', 'k', '--', 'true', wanted=75)
        touch(s.file('end'))


# ---- Processes from before `exec holdfast run` -----------------------------

def replaced_shell(s, before, *command):
    """Start a shell that runs `before` in the background and then replaces
    itself by `holdfast run`. In `before`, $1 is the script of a daemon."""
    script = '(exec >/dev/null 2>&1; {}) & shift; exec "$@"'.format(before)
    return Running('run', '--ttl', LONG, 'k', '--', *command, env=s.env,
                   program=[tool('sh'), '-c', script, s.path,
                            DAEMON.format(s.path), HOLDFAST])


@case
def run_does_not_wait_for_an_orphan_of_an_earlier_child():
    """The orphan becomes a child of `run` while the command runs."""
    with store() as s:
        running = replaced_shell(
            s, 'until [ -e $0/go ]; do sleep 0.02; done; sh -c "$1" &', 'sh',
            '-c', 'touch $0/go; until [ -s $0/pid ]; do sleep 0.02; done; '
            'sleep 0.2', s.path)
        equal(error_line(running), '')  # no report of a process
        running.end(0)
        check(alive(int(read(s.file('pid')))), 'it was ended')


@case
def run_waits_for_a_descendant_despite_an_earlier_child():
    with store() as s:
        running = replaced_shell(
            s, 'while [ -d $0 ]; do sleep 0.02; done', 'sh', '-c',
            'setsid sh -c "$0" &', DAEMON.format(s.path))
        line = error_line(running)
        check('running' in line and '-o' in line, line)
        check(s.show('k')['held'], 'the lock was released')
        touch(s.file('end'))
        running.end(0)


def sleeps(pid):
    """The number of times that a process has slept."""
    (count,) = re.findall(r'^voluntary_ctxt_switches:\s+(\d+)',
                          read(f'/proc/{pid}/status'), re.M)
    return int(count)


@case
def a_waiter_sleeps_while_a_descendant_of_a_killed_run_lives():
    with store() as s:
        running, pid = daemon(s, how='setsid sh -c "$1" & wait')
        waiting = s.start('run', '--wait', LONG, 'k', '--', 'true')
        until(lambda: s.show('k')['waiters'] == 1, 'the waiter')
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        time.sleep(2)  # it polls, at increasing intervals
        begun, before = time.monotonic(), sleeps(waiting.pid)
        time.sleep(4)
        count = sleeps(waiting.pid) - before
        # It polls once a second now.
        check(count <= 5 + 3 * (time.monotonic() - begun), count, 'times')
        touch(s.file('end'))
        waiting.end(0)
        check(not alive(pid))


@case
def after_a_killed_run_with_close_the_lock_is_free_at_once():
    with store() as s:
        running, pid = daemon(s, '--close', how='setsid sh -c "$1" & wait')
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        s.run('run', '--wait', LONG, 'k', '--', 'true')
        os.kill(pid, signal.SIGKILL)


@case
def run_does_not_wait_for_an_earlier_child():
    with store() as s:
        done = subprocess.run(
            ['sh', '-c', 'sleep 3000 >&- 2>&- & echo $!; '
             'exec "$0" run k -- true', HOLDFAST], env=s.env,
            stdout=subprocess.PIPE, check=True)
        pid = int(done.stdout)
        check(alive(pid))
        os.kill(pid, signal.SIGKILL)


@case
def the_first_signal_terminates_descendants_and_the_second_kills_them():
    with store() as s:
        running, pid = daemon(s)
        error_line(running)
        running.signal(signal.SIGINT)
        running.end(0)
        check(not alive(pid))
    with store() as s:
        running, pid = daemon(s, how='trap "" TERM; setsid sh -c "$1" &')
        error_line(running)
        running.signal(signal.SIGTERM)
        time.sleep(0.2)
        check(alive(pid) and s.show('k')['held'])
        running.signal(signal.SIGTERM)
        running.end(0)
        check(not alive(pid))


@case
@lasting(1000)
def a_lost_lock_kills_every_session_of_the_command(ttl_ms):
    with store() as s:
        running = s.start(
            'run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
            'trap "" TERM; setsid sh -c "$1" & wait', 'sh',
            'trap "" TERM; ' + DAEMON.format(s.path))
        until(lambda: read(s.file('pid')) or
              running.process.poll() is not None, 'the daemon')
        if running.process.poll() is not None:
            raise TooSlow
        s.run('force', '--token', str(s.show('k')['token']), 'k')
        text = running.end(79).err
        check('killed' in text, text)
        check(not alive(int(read(s.file('pid')))), 'it went on')


@case
@lasting(2000)
def each_process_gets_sigterm_once(ttl_ms):
    with store() as s:
        trap = 'trap "echo term >>{0}/$1" TERM; '.format(s.path)
        wait = ('while [ -d {0} ] && ! [ -e {0}/end ]; do sleep 0.02; done'
                .format(s.path))
        running = s.start(
            'run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
            'setsid sh -c "$2" sh other & ' + trap + 'echo $$ >$0; ' + wait,
            s.file('pid'), 'own', trap + wait)
        until(lambda: read(s.file('pid')), 'the command')
        time.sleep(0.2)
        s.run('force', '--token', str(s.show('k')['token']), 'k', wanted=None)
        until(lambda: read(s.file('own')) and read(s.file('other')),
              'both signals')
        touch(s.file('end'))
        running.end(79)
        equal((read(s.file('own')), read(s.file('other'))),
              ('term\n', 'term\n'))


# ---- Processes of another user ---------------------------------------------

def as_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def set_user_id_python(s):
    """Install a Python that runs as root, whichever user starts it."""
    if os.getuid() != 0 or not os.path.exists('/usr/bin/python3'):
        raise Skip('not root, or no /usr/bin/python3')
    if os.statvfs(s.path).f_flag & os.ST_NOSUID:
        raise Skip('set-user-ID has no effect here')
    os.chmod(s.path, 0o755)
    shutil.copy(os.path.realpath('/usr/bin/python3'), s.file('sudo'))
    os.chmod(s.file('sudo'), 0o4755)
    os.mkdir(s.file('mine'))
    os.chown(s.file('mine'), NOBODY, NOBODY)
    s.env['HOLDFAST_URL'] = 'file:' + s.file('mine/locks')
    seen = s.run('ls', preexec_fn=as_nobody, wanted=None)
    if seen.status:
        raise Skip(f'another user cannot start it: {seen.err}')
    return s.file('sudo')


UNTIL_THE_END = '''
import os, sys, time
os.setresuid(0, 0, 0)
open(sys.argv[1] + '/ready', 'w').close()
while not os.path.exists(sys.argv[1] + '/end'):
    time.sleep(0.02)
'''


@case
@lasting(1000)
def a_command_of_another_user_is_reported_and_waited_for(ttl_ms):
    with store() as s:
        python = set_user_id_python(s)
        running = s.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', python,
                          '-c', UNTIL_THE_END, s.file('mine'),
                          preexec_fn=as_nobody)
        warning = error_line(running)
        check('set-user-ID' in warning and 'sudo' in warning, warning)
        until(lambda: os.path.exists(s.file('mine/ready')), 'the command')
        (info,) = s.run('show', '--json', 'k', preexec_fn=as_nobody).json()
        s.run('force', '--token', str(info['token']), 'k', wanted=None,
              preexec_fn=as_nobody)
        line = error_line(running)
        check(re.search(r'sudo\[\d+\] cannot be stopped .*another user', line),
              line)
        check(running.process.poll() is None, 'run did not wait for it')
        touch(s.file('mine/end'))
        text = running.end(79).err
        check('killed' not in text, text)


# It prints the signal that it gets when its parent dies.
PARENT_DEATH = '''
import ctypes
number = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number))
print(number.value)
'''


# Root can signal it, but the kernel forgets to end it with its parent.
@case
def a_command_that_leaves_root_is_reported():
    with store() as s:
        python = set_user_id_python(s)
        s.env['HOLDFAST_URL'] = 'file:' + s.file('locks')
        for mode, user, group, is_reported in (
                (0o4755, 0, 0, False), (0o4755, NOBODY, 0, True),
                (0o2755, 0, NOBODY, True), (0o2745, 0, NOBODY, False)):
            os.chown(python, user, group)
            os.chmod(python, mode)
            ended = s.run('run', 'k', '--', python, '-c', PARENT_DEATH)
            equal(ended.out, '0\n' if is_reported else '9\n', oct(mode))
            equal('ended with SIGKILL' in ended.err, is_reported, ended)


@case
def an_ordinary_command_causes_no_warning():
    with store() as s:
        equal(s.run('run', 'k', '--', 'true').err, '')
        if os.getuid() == 0:
            equal(s.run('run', 'k', '--', tool('su'), '--version').err, '')


# ---- As process 1 ----------------------------------------------------------

def unshared():
    """A command prefix that creates a new pid namespace."""
    unshare = [tool('unshare'), '--pid', '--fork', '--mount-proc']
    if subprocess.run([*unshare, 'true'], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        raise Skip('cannot create a pid namespace')
    return unshare


# The command has ended and left a daemon in another session. An unrelated
# process gets the pid of the command.
REUSE = '''
import os, signal, subprocess, sys, time
path = sys.argv[2]
def read(name):
    try:
        with open(path + '/' + name) as file:
            return file.read()
    except OSError:
        return ''
run = subprocess.Popen([sys.argv[1], 'run', '--ttl', '600s', 'k', '--', 'sh',
                        '-c', 'echo $$ >$0/own; setsid sh -c "$1" &', path,
                        sys.argv[3]], stderr=subprocess.PIPE)
run.stderr.readline()  # it reports the daemon
number = int(read('own'))
other = None
while not other or other.pid != number:
    with open('/proc/sys/kernel/ns_last_pid', 'w') as last:
        last.write(str(number - 1))
    other = subprocess.Popen(['sleep', '1000'], start_new_session=True)
for wanted in signal.SIGCONT, signal.SIGTERM:
    run.send_signal(wanted)
assert run.wait() == 0
time.sleep(0.1)
print('other', other.poll())
other.kill()
'''


@case
def a_process_that_reuses_the_pid_of_the_command_gets_no_signal():
    unshare = unshared()
    if os.getuid() != 0 or not os.access('/proc/sys/kernel/ns_last_pid',
                                         os.W_OK):
        raise Skip('cannot choose the next pid')
    with store() as s:
        done = subprocess.run(
            [*unshare, sys.executable, '-c', REUSE, HOLDFAST, s.path,
             DAEMON.format(s.path)], env=s.env, stdout=subprocess.PIPE,
            check=True)
        equal(done.stdout, b'other None\n')


ZOMBIES = '''
import os
states = [open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]
          for pid in os.listdir('/proc') if pid.isdigit()]
print('zombies', states.count('Z'))
'''


@case
def process_1_reaps_orphans():
    unshare = unshared()
    for option in [], ['-o']:
        with store() as s:
            done = subprocess.run(
                [*unshare, HOLDFAST, 'run', *option, 'k', '--', 'sh', '-c',
                 '(true &); (true &); (sleep 0.1 &); sleep 0.5; exec "$0" -c '
                 '"$1"', sys.executable, ZOMBIES], env=s.env,
                stdout=subprocess.PIPE, check=True)
            equal(done.stdout, b'zombies 0\n')


if __name__ == '__main__':
    main()
