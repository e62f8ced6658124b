#!/usr/bin/env python3
"""The verbs over locks that several processes share."""
import fcntl
import itertools
import json
import os
import pty
import select
import signal
import subprocess
import time

from cases import (HOLDFAST, LONG, Running, TooSlow, alive, case, check,
                   environment, equal, lasting, main, place, read, run, until)

TTL_MS = 2000
TTL = f'{TTL_MS}ms'


def error_of(ended, stream='out'):
    (told,) = [json.loads(line) for line in getattr(ended, stream).splitlines()]
    return told['error']


# ---- lock, unlock, renew, update -------------------------------------------

@case
def lock_prints_what_unlock_takes_and_leaves_it_held():
    with place() as p:
        key, nonce, token = p.run('lock', '--ttl', LONG, 'k').out.split()
        equal((key, len(bytes.fromhex(nonce))), ('k', 16))
        info = p.show('k')
        equal((info['held'], info['token']), (True, token))
        p.run('unlock', key, nonce, token)
        equal(p.show('k')['held'], False)


@case
def a_lock_that_was_printed_outlives_a_kill():
    """The kernel kills it as soon as the line is in the pipe."""
    with place() as p:
        read_end, write_end = os.pipe()

        def die_by_writing():
            fcntl.fcntl(read_end, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(read_end, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(read_end, fcntl.F_SETFL, os.O_ASYNC)

        held = p.start('lock', '--ttl', LONG, 'k', stdout=write_end,
                       preexec_fn=die_by_writing)
        held.end(-signal.SIGKILL)
        key, nonce, token = os.read(read_end, 4096).decode().split()
        p.run('run', '--no-wait', 'k', '--', 'true', wanted=75)
        p.run('unlock', key, nonce, token)
        os.close(read_end)
        os.close(write_end)


@case
@lasting(TTL_MS)
def a_lock_that_is_left_ends_with_its_lease(ttl_ms):
    with place() as p:
        begun = time.monotonic()
        p.lock('k', '--ttl', f'{ttl_ms}ms')
        out = p.run('wait', 'k').out
        check(time.monotonic() - begun >= ttl_ms / 1000, 'too early')
        if out == 'k free\n':
            raise TooSlow  # it ended before the wait began
        equal(out, 'k expired\n')


@case
def unlock_of_another_s_lock_has_77_and_changes_nothing():
    with place() as p:
        nonce, token = p.lock('k')
        other = '0' * 32
        told = error_of(p.run('unlock', '--json', 'k', other, token, wanted=77))
        equal(told['name'], 'HF_ENOTOWNER')
        p.run('unlock', 'k', nonce, str(int(token) + 1), wanted=77)
        equal(p.show('k')['token'], token)
        p.run('unlock', '-q', 'k', other, token)
        equal(p.show('k')['token'], token)
        p.run('unlock', 'k', nonce, token)
        p.run('unlock', 'k', nonce, token, wanted=77)
        p.run('unlock', '--quiet', 'k', nonce, token)


@case
def unlock_and_renew_and_update_have_json():
    with place() as p:
        nonce, token = p.lock('k')
        (told,) = p.run('renew', '--json', '--ttl=1h', 'k', nonce, token).json()
        check(3000000 < told.pop('left_ms') <= 3600000)
        equal(told, {'key': 'k', 'token': token, 'renewed': True,
                     'ttl_ms': 3600000})
        (told,) = p.run('update', '--json', 'k', nonce, token, 'v').json()
        equal(told, {'key': 'k', 'token': token, 'updated': True})
        (told,) = p.run('unlock', '--json', 'k', nonce, token).json()
        equal(told, {'key': 'k', 'token': token, 'unlocked': True})


@case
def values_are_quoted_for_a_terminal_alone():
    with place() as p:
        value = "it's 80 %\n\tdone\x1b[m"
        p.lock('k', '--value', value)
        equal(p.run('show', 'k').out.partition('\nvalue    ')[2], value + '\n')
        ours, its = pty.openpty()
        subprocess.run([HOLDFAST, 'show', 'k'], env=p.env, stdout=its, check=True)
        shown = os.read(ours, 4096).decode()
        os.close(ours)
        os.close(its)
        check("value    $'it\\'s\\x2080" in shown, shown)


@case
def ls_marks_what_is_broken():
    with place() as p:
        p.lock('whole')
        _, token = p.lock('broken/k')
        check('broken' not in p.run('ls', 'whole').out)
        p.run('force', '--token', token, 'broken/k')
        rows = {row.split()[0]: row.split()[3]
                for row in p.run('ls').out.splitlines()[1:]}
        check(rows['broken/k'].endswith(',broken'), rows)
        check('broken' not in rows['whole'], rows)


@case
def the_nonce_may_come_from_the_environment():
    with place() as p:
        nonce, token = p.lock('k')
        run('unlock', 'k', '-', token, env=dict(p.env, HOLDFAST_NONCE=nonce))
        equal(p.show('k')['held'], False)


@case
def renew_extends_and_never_shortens():
    with place() as p:
        nonce, token = p.lock('k')
        p.run('renew', '--ttl', '1h', 'k', nonce, token)
        check(p.show('k')['left_ms'] > 3000000)
        (told,) = p.run('renew', '--json', '--ttl', '1s', 'k', nonce,
                        token).json()
        check(3000000 < told['left_ms'] <= 3600000, told)
        equal(told['ttl_ms'], 1000)
        check(p.show('k')['left_ms'] > 3000000)
        p.run('unlock', 'k', nonce, token)
        p.run('renew', '--ttl', '1s', 'k', nonce, token, wanted=77)
        equal(p.show('k')['held'], False)


@case
def update_replaces_the_value_if_it_is_the_expected_one():
    with place() as p:
        nonce, token = p.lock('k', '--value', 'blue')
        equal(p.show('k')['value'], 'blue')
        told = error_of(p.run('update', '--json', '--expect', 'red', 'k', nonce,
                              token, 'x', wanted=65))
        equal(told['name'], 'HF_EMISMATCH')
        p.run('update', '--expect', 'blue', 'k', nonce, token, 'grün\n')
        equal(p.show('k')['value'], 'grün\n')
        p.run('update', 'k', nonce, token, '')
        equal(p.show('k')['value'], '')
        p.run('update', '--expect', '', 'k', nonce, token, 'again')
        equal(p.show('k')['value'], 'again')


@case
@lasting(TTL_MS)
def hold_keeps_it_until_stdin_closes(ttl_ms):
    with place() as p:
        held = p.start('lock', '--hold', '--ttl', f'{ttl_ms}ms', 'k',
                       stdin=subprocess.PIPE)
        key, _, token = held.line().split()
        equal(key, 'k')
        held.process.stdin.write(b'some words\n')
        held.process.stdin.flush()
        time.sleep(ttl_ms / 1000 * 1.5)
        info = p.show('k')
        ended = held.end(None)  # closes stdin
        if ended.status == 79:
            raise TooSlow  # to renew
        equal((ended.status, info['token']), (0, token))
        equal(p.show('k')['held'], False)


@case
def hold_ends_by_a_signal_and_gives_back():
    with place() as p:
        held = p.start('lock', '--hold', 'k', stdin=subprocess.PIPE)
        held.line()
        held.signal(signal.SIGTERM)
        equal(held.process.wait(), -signal.SIGTERM)
        equal(p.show('k')['held'], False)


@case
def hold_that_is_lost_has_79():
    with place() as p:
        held = p.start('lock', '--hold', '--ttl', '10s', 'k',
                       stdin=subprocess.PIPE)
        token = held.line().split()[2]
        p.run('force', '--now', '--token', token, 'k')
        equal(held.process.wait(), 79)
        held = p.start('lock', '--hold', '--ttl', LONG, 'k',
                       stdin=subprocess.PIPE)
        token = held.line().split()[2]
        p.run('force', '--now', '--token', token, 'k')
        held.end(79)  # closes stdin: it hears of the loss when it gives back


@case
def a_lock_that_nobody_heard_of_is_given_back():
    with place() as p, open('/dev/full', 'wb') as full:
        held = p.start('lock', 'k', stdout=full)
        equal(held.end(74).err.count('\n'), 1)
        equal(p.show('k')['held'], False)
        read_end, write_end = os.pipe()
        os.close(read_end)
        held = p.start('lock', 'k', stdout=write_end)
        os.close(write_end)
        held.end(74)
        equal(p.show('k')['held'], False)
        p.start('lock', 'k', stdout=None, preexec_fn=lambda:
                os.close(1)).end(74)
        equal(p.show('k')['held'], False)


# ---- Waiting ---------------------------------------------------------------

@case
def busy_has_75_or_what_is_asked_for():
    with place() as p:
        p.lock('k', '--ttl', LONG, '--note', 'why not')
        ran = p.file('ran')
        for verb, rest in (('lock', []), ('run', ['--', 'touch', ran])):
            ended = p.run(verb, '-n', 'k', *rest, wanted=75)
            check('held by' in ended.err and 'why not' in ended.err, ended)
            p.run(verb, '--no-wait', '-E', '0', 'k', *rest)
            p.run(verb, '-w', '0.05', '-E', '42', 'k', *rest, wanted=42)
            p.run(verb, '--wait', '50ms', 'k', *rest, wanted=75)
            p.run(verb, '-w', '0', 'k', *rest, wanted=75)
            ended = p.run(verb, '-nq', 'k', *rest, wanted=75)
            equal((ended.out, ended.err), ('', ''))
        equal(error_of(p.run('lock', '--json', '-n', 'k', wanted=75))['name'],
              'HF_EBUSY')
        ended = p.run('run', '--json', '-w', '0.05', 'k', '--', 'true',
                      wanted=75)
        equal(error_of(ended, 'err')['name'], 'HF_ETIMEDOUT')
        equal(p.show('k')['waiters'], 0)
        check(not os.path.exists(ran), 'the command ran without the lock')


@case
def a_wait_is_as_long_as_it_is_asked_for():
    with place() as p:
        p.lock('k', '--ttl', LONG)
        begun = time.monotonic()
        p.run('run', '-w', '0.5', 'k', '--', 'true', wanted=75)
        check(time.monotonic() - begun >= 0.5, 'too early')


@case
def those_who_wait_are_served_in_order():
    with place() as p:
        nonce, token = p.lock('k', '--ttl', LONG)
        log = p.file('log')
        waiting = []
        for i in range(5):
            waiting.append(p.start('run', 'k', '--', 'sh', '-c',
                                   f'echo {i} >>{log}'))
            until(p.waits('k', i + 1), 'a place in line')
        p.run('unlock', 'k', nonce, token)
        for one in waiting:
            one.end(0)
        equal(read(log).split(), ['0', '1', '2', '3', '4'])


@case
def one_at_a_time():
    with place() as p:
        count = p.file('count')
        with open(count, 'w', encoding='ascii') as file:
            file.write('0')
        add = f'n=$(cat {count}); sleep 0.01; echo $((n + 1)) >{count}'
        for one in [p.start('run', 'k', '--', 'sh', '-c', add)
                    for _ in range(16)]:
            one.end(0)
        equal(read(count).strip(), '16')


@case
def a_wait_that_a_signal_ends_leaves_no_one_in_line():
    with place() as p:
        p.lock('k', '--ttl', LONG)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
                       signal.SIGUSR1):
            waiting = p.start('run', 'k', '--', 'true')
            until(p.waits('k'), 'a place in line')
            waiting.signal(number)
            waiting.end(-number)
            equal(p.show('k')['waiters'], 0)


@case
def a_signal_that_is_ignored_does_not_end_a_wait():
    with place() as p:
        nonce, token = p.lock('k', '--ttl', LONG)
        waiting = p.start('run', 'k', '--', 'true', preexec_fn=lambda:
                          signal.signal(signal.SIGHUP, signal.SIG_IGN))
        until(p.waits('k'), 'a place in line')
        waiting.signal(signal.SIGHUP)
        time.sleep(0.2)
        equal(p.show('k')['waiters'], 1)
        p.run('unlock', 'k', nonce, token)
        waiting.end(0)


@case
@lasting(300)
def wait_tells_how_a_key_came_to_be_free(begins_ms):
    with place() as p:
        equal(p.run('wait', 'k').out, 'k free\n')
        nonce, token = p.lock('k')
        p.run('wait', '-w', '0.05', 'k', wanted=75)
        waiting = p.start('wait', '--json', 'k')
        time.sleep(begins_ms / 1000)
        p.run('unlock', 'k', nonce, token)
        (told,) = waiting.end(0).json()
        if told['freed'] == 'free':
            raise TooSlow  # the wait began after that
        equal(told, {'key': 'k', 'held': False, 'freed': 'released'})
        waiting = p.start('wait', '--held', '--json', 'k')
        time.sleep(0.3)
        nonce, token = p.lock('k')
        (told,) = waiting.end(0).json()
        equal((told['key'], told['held'], told['token']),
              ('k', True, token))
        check('is held by' in p.run('wait', '--held', 'k').out)


# ---- Looking ---------------------------------------------------------------

@case
def show_tells_who_since_when_and_who_waits():
    with place() as p:
        held = p.start('run', '--note', 'nightly\nreport', '--value', 'a b',
                       'k', '--', 'sleep', '600')
        until(lambda: p.show('k')['held'], 'the lock')
        waiting = p.start('run', 'k', '--', 'true')
        until(p.waits('k'), 'a place in line')
        info = p.show('k')
        equal((info['note'], info['value'], info['forced']),
              ('nightly\nreport', 'a b', False))
        check(info['owner'].startswith(f'sleep[{held.pid}]@'), info)
        check(info['held_ms'] >= 0 and 0 < info['left_ms'] <= 11000, info)
        text = p.run('show', 'k').out
        for words in ('state    held', f'token    {info["token"]}',
                      f'owner    {info["owner"]}', 'waiters  1', 'since  ',
                      'left  ', 'note     nightly\\nreport',
                      "value    a b"):
            check(words in text, words, text)
        held.signal(signal.SIGTERM)
        waiting.end(0)
        equal(p.run('show', 'k').out, 'key      k\nstate    free\n')


@case
def ls_shows_every_key_unambiguously():
    with place() as p:
        keys = [b'a', b'a b', b'a\nb', b'a\xff', 'ä'.encode(), b'b', b'--json',
                b"$'x'"]
        for key in keys:
            run('lock', '--ttl', LONG, '--note', 'one note', '--', key,
                env=p.env)
        listed = p.run('ls', '--json').json()
        equal([os.fsencode(info['key']) for info in listed], sorted(keys))
        lines = p.run('ls').out.splitlines()
        equal(lines[0].split(), ['KEY', 'TOKEN', 'HELD', 'LEFT', 'WAITERS',
                                 'OWNER', 'NOTE'])
        equal(len(lines), 1 + len(keys))
        words = p.run('ls', '--keys').out.splitlines()
        equal([line.split()[0] for line in lines[1:]], words)
        for word, key in zip(words, sorted(keys)):
            done = subprocess.run([b'bash', b'-c', b'printf %s ' + os.fsencode(
                word)], stdout=subprocess.PIPE, check=True)
            equal(done.stdout, key)
        equal(p.run('ls', '--keys', 'a').out.split('\n')[:-1],
              ['a', "$'a\\nb'", "$'a\\x20b'", "$'a\\xff'"])
        equal(p.run('ls', 'none').out, '')


probes = itertools.count()


def watches(p, *args):
    """A watch that has begun: one key after another, "k-probe-N", is taken until
    it tells of one."""
    watching = p.start('watch', *args)
    while not select.select([watching.process.stdout], [], [], 0.2)[0]:
        p.lock(f'k-probe-{next(probes)}')
    return watching


def told_by(watching):
    """The next line of a watch that is not of a probe."""
    while '-probe-' in (line := watching.line()):
        continue
    return line


@case
def nonces_are_never_shown():
    with place() as p:
        watching = watches(p, '--json', '--kinds', 'granted,renewed,forced,'
                           'released')
        nonce, token = p.lock('k')
        p.run('renew', 'k', nonce, token)
        shown = ''
        for args in (['ls'], ['ls', '--json'], ['show', 'k'],
                     ['show', '--json', 'k'], ['wait', '--held', 'k'],
                     ['wait', '-n', 'k'], ['run', '-nv', 'k', '--', 'true'],
                     ['unlock', '-v', 'k', 'f' * 32, token],
                     ['renew', '-v', 'k', nonce, token],
                     ['force', '-v', '--token', token, 'k'],
                     ['unlock', '-v', 'k', nonce, token]):
            ended = p.run(*args, wanted=None)
            shown += ended.out + ended.err
        told = ''
        while 'released' not in told:
            told = told_by(watching)
            shown += told
        check(nonce not in shown.lower(), shown)


@case
def watch_prints_what_happens_as_it_happens():
    with place() as p:
        text = watches(p, 'k', '--kinds', 'granted,released')
        watching = watches(p, 'k', '--json')
        nonce, token = p.lock('k1')
        p.lock('other')
        p.run('renew', 'k1', nonce, token)
        p.run('update', 'k1', nonce, token, 'v')
        p.run('unlock', 'k1', nonce, token)
        told = [json.loads(told_by(watching)) for _ in range(4)]
        equal([t['event'] for t in told],
              ['granted', 'renewed', 'updated', 'released'])
        for t in told:
            equal(list(t), ['index', 'event', 'key', 'token', 'owner', 'freed'])
            equal((t['key'], t['token']), ('k1', token))
        equal([t['freed'] for t in told], [False, False, False, True])
        equal(told_by(text).split()[1:4], ['granted', 'k1', token])
        equal(told_by(text).split()[1:4], ['released', 'k1', token])
        again = p.run('watch', '--json', '--count', '2', '--from',
                      told[0]['index']).json()
        check(int(again[0]['index']) >= int(told[0]['index']), again)


# ---- Breaking --------------------------------------------------------------

@case
def force_must_name_what_it_breaks():
    with place() as p:
        p.run('force', '--token', '1', 'k', wanted=77)
        nonce, token = p.lock('k', '--ttl', LONG)
        p.run('force', 'k', wanted=64)
        told = error_of(p.run('force', '--json', '--token',
                              str(int(token) + 1), 'k', wanted=77))
        equal(told['name'], 'HF_ENOTOWNER')
        equal(p.show('k')['forced'], False)
        (told,) = p.run('force', '--json', '--token', token, 'k').json()
        check(300000 < told.pop('left_ms') <= 700000)
        equal(told, {'key': 'k', 'token': token, 'forced': True,
                     'now': False})
        equal(p.show('k')['forced'], True)
        check('broken' in p.run('show', 'k').out)
        p.run('renew', 'k', nonce, token, wanted=77)
        ended = p.run('force', '--now', '--token', token, 'k')
        check('only the fence protects' in ended.err, ended)
        equal(p.show('k')['held'], False)


def force(p, key, *options):
    """Break a lock that is renewed, if it is not lost by then."""
    token = p.show(key)['token']
    if p.run('force', *options, '--token', token, key, wanted=None).status:
        raise TooSlow


@case
@lasting(TTL_MS)
def a_broken_lock_stops_the_command_before_another_has_it(ttl_ms):
    with place() as p:
        log = p.file('log')
        held = p.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                       f'trap "echo told >>{log}; exit" TERM; echo ready; '
                       f'while :; do sleep 0.02; done')
        equal(held.line(), 'ready')
        next_one = p.start('run', 'k', '--', 'sh', '-c', f'echo next >>{log}')
        until(p.waits('k'), 'a place in line')
        force(p, 'k')
        ended = held.end(79)
        check('lost' in ended.err and 'operator' in ended.err, ended)
        next_one.end(0)
        if read(log).split() != ['told', 'next']:
            raise TooSlow  # to hear of it within a quarter of the lease


