#!/usr/bin/env python3
"""`holdfast run` and processes that outlive the command or its signals."""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from cases import (HOLDFAST, LONG, Running, Skip, TooSlow, alive, case, check,
                   equal, lasting, main, place, read, tool, until)

NOBODY = 65534

# A process that says its number, then waits for a file, or the end of the case.
DAEMON = ('exec >/dev/null 2>&1; echo $$ >{0}/pid; '
          'while [ -d {0} ] && ! [ -e {0}/end ]; do sleep 0.02; done')


def daemon(p, *options, how='setsid sh -c "$1" &', **more):
    """Run a command that ends at once and leaves a daemon running."""
    running = p.start('run', '--ttl', LONG, *options, 'k', '--', 'sh', '-c',
                      how, 'sh', DAEMON.format(p.path), **more)
    until(lambda: read(p.file('pid')), 'the daemon')
    return running, int(read(p.file('pid')))


def told(running):
    """The next line on stderr."""
    return running.process.stderr.readline().decode()


def touch(path):
    with open(path, 'w', encoding='ascii'):
        pass


@case
def the_lock_is_kept_for_what_the_command_leaves_running():
    for how in ('setsid sh -c "$1" &', 'sh -c "$1" & exit 7',
                '(setsid sh -c "$1" &)'):
        with place() as p:
            running, pid = daemon(p, how=how)
            line = told(running)
            check('running' in line and '-o' in line, line)
            check(p.show('k')['held'] and alive(pid), 'it was given back')
            touch(p.file('end'))
            running.end(7 if 'exit' in how else 0)
            check(not p.show('k')['held'] and not alive(pid))


@case
def with_close_it_is_not():
    with place() as p:
        running, pid = daemon(p, '--close', how='setsid sh -c "$1" >&- 2>&- &')
        running.end(0)
        check(not p.show('k')['held'] and alive(pid))
        os.kill(pid, signal.SIGKILL)


@case
def setsid_itself_is_waited_for():
    with place() as p:
        ended = p.run('run', 'k', '--', 'setsid', 'sh', '-c',
                      f'sleep 0.3; "{HOLDFAST}" show --json k')
        check('"held":true' in ended.out, ended)


@case
def a_killed_run_loses_the_lock_with_the_last_of_its_processes():
    with place() as p:
        running, pid = daemon(p, how='setsid sh -c "$1" & wait')
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        check(alive(pid))
        p.run('run', '--no-wait', 'k', '--', 'true', wanted=75)
        touch(p.file('end'))
        p.run('run', '--wait', LONG, 'k', '--', 'true')


@case
def also_where_few_descriptors_may_be_open():
    with place() as p:
        running, pid = daemon(
            p, how='setsid sh -c "$1" & wait',
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                  (64, 64)))
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        check(alive(pid))
        p.run('run', '--no-wait', 'k', '--', 'true', wanted=75)
        touch(p.file('end'))


# ---- Processes from before `exec holdfast run` -----------------------------

def replaced_shell(p, before, *command):
    """Start a shell that runs `before`, where $1 is the script of a daemon, in
    the background, and is replaced by `holdfast run`."""
    script = '(exec >/dev/null 2>&1; {}) & shift; exec "$@"'.format(before)
    return Running('run', '--ttl', LONG, 'k', '--', *command, env=p.env,
                   program=[tool('sh'), '-c', script, p.path,
                            DAEMON.format(p.path), HOLDFAST])


@case
def an_orphan_of_such_a_child_is_not_waited_for():
    """It becomes a child of `run` while the command runs."""
    with place() as p:
        running = replaced_shell(
            p, 'until [ -e $0/go ]; do sleep 0.02; done; sh -c "$1" &', 'sh',
            '-c', 'touch $0/go; until [ -s $0/pid ]; do sleep 0.02; done; '
            'sleep 0.2', p.path)
        equal(told(running), '')  # else it reports what it waits for
        running.end(0)
        check(alive(int(read(p.file('pid')))), 'it was ended')


