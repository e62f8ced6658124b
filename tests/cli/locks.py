#!/usr/bin/env python3
"""The verbs on locks that several processes share."""
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
                   environment, equal, lasting, main, store, read, run, until)

TTL_MS = 2000
TTL = f'{TTL_MS}ms'


def error_of(ended, stream='out'):
    (reply,) = map(json.loads, getattr(ended, stream).splitlines())
    return reply['error']


# ---- lock, unlock, renew, update -------------------------------------------

@case
def lock_prints_the_arguments_of_unlock_and_leaves_the_lock_held():
    with store() as s:
        key, nonce, token = s.run('lock', '--ttl', LONG, 'k').out.split()
        equal((key, len(bytes.fromhex(nonce))), ('k', 16))
        info = s.show('k')
        equal((info['held'], info['token']), (True, token))
        s.run('unlock', key, nonce, token)
        equal(s.show('k')['held'], False)


@case
def a_printed_lock_outlives_a_killed_process():
    """The kernel kills `lock` as soon as its line is in the pipe."""
    with store() as s:
        read_end, write_end = os.pipe()

        def die_on_write():
            fcntl.fcntl(read_end, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(read_end, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(read_end, fcntl.F_SETFL, os.O_ASYNC)

        held = s.start('lock', '--ttl', LONG, 'k', stdout=write_end,
                       preexec_fn=die_on_write)
        held.end(-signal.SIGKILL)
        key, nonce, token = os.read(read_end, 4096).decode().split()
        s.run('run', '--no-wait', 'k', '--', 'true', wanted=75)
        s.run('unlock', key, nonce, token)
        os.close(read_end)
        os.close(write_end)


@case
@lasting(TTL_MS)
def an_abandoned_lock_expires_with_its_lease(ttl_ms):
    with store() as s:
        begun = time.monotonic()
        s.lock('k', '--ttl', f'{ttl_ms}ms')
        out = s.run('wait', 'k').out
        check(time.monotonic() - begun >= ttl_ms / 1000, 'too early')
        if out == 'k free\n':
            raise TooSlow  # it ended before the wait began
        equal(out, 'k expired\n')


@case
def unlock_of_a_foreign_lock_exits_with_77_and_changes_nothing():
    with store() as s:
        nonce, token = s.lock('k')
        other = '0' * 32
        ended = s.run('unlock', '--json', 'k', other, token, wanted=77)
        equal(error_of(ended)['name'], 'HF_ENOTOWNER')
        s.run('unlock', 'k', nonce, str(int(token) + 1), wanted=77)
        equal(s.show('k')['token'], token)
        s.run('unlock', '-q', 'k', other, token)
        equal(s.show('k')['token'], token)
        s.run('unlock', 'k', nonce, token)
        s.run('unlock', 'k', nonce, token, wanted=77)
        s.run('unlock', '--quiet', 'k', nonce, token)


@case
def unlock_renew_and_update_print_json():
    with store() as s:
        nonce, token = s.lock('k')
        (reply,) = s.run('renew', '--json', '--ttl=1h', 'k', nonce,
                         token).json()
        check(3000000 < reply.pop('left_ms') <= 3600000)
        equal(reply, {'key': 'k', 'token': token, 'renewed': True,
                      'ttl_ms': 3600000})
        (reply,) = s.run('update', '--json', 'k', nonce, token, 'v').json()
        equal(reply, {'key': 'k', 'token': token, 'updated': True})
        (reply,) = s.run('unlock', '--json', 'k', nonce, token).json()
        equal(reply, {'key': 'k', 'token': token, 'unlocked': True})


@case
def values_are_quoted_only_on_a_terminal():
    with store() as s:
        value = "it's 80 %\n\tdone\x1b[m"
        s.lock('k', '--value', value)
        equal(s.run('show', 'k').out.partition('\nvalue    ')[2], value + '\n')
        ours, its = pty.openpty()
        subprocess.run([HOLDFAST, 'show', 'k'], env=s.env, stdout=its, check=True)
        shown = os.read(ours, 4096).decode()
        os.close(ours)
        os.close(its)
        check("value    $'it\\'s\\x2080" in shown, shown)


@case
def ls_marks_broken_locks():
    with store() as s:
        s.lock('wproxy')
        _, token = s.lock('broken/k')
        check('broken' not in s.run('ls', 'wproxy').out)
        s.run('force', '--token', token, 'broken/k')
        rows = {row.split()[0]: row.split()[3]
                for row in s.run('ls').out.splitlines()[1:]}
        check(rows['broken/k'].endswith(',broken'), rows)
        check('broken' not in rows['wproxy'], rows)


@case
def unlock_reads_the_nonce_from_the_environment():
    with store() as s:
        nonce, token = s.lock('k')
        run('unlock', 'k', '-', token, env=dict(s.env, HOLDFAST_NONCE=nonce))
        equal(s.show('k')['held'], False)


@case
def renew_extends_and_never_shortens():
    with store() as s:
        nonce, token = s.lock('k')
        s.run('renew', '--ttl', '1h', 'k', nonce, token)
        check(s.show('k')['left_ms'] > 3000000)
        (reply,) = s.run('renew', '--json', '--ttl', '1s', 'k', nonce,
                         token).json()
        check(3000000 < reply['left_ms'] <= 3600000, reply)
        equal(reply['ttl_ms'], 1000)
        check(s.show('k')['left_ms'] > 3000000)
        s.run('unlock', 'k', nonce, token)
        s.run('renew', '--ttl', '1s', 'k', nonce, token, wanted=77)
        equal(s.show('k')['held'], False)


@case
def update_replaces_only_the_expected_value():
    with store() as s:
        nonce, token = s.lock('k', '--value', 'blue')
        equal(s.show('k')['value'], 'blue')
        ended = s.run('update', '--json', '--expect', 'red', 'k', nonce, token,
                      'x', wanted=65)
        equal(error_of(ended)['name'], 'HF_EMISMATCH')
        s.run('update', '--expect', 'blue', 'k', nonce, token, 'grün\n')
        equal(s.show('k')['value'], 'grün\n')
        s.run('update', 'k', nonce, token, '')
        equal(s.show('k')['value'], '')
        s.run('update', '--expect', '', 'k', nonce, token, 'again')
        equal(s.show('k')['value'], 'again')


@case
@lasting(TTL_MS)
def hold_renews_the_lock_until_stdin_closes(ttl_ms):
    with store() as s:
        held = s.start('lock', '--hold', '--ttl', f'{ttl_ms}ms', 'k',
                       stdin=subprocess.PIPE)
        key, _, token = held.line().split()
        equal(key, 'k')
        held.process.stdin.write(b'some words\n')
        held.process.stdin.flush()
        time.sleep(ttl_ms / 1000 * 1.5)
        info = s.show('k')
        ended = held.end(None)  # closes stdin
        if ended.status == 79:
            raise TooSlow  # to renew
        equal((ended.status, info['token']), (0, token))
        equal(s.show('k')['held'], False)


@case
def hold_releases_the_lock_on_a_signal():
    with store() as s:
        held = s.start('lock', '--hold', 'k', stdin=subprocess.PIPE)
        held.line()
        held.signal(signal.SIGTERM)
        equal(held.process.wait(), -signal.SIGTERM)
        equal(s.show('k')['held'], False)


@case
def hold_exits_with_79_when_the_lock_is_lost():
    with store() as s:
        held = s.start('lock', '--hold', '--ttl', '10s', 'k',
                       stdin=subprocess.PIPE)
        token = held.line().split()[2]
        s.run('force', '--now', '--token', token, 'k')
        equal(held.process.wait(), 79)
        held = s.start('lock', '--hold', '--ttl', LONG, 'k',
                       stdin=subprocess.PIPE)
        token = held.line().split()[2]
        s.run('force', '--now', '--token', token, 'k')
        held.end(79)  # closes stdin: `lock` detects the loss when it releases


@case
def a_lock_that_cannot_be_printed_is_released():
    with store() as s, open('/dev/full', 'wb') as full:
        held = s.start('lock', 'k', stdout=full)
        equal(held.end(74).err.count('\n'), 1)
        equal(s.show('k')['held'], False)
        read_end, write_end = os.pipe()
        os.close(read_end)
        held = s.start('lock', 'k', stdout=write_end)
        os.close(write_end)
        held.end(74)
        equal(s.show('k')['held'], False)
        s.start('lock', 'k', stdout=None, preexec_fn=lambda:
                os.close(1)).end(74)
        equal(s.show('k')['held'], False)


# ---- Waiting ---------------------------------------------------------------

@case
def a_busy_key_exits_with_75_or_the_requested_status():
    with store() as s:
        s.lock('k', '--ttl', LONG, '--note', 'why not')
        ran = s.file('ran')
        for verb, rest in (('lock', []), ('run', ['--', 'touch', ran])):
            ended = s.run(verb, '-n', 'k', *rest, wanted=75)
            check('held by' in ended.err and 'why not' in ended.err, ended)
            s.run(verb, '--no-wait', '-E', '0', 'k', *rest)
            s.run(verb, '-w', '0.05', '-E', '42', 'k', *rest, wanted=42)
            s.run(verb, '--wait', '50ms', 'k', *rest, wanted=75)
            s.run(verb, '-w', '0', 'k', *rest, wanted=75)
            ended = s.run(verb, '-nq', 'k', *rest, wanted=75)
            equal((ended.out, ended.err), ('', ''))
        equal(error_of(s.run('lock', '--json', '-n', 'k', wanted=75))['name'],
              'HF_EBUSY')
        ended = s.run('run', '--json', '-w', '0.05', 'k', '--', 'true',
                      wanted=75)
        equal(error_of(ended, 'err')['name'], 'HF_ETIMEDOUT')
        equal(s.show('k')['waiters'], 0)
        check(not os.path.exists(ran), 'the command ran without the lock')


@case
def a_wait_does_not_time_out_early():
    with store() as s:
        s.lock('k', '--ttl', LONG)
        begun = time.monotonic()
        s.run('run', '-w', '0.5', 'k', '--', 'true', wanted=75)
        check(time.monotonic() - begun >= 0.5, 'too early')


@case
def waiters_are_served_in_order():
    with store() as s:
        nonce, token = s.lock('k', '--ttl', LONG)
        log = s.file('log')
        waiting = []
        for i in range(5):
            waiting.append(s.start('run', 'k', '--', 'sh', '-c',
                                   f'echo {i} >>{log}'))
            until(s.has_waiters('k', i + 1), 'a waiter')
        s.run('unlock', 'k', nonce, token)
        for one in waiting:
            one.end(0)
        equal(read(log).split(), ['0', '1', '2', '3', '4'])


@case
def commands_run_one_at_a_time():
    with store() as s:
        count = s.file('count')
        with open(count, 'w', encoding='ascii') as file:
            file.write('0')
        add = f'n=$(cat {count}); sleep 0.01; echo $((n + 1)) >{count}'
        for one in [s.start('run', 'k', '--', 'sh', '-c', add)
                    for _ in range(16)]:
            one.end(0)
        equal(read(count).strip(), '16')


@case
def a_wait_ended_by_a_signal_leaves_no_waiter():
    with store() as s:
        s.lock('k', '--ttl', LONG)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
                       signal.SIGUSR1):
            waiting = s.start('run', 'k', '--', 'true')
            until(s.has_waiters('k'), 'a waiter')
            waiting.signal(number)
            waiting.end(-number)
            equal(s.show('k')['waiters'], 0)


@case
def a_signal_that_is_ignored_does_not_end_a_wait():
    with store() as s:
        nonce, token = s.lock('k', '--ttl', LONG)
        waiting = s.start('run', 'k', '--', 'true', preexec_fn=lambda:
                          signal.signal(signal.SIGHUP, signal.SIG_IGN))
        until(s.has_waiters('k'), 'a waiter')
        waiting.signal(signal.SIGHUP)
        time.sleep(0.2)
        equal(s.show('k')['waiters'], 1)
        s.run('unlock', 'k', nonce, token)
        waiting.end(0)


@case
@lasting(300)
def wait_reports_how_a_lock_ended(begins_ms):
    with store() as s:
        equal(s.run('wait', 'k').out, 'k free\n')
        nonce, token = s.lock('k')
        s.run('wait', '-w', '0.05', 'k', wanted=75)
        waiting = s.start('wait', '--json', 'k')
        time.sleep(begins_ms / 1000)
        s.run('unlock', 'k', nonce, token)
        (reply,) = waiting.end(0).json()
        if reply['freed'] == 'free':
            raise TooSlow  # the wait began after that
        equal(reply, {'key': 'k', 'held': False, 'freed': 'released'})
        waiting = s.start('wait', '--held', '--json', 'k')
        time.sleep(0.3)
        nonce, token = s.lock('k')
        (reply,) = waiting.end(0).json()
        equal((reply['key'], reply['held'], reply['token']),
              ('k', True, token))
        check('is held by' in s.run('wait', '--held', 'k').out)


# ---- show, ls, watch -------------------------------------------------------

@case
def show_prints_holder_age_lease_and_waiters():
    with store() as s:
        held = s.start('run', '--note', 'nightly\nreport', '--value', 'a b',
                       'k', '--', 'sleep', '600')
        until(lambda: s.show('k')['held'], 'the lock')
        waiting = s.start('run', 'k', '--', 'true')
        until(s.has_waiters('k'), 'a waiter')
        info = s.show('k')
        equal((info['note'], info['value'], info['forced']),
              ('nightly\nreport', 'a b', False))
        check(info['owner'].startswith(f'sleep[{held.pid}]@'), info)
        check(info['held_ms'] >= 0 and 0 < info['left_ms'] <= 11000, info)
        text = s.run('show', 'k').out
        for words in ('state    held', f'token    {info["token"]}',
                      f'owner    {info["owner"]}', 'waiters  1', 'since  ',
                      'left  ', 'note     nightly\\nreport',
                      "value    a b"):
            check(words in text, words, text)
        held.signal(signal.SIGTERM)
        waiting.end(0)
        equal(s.run('show', 'k').out, 'key      k\nstate    free\n')


@case
def ls_quotes_every_key_unambiguously():
    with store() as s:
        keys = [b'a', b'a b', b'a\nb', b'a\xff', 'ä'.encode(), b'b', b'--json',
                b"$'x'"]
        for key in keys:
            run('lock', '--ttl', LONG, '--note', 'one note', '--', key,
                env=s.env)
        listed = s.run('ls', '--json').json()
        equal([os.fsencode(info['key']) for info in listed], sorted(keys))
        lines = s.run('ls').out.splitlines()
        equal(lines[0].split(), ['KEY', 'TOKEN', 'HELD', 'LEFT', 'WAITERS',
                                 'OWNER', 'NOTE'])
        equal(len(lines), 1 + len(keys))
        words = s.run('ls', '--keys').out.splitlines()
        equal([line.split()[0] for line in lines[1:]], words)
        for word, key in zip(words, sorted(keys)):
            done = subprocess.run([b'bash', b'-c', b'printf %s ' + os.fsencode(
                word)], stdout=subprocess.PIPE, check=True)
            equal(done.stdout, key)
        equal(s.run('ls', '--keys', 'a').out.split('\n')[:-1],
              ['a', "$'a\\nb'", "$'a\\x20b'", "$'a\\xff'"])
        equal(s.run('ls', 'none').out, '')


probes = itertools.count()


def start_watch(s, *args):
    """Start a watch, and lock keys "k-probe-N" until it reports one."""
    watching = s.start('watch', *args)
    while not select.select([watching.process.stdout], [], [], 0.2)[0]:
        s.lock(f'k-probe-{next(probes)}')
    return watching


def next_event(watching):
    """The next line of a watch that is not about a probe key."""
    while '-probe-' in (line := watching.line()):
        continue
    return line


@case
def nonces_are_never_shown():
    with store() as s:
        watching = start_watch(s, '--json', '--kinds', 'granted,renewed,forced,'
                           'released')
        nonce, token = s.lock('k')
        s.run('renew', 'k', nonce, token)
        shown = ''
        for args in (['ls'], ['ls', '--json'], ['show', 'k'],
                     ['show', '--json', 'k'], ['wait', '--held', 'k'],
                     ['wait', '-n', 'k'], ['run', '-nv', 'k', '--', 'true'],
                     ['unlock', '-v', 'k', 'f' * 32, token],
                     ['renew', '-v', 'k', nonce, token],
                     ['force', '-v', '--token', token, 'k'],
                     ['unlock', '-v', 'k', nonce, token]):
            ended = s.run(*args, wanted=None)
            shown += ended.out + ended.err
        line = ''
        while 'released' not in line:
            line = next_event(watching)
            shown += line
        check(nonce not in shown.lower(), shown)


@case
def watch_prints_events_in_order():
    with store() as s:
        text = start_watch(s, 'k', '--kinds', 'granted,released')
        watching = start_watch(s, 'k', '--json')
        nonce, token = s.lock('k1')
        s.lock('other')
        s.run('renew', 'k1', nonce, token)
        s.run('update', 'k1', nonce, token, 'v')
        s.run('unlock', 'k1', nonce, token)
        events = [json.loads(next_event(watching)) for _ in range(4)]
        equal([event['event'] for event in events],
              ['granted', 'renewed', 'updated', 'released'])
        for event in events:
            equal(list(event),
                  ['index', 'event', 'key', 'token', 'owner', 'freed'])
            equal((event['key'], event['token']), ('k1', token))
        equal([event['freed'] for event in events], [False, False, False, True])
        equal(next_event(text).split()[1:4], ['granted', 'k1', token])
        equal(next_event(text).split()[1:4], ['released', 'k1', token])
        again = s.run('watch', '--json', '--count', '2', '--from',
                      events[0]['index']).json()
        check(int(again[0]['index']) >= int(events[0]['index']), again)


# ---- force, and lost locks -------------------------------------------------

@case
def force_breaks_only_the_lock_with_the_given_token():
    with store() as s:
        s.run('force', '--token', '1', 'k', wanted=77)
        nonce, token = s.lock('k', '--ttl', LONG)
        s.run('force', 'k', wanted=64)
        ended = s.run('force', '--json', '--token', str(int(token) + 1), 'k',
                      wanted=77)
        equal(error_of(ended)['name'], 'HF_ENOTOWNER')
        equal(s.show('k')['forced'], False)
        (reply,) = s.run('force', '--json', '--token', token, 'k').json()
        check(300000 < reply.pop('left_ms') <= 700000)
        equal(reply, {'key': 'k', 'token': token, 'forced': True,
                      'now': False})
        equal(s.show('k')['forced'], True)
        check('broken' in s.run('show', 'k').out)
        s.run('renew', 'k', nonce, token, wanted=77)
        ended = s.run('force', '--now', '--token', token, 'k')
        check('only a resource that checks tokens' in ended.err, ended)
        equal(s.show('k')['held'], False)


def force(s, key, *options):
    """Break a lock that a `run` renews, unless it is lost already."""
    token = s.show(key)['token']
    if s.run('force', *options, '--token', token, key, wanted=None).status:
        raise TooSlow


@case
@lasting(TTL_MS)
def a_broken_lock_stops_the_command_before_the_next_grant(ttl_ms):
    with store() as s:
        log = s.file('log')
        held = s.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                       f'trap "echo term >>{log}; exit" TERM; echo ready; '
                       f'while :; do sleep 0.02; done')
        equal(held.line(), 'ready')
        next_one = s.start('run', 'k', '--', 'sh', '-c', f'echo next >>{log}')
        until(s.has_waiters('k'), 'a waiter')
        force(s, 'k')
        ended = held.end(79)
        check('lost' in ended.err and 'operator' in ended.err, ended)
        next_one.end(0)
        if read(log).split() != ['term', 'next']:
            raise TooSlow  # to notice the loss within a quarter of the ttl