@case
@lasting(TTL_MS)
def a_command_that_does_not_listen_is_killed_with_its_group(ttl_ms):
    with place() as p:
        log = p.file('log')
        inner = f'trap "" TERM; while :; do echo t >>{log}; sleep 0.01; done'
        held = p.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                       f'trap "" TERM; sh -c \'{inner}\' & echo $! $$; wait; '
                       'wait; sleep 600')
        pids = [int(pid) for pid in held.line().split()]
        next_one = p.start('run', 'k', '--', 'sh', '-c',
                           f'echo next >>{log}; sleep 0.3')
        until(p.waits('k'), 'a place in line')
        force(p, 'k')
        ended = held.end(79)
        check('killed' in ended.err, ended)
        next_one.end(0)
        check(not any(alive(pid) for pid in pids))
        if read(log).split()[-1] != 'next':
            raise TooSlow  # to kill it before the end of the lease


@case
@lasting(TTL_MS)
def a_leader_that_ends_leaves_no_one_behind(ttl_ms):
    with place() as p:
        log = p.file('log')
        inner = f'trap "" TERM; while :; do echo t >>{log}; sleep 0.01; done'
        held = p.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                       f"sh -c '{inner}' & echo $!; exec sleep 600")
        pid = int(held.line())
        force(p, 'k')
        held.end(79)
        until(lambda: not alive(pid), 'the end of the group')


