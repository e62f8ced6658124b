#!/usr/bin/env python3
"""The command line: options, numbers, durations, keys; errors and JSON."""
import json
import os
import subprocess

from cases import (HOLDFAST, alone, case, check, environment, equal, main,
                   run)

VERBS = ['run', 'lock', 'unlock', 'renew', 'update', 'show', 'ls', 'wait',
         'watch', 'force', 'doctor', 'cluster', 'status', 'torture', 'help',
         'version']
NONCE = '00112233445566778899aabbccddeeff'

GOOD_DURATIONS = {
    '250ms': 250, '15s': 15000, '2m': 120000, '1h': 3600000, '1': 1000,
    '1.5': 1500, '0.25': 250, '0.001': 1, '1.5s': 1500, '0.5m': 30000,
    '007': 7000, '1.500000000000': 1500, '168h': 604800000,
}
BAD_DURATIONS = [
    '', ' ', ' 1', '1 ', '1 s', '+1', '-1', '--1', '1e3', '0x10', '1.', '.5',
    '.', '1.2.3', '1,5', 's', 'ms', '1sec', '1S', '1 m', '1µs', '1d', 'nan',
    'inf', 'forever', '1\n', '\t1', '１', '0.0001', '1.0000001', '0.5ms',
    '99999999999999999999', '18446744073709551616', '18446744073709551615',
    '18446744073709551615h', '5124095576030432h', '1' * 400, '1s1',
]
BAD_NUMBERS = ['', ' 1', '1 ', '+1', '-1', '1.0', '0x1', '1e1', 'one', '1\n',
               '18446744073709551616', '9' * 400]


def ran(*args, wanted=0, **more):
    return run(*args, wanted=wanted, env=dict(alone(), **more))


def error_of(ended, stream='out'):
    (reply,) = map(json.loads, getattr(ended, stream).splitlines())
    equal(list(reply), ['error'])
    equal(list(reply['error']), ['code', 'name', 'message'])
    return reply['error']


@case
def valid_durations_are_parsed_exactly():
    for text, ms in GOOD_DURATIONS.items():
        (held,) = ran('lock', '--json', '--ttl', text, 'k').json()
        equal(held['ttl_ms'], ms, text)


@case
def invalid_durations_are_refused_with_the_option_name():
    for text in BAD_DURATIONS:
        for option, verb in (('--ttl', 'lock'), ('--wait', 'lock'),
                             ('--wait', 'wait'), ('--ttl', 'run')):
            args = [verb, f'{option}={text}', 'k']
            ended = ran(*args, *(['--', 'true'] if verb == 'run' else []),
                        wanted=64)
            check(option in ended.err.splitlines()[0], ended)
        ran('run', '-w', text, 'k', '--', 'true', wanted=64)


@case
def durations_have_limits():
    for args in (('--ttl', '0'), ('--ttl', '0ms'), ('--ttl', '169h'),
                 ('--ttl', '604800001ms'), ('--wait', '4294967295ms')):
        ended = ran('lock', *args, 'k', wanted=64)
        check(args[0] in ended.err, ended)
    ran('lock', '--wait', '4294967294ms', 'k')
    ran('lock', '--wait', '0', 'k')


@case
def invalid_numbers_are_refused_with_the_option_name():
    for text in BAD_NUMBERS:
        for option, args in (('--token', ['force', 'k']),
                             ('--from', ['watch']), ('--count', ['watch']),
                             ('--conflict-exit-code', ['lock', 'k'])):
            ended = ran(*args, f'{option}={text}', wanted=64)
            check(option in ended.err.splitlines()[0], ended)
        ended = ran('unlock', '--', 'k', NONCE, text, wanted=64)
        check('TOKEN' in ended.err, ended)
    ran('lock', '-E', '256', 'k', wanted=64)
    ran('force', '--token', '18446744073709551615', 'k', wanted=77)


@case
def an_invalid_nonce_is_refused_and_not_shown():
    for text in ('', NONCE[1:], NONCE + '0', NONCE[:-1] + 'g', ' ' + NONCE[1:],
                 'x' * 32):
        ended = ran('unlock', 'k', text, '1', wanted=64)
        check('NONCE' in ended.err, ended)
        check(not text or text not in ended.err, ended)
    ran('unlock', 'k', NONCE.upper(), '1', wanted=77)