@case
def what_the_command_leaves_is_waited_for_beside_such_a_child():
    with place() as p:
        running = replaced_shell(
            p, 'while [ -d $0 ]; do sleep 0.02; done', 'sh', '-c',
            'setsid sh -c "$0" &', DAEMON.format(p.path))
        line = told(running)
        check('running' in line and '-o' in line, line)
        check(p.show('k')['held'], 'it was given back')
        touch(p.file('end'))
        running.end(0)


def sleeps(pid):
    """How often a process has slept."""
    (count,) = re.findall(r'^voluntary_ctxt_switches:\s+(\d+)',
                          read(f'/proc/{pid}/status'), re.M)
    return int(count)


@case
def a_waiter_sleeps_while_what_a_killed_run_has_left_lives():
    with place() as p:
        running, pid = daemon(p, how='setsid sh -c "$1" & wait')
        waiting = p.start('run', '--wait', LONG, 'k', '--', 'true')
        until(lambda: p.show('k')['waiters'] == 1, 'the waiter')
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        time.sleep(2)  # it looks again at once, and less and less often
        begun, before = time.monotonic(), sleeps(waiting.pid)
        time.sleep(4)
        count = sleeps(waiting.pid) - before
        # It asks again once a second.
        check(count <= 5 + 3 * (time.monotonic() - begun), count, 'times')
        touch(p.file('end'))
        waiting.end(0)
        check(not alive(pid))


@case
def a_killed_run_frees_at_once_with_close():
    with place() as p:
        running, pid = daemon(p, '--close', how='setsid sh -c "$1" & wait')
        running.signal(signal.SIGKILL)
        running.end(-signal.SIGKILL)
        p.run('run', '--wait', LONG, 'k', '--', 'true')
        os.kill(pid, signal.SIGKILL)


@case
def children_of_the_shell_before_are_not_waited_for():
    with place() as p:
        done = subprocess.run(
            ['sh', '-c', 'sleep 3000 >&- 2>&- & echo $!; '
             'exec "$0" run k -- true', HOLDFAST], env=p.env,
            stdout=subprocess.PIPE, check=True)
        pid = int(done.stdout)
        check(alive(pid))
        os.kill(pid, signal.SIGKILL)


@case
def a_signal_ends_what_is_left_and_a_second_kills_it():
    with place() as p:
        running, pid = daemon(p)
        told(running)
        running.signal(signal.SIGINT)
        running.end(0)
        check(not alive(pid))
    with place() as p:
        running, pid = daemon(p, how='trap "" TERM; setsid sh -c "$1" &')
        told(running)
        running.signal(signal.SIGTERM)
        time.sleep(0.2)
        check(alive(pid) and p.show('k')['held'])
        running.signal(signal.SIGTERM)
        running.end(0)
        check(not alive(pid))


@case
@lasting(1000)
def a_loss_ends_every_session_of_the_command(ttl_ms):
    with place() as p:
        running = p.start(
            'run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
            'trap "" TERM; setsid sh -c "$1" & wait', 'sh',
            'trap "" TERM; ' + DAEMON.format(p.path))
        until(lambda: read(p.file('pid')) or
              running.process.poll() is not None, 'the daemon')
        if running.process.poll() is not None:
            raise TooSlow
        p.run('force', '--token', str(p.show('k')['token']), 'k')
        text = running.end(79).err
        check('killed' in text, text)
        check(not alive(int(read(p.file('pid')))), 'it went on')


@case
@lasting(2000)
def each_process_is_told_to_stop_once(ttl_ms):
    with place() as p:
        trap = 'trap "echo term >>{0}/$1" TERM; '.format(p.path)
        wait = ('while [ -d {0} ] && ! [ -e {0}/end ]; do sleep 0.02; done'
                .format(p.path))
        running = p.start(
            'run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
            'setsid sh -c "$2" sh other & ' + trap + 'echo $$ >$0; ' + wait,
            p.file('pid'), 'own', trap + wait)
        until(lambda: read(p.file('pid')), 'the command')
        time.sleep(0.2)
        p.run('force', '--token', str(p.show('k')['token']), 'k', wanted=None)
        until(lambda: read(p.file('own')) and read(p.file('other')),
              'both signals')
        touch(p.file('end'))
        running.end(79)
        equal((read(p.file('own')), read(p.file('other'))),
              ('term\n', 'term\n'))