@case
def a_lock_that_is_passed_on_at_once_is_lost_before_the_next_renewal():
    with place() as p:
        held = p.start('run', '--ttl', '24h', 'k', '--', 'sleep', '600')
        until(lambda: p.show('k')['held'], 'the lock')
        force(p, 'k', '--now')
        held.end(79)


@case
def a_lock_that_was_lost_unnoticed_has_79_too():
    with place() as p:
        held = p.start('run', '--ttl', LONG, 'k', '--', 'sh', '-c',
                       'echo ready; read line', stdin=subprocess.PIPE)
        equal(held.line(), 'ready')
        p.run('force', '--now', '--token', p.show('k')['token'], 'k')
        ended = held.end(79)
        check('lost' in ended.err, ended)


@case
def a_stopped_holdfast_gives_way_and_its_command_is_killed_when_it_goes_on():
    with place() as p:
        held = p.start('run', '--ttl', TTL, 'k', '--', 'sleep', '600')
        until(lambda: p.show('k')['held'], 'the lock')
        first = int(p.show('k')['token'])
        held.signal(signal.SIGSTOP)
        ended = p.run('run', 'k', '--', 'printenv', 'HOLDFAST_TOKEN')
        check(int(ended.out) > first, ended)
        held.signal(signal.SIGCONT)
        held.end(79)