@case
@lasting(TTL_MS)
def a_command_that_ignores_sigterm_is_killed_with_its_group(ttl_ms):
    with store() as s:
        log = s.file('log')
        inner = f'trap "" TERM; while :; do echo t >>{log}; sleep 0.01; done'
        held = s.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                       f'trap "" TERM; sh -c \'{inner}\' & echo $! $$; wait; '
                       'wait; sleep 600')
        pids = [int(pid) for pid in held.line().split()]
        next_one = s.start('run', 'k', '--', 'sh', '-c',
                           f'echo next >>{log}; sleep 0.3')
        until(s.has_waiters('k'), 'a waiter')
        force(s, 'k')
        ended = held.end(79)
        check('killed' in ended.err, ended)
        next_one.end(0)
        check(not any(alive(pid) for pid in pids))
        if read(log).split()[-1] != 'next':
            raise TooSlow  # to kill the command before the lease ended


@case
@lasting(TTL_MS)
def a_lost_lock_ends_the_group_even_if_its_leader_ends_first(ttl_ms):
    with store() as s:
        log = s.file('log')
        inner = f'trap "" TERM; while :; do echo t >>{log}; sleep 0.01; done'
        held = s.start('run', '--ttl', f'{ttl_ms}ms', 'k', '--', 'sh', '-c',
                       f"sh -c '{inner}' & echo $!; exec sleep 600")
        pid = int(held.line())
        force(s, 'k')
        held.end(79)
        until(lambda: not alive(pid), 'the end of the group')