@case
def a_dash_reads_the_nonce_from_the_environment():
    for verb, more in (('unlock', []), ('renew', []), ('update', ['v'])):
        ended = ran(verb, 'k', '-', '1', *more, wanted=64)
        check('HOLDFAST_NONCE' in ended.err, ended)
        ran(verb, 'k', '-', '1', *more, wanted=77, HOLDFAST_NONCE=NONCE)


@case
def unknown_options_and_verbs_are_refused():
    for args in (['run', '--tt', '1', 'k', '--', 'true'], ['ls', '--ttl', '1'],
                 ['show', '-x', 'k'], ['nope'], [], ['show'], ['show', 'a', 'b'],
                 ['ls', 'a', 'b'], ['unlock', 'k'], ['unlock', 'k', NONCE],
                 ['update', 'k', NONCE, '1'], ['force', 'k'], ['run', 'k'],
                 ['run', 'k', '--'], ['run', '--', 'k'], ['run'], ['version', 'x'],
                 ['help', 'nope'], ['show', '--json=1', 'k'], ['lock', '--ttl'],
                 ['lock', 'k', '-w'], ['watch', '--kinds', 'granted,lost'],
                 ['watch', '--kinds', ''], ['watch', '--kinds', 'granted,']):
        ended = ran(*args, wanted=64)
        equal(ended.out, '')
        check(ended.err.startswith('holdfast: '), ended)


@case
def the_options_of_flock_work_or_have_a_hint():
    equal(ran('run', '-x', 'k', '--', 'echo', 'ran').out, 'ran\n')
    equal(ran('run', '--exclusive', '-n', '-o', 'k', 'echo', 'ran').out,
          'ran\n')
    for option in ['-c', 'exit 3; '], ['--command', 'exit 3'], ['-cexit 3']:
        ran('run', *option, 'k', wanted=3)
        ran('run', 'k', *option, wanted=3)
        ran('run', '-n', 'k', *option, wanted=3, SHELL='')
    equal(ran('run', 'k', '-c', 'echo $0', SHELL='/bin/bash').out,
          '/bin/bash\n')
    ended = ran('run', 'k', '-c', 'true', '--', 'true', wanted=64)
    check('contradict' in ended.err, ended)
    for option, word in (('-s', 'no shared locks'), ('-sn', 'no shared locks'),
                         ('--shared', 'no shared locks'), ('-u', 'unlock'),
                         ('--unlock', 'unlock'), ('-F', 'stays'),
                         ('--no-fork', 'stays'), ('--nonblock', '--no-wait'),
                         ('--nb', '--no-wait'), ('--timeout=3', '--wait'),
                         ('-e', 'exclusive')):
        for verb in ['run', option, 'k', 'true'], ['lock', option, 'k']:
            ended = ran(*verb, wanted=64)
            check(word in ended.err.splitlines()[0], ended)
    check('shared' not in ran('ls', '-s', wanted=64).err)


@case
def contradicting_options_are_refused_by_name():
    ended = ran('lock', '-n', '-w', '1', 'k', wanted=64)
    check('--wait' in ended.err and '--no-wait' in ended.err, ended)


@case
def options_work_in_every_usual_form_and_position():
    for args in (['--ttl', '2s'], ['--ttl=2s'], ['-v', '--ttl', '2']):
        for line in ([*args, '--json', 'k'], ['k', *args, '--json'],
                     ['--json', *args, '--', 'k']):
            (held,) = ran('lock', *line).json()
            equal((held['key'], held['ttl_ms']), ('k', 2000), line)
    ran('lock', '-nq', 'k')
    ran('lock', '-qw5', 'k')
    ran('lock', '-qE', '3', 'k')
    url = alone()['HOLDFAST_URL']
    (held,) = ran('--json', '--url', url, 'lock', 'k').json()
    equal(held['key'], 'k')


@case
def two_dashes_end_the_options():
    for key in ('-n', '--json', '--', '-', '--ttl'):
        (held,) = ran('lock', '--json', '--', key).json()
        equal(held['key'], key)
        ended = ran('run', '--', key, '--', 'sh', '-c',
                    'printf %s "$HOLDFAST_KEY"')
        equal(ended.out, key)