@case
def a_killed_holdfast_leaves_the_lock_to_its_lease():
    with place() as p:
        held = p.start('run', '--ttl', TTL, 'k', '--', 'sh', '-c',
                       'echo $$; exec sleep 600')
        pid = int(held.line())
        held.signal(signal.SIGKILL)
        held.end(-signal.SIGKILL)
        until(lambda: not alive(pid), 'the end of the command')
        p.run('run', '-w', '60', 'k', '--', 'true')


@case
def tokens_rise():
    with place() as p:
        tokens = [int(p.run('run', 'k', '--', 'printenv',
                            'HOLDFAST_TOKEN').out) for _ in range(5)]
        equal(tokens, sorted(set(tokens)))


@case
def a_command_may_renew_and_update_its_own_lock():
    with place() as p:
        p.run('run', 'k', '--', 'sh', '-c',
              '"$0" renew --ttl 1m "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN" && '
              '"$0" update "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN" half && '
              '[ "$("$0" show --json k | grep -c half)" = 1 ]',
              os.path.abspath(os.sys.argv[1]))


NESTED = 'this command runs under'


@case
def a_nested_run_of_the_same_key_is_refused_at_once():
    with place() as p:
        for args in (['run', 'k', '--', 'echo', 'ran'], ['lock', 'k'],
                     ['run', '-w', '1h', 'k', '--', 'echo', 'ran']):
            ended = p.run('run', 'k', '--', HOLDFAST, *args, wanted=75)
            check(NESTED in ended.err and not ended.out, ended)
        # However deep, and by whatever URL.
        ended = p.run('run', 'a', '--', HOLDFAST, 'run', 'b', '--', HOLDFAST,
                      'run', '-E', '9', '--url', p.url + '/.', 'a', '--',
                      'true', wanted=9)
        check(NESTED in ended.err, ended)
        ended = p.run('run', 'k', '--', HOLDFAST, 'run', '-qE0', 'k', '--',
                      'echo', 'ran')
        equal((ended.out, ended.err), ('', ''))