@case
def force_now_stops_the_command_before_its_next_renewal():
    with store() as s:
        held = s.start('run', '--ttl', '24h', 'k', '--', 'sleep', '600')
        until(lambda: s.show('k')['held'], 'the lock')
        force(s, 'k', '--now')
        held.end(79)


@case
def a_loss_noticed_at_release_exits_with_79():
    with store() as s:
        held = s.start('run', '--ttl', LONG, 'k', '--', 'sh', '-c',
                       'echo ready; read line', stdin=subprocess.PIPE)
        equal(held.line(), 'ready')
        s.run('force', '--now', '--token', s.show('k')['token'], 'k')
        ended = held.end(79)
        check('lost' in ended.err, ended)


@case
def a_run_stopped_beyond_its_lease_kills_its_command_when_continued():
    with store() as s:
        held = s.start('run', '--ttl', TTL, 'k', '--', 'sleep', '600')
        until(lambda: s.show('k')['held'], 'the lock')
        first = int(s.show('k')['token'])
        held.signal(signal.SIGSTOP)
        ended = s.run('run', 'k', '--', 'printenv', 'HOLDFAST_TOKEN')
        check(int(ended.out) > first, ended)
        held.signal(signal.SIGCONT)
        held.end(79)


@case
def a_killed_run_kills_its_command_and_frees_the_lock():
    with store() as s:
        held = s.start('run', '--ttl', TTL, 'k', '--', 'sh', '-c',
                       'echo $$; exec sleep 600')
        pid = int(held.line())
        held.signal(signal.SIGKILL)
        held.end(-signal.SIGKILL)
        until(lambda: not alive(pid), 'the end of the command')
        s.run('run', '-w', '60', 'k', '--', 'true')