# ---- Another user's processes ----------------------------------------------

def as_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def set_user_id_python(p):
    """A Python that runs as root, whoever starts it."""
    if os.getuid() != 0 or not os.path.exists('/usr/bin/python3'):
        raise Skip('not root, or no /usr/bin/python3')
    if os.statvfs(p.path).f_flag & os.ST_NOSUID:
        raise Skip('set-user-ID has no effect here')
    os.chmod(p.path, 0o755)
    shutil.copy(os.path.realpath('/usr/bin/python3'), p.file('sudo'))
    os.chmod(p.file('sudo'), 0o4755)
    os.mkdir(p.file('mine'))
    os.chown(p.file('mine'), NOBODY, NOBODY)
    p.env['HOLDFAST_URL'] = 'file:' + p.file('mine/locks')
    seen = p.run('ls', preexec_fn=as_nobody, wanted=None)
    if seen.status:
        raise Skip(f'another user cannot start it: {seen.err}')
    return p.file('sudo')


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
    with place() as p:
        python = set_user_id_python(p)
        running = p.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', python,
                          '-c', UNTIL_THE_END, p.file('mine'),
                          preexec_fn=as_nobody)
        warning = told(running)
        check('set-user-ID' in warning and 'sudo' in warning, warning)
        until(lambda: os.path.exists(p.file('mine/ready')), 'the command')
        (info,) = p.run('show', '--json', 'k', preexec_fn=as_nobody).json()
        p.run('force', '--token', str(info['token']), 'k', wanted=None,
              preexec_fn=as_nobody)
        line = told(running)
        check(re.search(r'sudo\[\d+\] cannot be stopped .*another user', line),
              line)
        check(running.process.poll() is None, 'it did not wait')
        touch(p.file('mine/end'))
        text = running.end(79).err
        check('killed' not in text, text)


@case
def a_plain_command_has_no_warning():
    with place() as p:
        equal(p.run('run', 'k', '--', 'true').err, '')
        if os.getuid() == 0:
            equal(p.run('run', 'k', '--', tool('su'), '--version').err, '')


# ---- As process 1 ----------------------------------------------------------

def unshared():
    """The start of a command in a namespace of processes of its own."""
    unshare = [tool('unshare'), '--pid', '--fork', '--mount-proc']
    if subprocess.run([*unshare, 'true'], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        raise Skip('no namespaces of processes here')
    return unshare


# The command has ended and left a daemon of another session. Its number is
# given to a process that has nothing to do with it.
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
run.stderr.readline()  # it tells of the daemon
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
def a_process_with_the_number_of_the_command_is_left_alone():
    unshare = unshared()
    if os.getuid() != 0 or not os.access('/proc/sys/kernel/ns_last_pid',
                                         os.W_OK):
        raise Skip('the next number of a process cannot be chosen here')
    with place() as p:
        done = subprocess.run(
            [*unshare, sys.executable, '-c', REUSE, HOLDFAST, p.path,
             DAEMON.format(p.path)], env=p.env, stdout=subprocess.PIPE,
            check=True)
        equal(done.stdout, b'other None\n')


ZOMBIES = '''
import os
states = [open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]
          for pid in os.listdir('/proc') if pid.isdigit()]
print('zombies', states.count('Z'))
'''


@case
def orphans_are_reaped_as_process_1():
    unshare = unshared()
    for option in [], ['-o']:
        with place() as p:
            done = subprocess.run(
                [*unshare, HOLDFAST, 'run', *option, 'k', '--', 'sh', '-c',
                 '(true &); (true &); (sleep 0.1 &); sleep 0.5; exec "$0" -c '
                 '"$1"', sys.executable, ZOMBIES], env=p.env,
                stdout=subprocess.PIPE, check=True)
            equal(done.stdout, b'zombies 0\n')


if __name__ == '__main__':
    main()