@case
def a_nested_run_has_its_lock_if_nobody_holds_it():
    with place() as p:
        equal(p.run('run', 'a', '--', HOLDFAST, 'run', 'b', '--', 'echo',
                    'ran').out, 'ran\n')
        ended = p.run('run', 'k', '--', 'sh', '-c',
                      '"$0" unlock k - "$HOLDFAST_TOKEN"; '
                      '"$0" run k -- echo ran', HOLDFAST, wanted=79)
        equal(ended.out, 'ran\n')
        # Another store has a key and a token of its own.
        url = 'file:' + p.file('other')
        ended = p.run('run', 'k', '--', HOLDFAST, 'run', '--url', url, 'k',
                      '--', 'echo', 'ran')
        equal(ended.out, 'ran\n')


@case
def a_command_that_gives_its_own_lock_back_has_79():
    with place() as p:
        # On purpose, but what it does after that is not protected.
        p.run('run', 'k', '--', 'sh', '-c',
              '"$0" unlock "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN"',
              os.path.abspath(os.sys.argv[1]), wanted=79)


@case
def the_command_means_the_same_store_wherever_it_goes():
    renew = ('cd / && "$0" renew --ttl 60s "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN" '
             '&& echo "$HOLDFAST_URL"')
    with place() as p:
        env = environment(HOLDFAST_URL='file:/nonexistent/locks')
        here = p.file('a %3f dir\N{SNOWMAN}')
        os.mkdir(here)
        for url in (p.url, 'file:locks', 'file:./locks?mode=0700'):
            ended = Running('run', '--url', url, 'k', '--', 'sh', '-c', renew,
                            HOLDFAST, env=env, cwd=here).end(0)
            check(ended.out.startswith('file:/'), ended)


if __name__ == '__main__':
    main()