@case
def options_after_the_command_belong_to_the_command():
    equal(ran('run', 'k', '--', 'echo', '--json', '-n', '--').out,
          '--json -n --\n')
    equal(ran('run', 'k', '--ttl', '1', '--', 'echo', '1').out, '1\n')
    equal(ran('run', 'k', 'echo', '--ttl', '1').out, '--ttl 1\n')
    equal(ran('run', '-n', '--', 'k', 'echo', '-n').out, '')


@case
def the_url_option_overrides_the_environment():
    env = dict(alone(), HOLDFAST_URL='bad')
    ended = run('ls', env=env, wanted=64)
    check('url' in ended.err, ended)
    url = alone()['HOLDFAST_URL']
    run('ls', '--url', url, env=env)
    ended = run('ls', '--url', 'nope:x', env=env, wanted=64)
    check('nope' in ended.err, ended)
    ended = run('ls', '--url', url + '?require=durable', env=env, wanted=64)
    check('durable' in ended.err, ended)


@case
def stores_that_exclude_no_other_process_are_refused():
    for args in ['ls'], ['lock', 'k'], ['run', 'k', '--', 'echo', 'ran']:
        for url, word in (('memory:', 'threads'), ('memory:x', 'threads'),
                          ('', 'empty')):
            ended = run(*args, env=environment(HOLDFAST_URL=url), wanted=64)
            check(word in ended.err and not ended.out, ended)
            ended = run(*args[:1], '--url', url, *args[1:], env=alone(),
                        wanted=64)
            check(word in ended.err and not ended.out, ended)


@case
def keys_have_limits():
    ended = ran('lock', '', wanted=64)
    check('key' in ended.err, ended)
    ran('lock', 'k' * 1024)
    ran('lock', 'k' * 1025, wanted=64)
    ran('lock', '--note', 'n' * 256, 'k', wanted=64)
    ran('lock', '--value', 'v' * 65536, 'k')
    ran('lock', '--value', 'v' * 65537, 'k', wanted=64)


ODD_KEYS = [b'plain', b'a b', b'a\nb', b'\xff\xfe', b"it's", b'"', b'\\', b'$x',
            b'\x01\x7f', 'schlüssel/日本'.encode(), '\u202e\u200b'.encode(), b'#',
            b'\xc3', b'\xed\xa0\x80', b'*', b'$\'a\'', b'\\x20', b'~']


@case
def keys_of_any_bytes_are_escaped_in_json():
    for key in ODD_KEYS:
        (info,) = ran('show', '--json', '--', key).json()
        equal(os.fsencode(info['key']), key)
        if 'key_hex' in info:
            equal(bytes.fromhex(info['key_hex']), key)
        else:
            equal(info['key'].encode(), key)


@case
def keys_of_any_bytes_are_quoted_so_that_bash_reads_them_back():
    for key in ODD_KEYS:
        shown = ran('lock', '--', key).out.encode('utf-8', 'surrogateescape')
        check(shown.count(b' ') == 2 and shown.count(b'\n') == 1, shown)
        word = shown.split(b' ')[0]
        done = subprocess.run([b'bash', b'-c', b'printf %s ' + word],
                              stdout=subprocess.PIPE, check=True)
        equal(done.stdout, key)
    equal(ran('lock', 'nightly').out.split(' ')[0], 'nightly')
    shown = ran('lock', '--', '\u202ex').out
    check('\u202e' not in shown, shown)