@case
def tokens_increase():
    with store() as s:
        tokens = [int(s.run('run', 'k', '--', 'printenv',
                            'HOLDFAST_TOKEN').out) for _ in range(5)]
        equal(tokens, sorted(set(tokens)))


@case
def a_command_can_renew_and_update_its_lock():
    with store() as s:
        s.run('run', 'k', '--', 'sh', '-c',
              '"$0" renew --ttl 1m "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN" && '
              '"$0" update "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN" half && '
              '[ "$("$0" show --json k | grep -c half)" = 1 ]',
              os.path.abspath(os.sys.argv[1]))


NESTED = 'it would wait for itself'


@case
def a_nested_run_of_the_same_key_is_refused_at_once():
    with store() as s:
        for args in (['run', 'k', '--', 'echo', 'ran'], ['lock', 'k'],
                     ['run', '-w', '1h', 'k', '--', 'echo', 'ran']):
            ended = s.run('run', 'k', '--', HOLDFAST, *args, wanted=75)
            check(NESTED in ended.err and not ended.out, ended)
        # At any depth, and with another URL of the same store.
        ended = s.run('run', 'a', '--', HOLDFAST, 'run', 'b', '--', HOLDFAST,
                      'run', '-E', '9', '--url', s.url + '/.', 'a', '--',
                      'true', wanted=9)
        check(NESTED in ended.err, ended)
        ended = s.run('run', 'k', '--', HOLDFAST, 'run', '-qE0', 'k', '--',
                      'echo', 'ran')
        equal((ended.out, ended.err), ('', ''))