@case
def every_verb_prints_json():
    (reply,) = ran('version', '--json').json()
    equal(list(reply), ['version', 'library'])
    (reply,) = ran('show', '--json', 'k').json()
    equal(list(reply), ['key', 'held', 'forced', 'token', 'owner', 'note',
                        'held_ms', 'left_ms', 'waiters', 'value', 'index'])
    (reply,) = ran('lock', '--json', 'k').json()
    equal(list(reply), ['key', 'nonce', 'token', 'ttl_ms', 'left_ms'])
    check(0 < reply['left_ms'] <= reply['ttl_ms'] == 10000, reply)
    (reply,) = ran('wait', '--json', 'k').json()
    equal(reply, {'key': 'k', 'held': False, 'freed': 'free'})
    (reply,) = ran('unlock', '--quiet', '--json', 'k', NONCE, '1').json()
    equal(reply, {'key': 'k', 'token': '1', 'unlocked': False})
    equal(ran('ls', '--json').json(), [])
    equal([verb['verb'] for verb in ran('help', '--json').json()], VERBS)
    for args in (['unlock', 'k', NONCE, '1'], ['renew', 'k', NONCE, '1'],
                 ['update', 'k', NONCE, '1', 'v'], ['force', '--token=1', 'k']):
        ended = ran(*args, '--json', wanted=77)
        error = error_of(ended)
        equal((error['code'], error['name']), (-8, 'HF_ENOTHELD'))
        equal(ended.err, '')


@case
def usage_errors_are_json_wherever_json_is_given():
    for args in (['ls', '--json', '--nope'], ['ls', '--nope', '--json'],
                 ['--json', 'ls', '--nope'], ['--json', 'nope'], ['--json'],
                 ['lock', '--ttl', 'x', 'k', '--json']):
        ended = ran(*args, wanted=64)
        equal(error_of(ended)['name'], 'HF_EINVAL')
        equal(ended.err, '')


@case
def run_reports_json_on_stderr_only():
    ended = ran('run', '--json', 'k', '--', 'echo', 'mine')
    equal((ended.out, ended.err), ('mine\n', ''))
    ended = ran('run', '--json', 'k', '--', '/nonexistent/x', wanted=127)
    equal(ended.out, '')
    equal(error_of(ended, 'err')['name'], 'HF_ESYSTEM')
    ended = ran('run', 'k', '--ttl=x', '--json', '--', 'true', wanted=64)
    equal(ended.out, '')
    equal(error_of(ended, 'err')['name'], 'HF_EINVAL')


@case
def a_wait_that_times_out_exits_with_75():
    ran('wait', '--held', '-w', '0.01', 'k', wanted=75)
    ran('wait', '--held', '-n', 'k', wanted=75)
    ran('wait', '--held', '-n', '-E', '9', 'k', wanted=9)
    ended = ran('wait', '--held', '-n', '-q', 'k', wanted=75)
    equal((ended.out, ended.err), ('', ''))
    (reply,) = ran('wait', '--held', '-n', '--json', 'k', wanted=75).json()
    equal(reply['error']['name'], 'HF_ETIMEDOUT')


@case
def failed_output_exits_with_74():
    with open('/dev/full', 'w', encoding='ascii') as full:
        for args in (['version'], ['lock', 'k'], ['show', '--json', 'k'],
                     ['help']):
            done = subprocess.run([HOLDFAST, *args], env=alone(), stdout=full,
                                  stderr=subprocess.PIPE, check=False)
            equal(done.returncode, 74, args)
            check(b'No space' in done.stderr, done)


@case
def verbose_reports_go_to_stderr_without_the_nonce():
    ended = ran('lock', '-v', 'k')
    nonce = ended.out.split()[1]
    check('token' in ended.err and nonce not in ended.err, ended)
    ended = ran('run', '-v', 'k', '--', 'sh', '-c',
                'printf %s "$HOLDFAST_NONCE"')
    check('status 0' in ended.err and ended.out not in ended.err, ended)


@case
def every_verb_has_help_with_examples():
    for verb in VERBS:
        shown = ran(verb, '--help').out
        equal(ran('help', verb).out, shown)
        equal(ran(verb, '-h', 'some', 'words').out, shown)
        check(shown.startswith(f'Usage: holdfast {verb} '), shown)
        check(f'holdfast {verb}' in shown.partition('Examples:')[2], shown)
        check(all(len(line) <= 80 for line in shown.splitlines()), shown)
    listed = ran('help').out
    equal(ran('--help').out, listed)
    check(all(f'\n  {verb} ' in listed for verb in VERBS), listed)


@case
def version_and_its_option_print_the_same():
    shown = ran('version').out
    check(shown.startswith('holdfast '), shown)
    equal(ran('--version').out, shown)


if __name__ == '__main__':
    main()