@case
def a_nested_run_gets_a_lock_that_is_free():
    with store() as s:
        equal(s.run('run', 'a', '--', HOLDFAST, 'run', 'b', '--', 'echo',
                    'ran').out, 'ran\n')
        ended = s.run('run', 'k', '--', 'sh', '-c',
                      '"$0" unlock k - "$HOLDFAST_TOKEN"; '
                      '"$0" run k -- echo ran', HOLDFAST, wanted=79)
        equal(ended.out, 'ran\n')
        # The same key in another store is another lock.
        url = 'file:' + s.file('other')
        ended = s.run('run', 'k', '--', HOLDFAST, 'run', '--url', url, 'k',
                      '--', 'echo', 'ran')
        equal(ended.out, 'ran\n')


@case
def run_exits_with_79_if_the_command_releases_its_lock():
    with store() as s:
        # Deliberate, but the rest of the command is not protected.
        s.run('run', 'k', '--', 'sh', '-c',
              '"$0" unlock "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN"',
              os.path.abspath(os.sys.argv[1]), wanted=79)


@case
def a_relative_url_names_the_same_store_in_any_directory():
    renew = ('cd / && "$0" renew --ttl 60s "$HOLDFAST_KEY" - "$HOLDFAST_TOKEN" '
             '&& echo "$HOLDFAST_URL"')
    with store() as s:
        env = environment(HOLDFAST_URL='file:/nonexistent/locks')
        here = s.file('a %3f dir\N{SNOWMAN}')
        os.mkdir(here)
        for url in (s.url, 'file:locks', 'file:./locks?mode=0700'):
            ended = Running('run', '--url', url, 'k', '--', 'sh', '-c', renew,
                            HOLDFAST, env=env, cwd=here).end(0)
            check(ended.out.startswith('file:/'), ended)


if __name__ == '__main__':
    main()
