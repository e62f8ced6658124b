#!/usr/bin/env python3
"""`holdfast doctor`, with stores that work and stores that do not."""
import contextlib
import os
import socket
import subprocess
import tempfile

from cases import (HOLDFAST, Skip, case, check, environment, equal, main,
                   store, run, tool, until)


def examine(*args, wanted=0, env=None):
    ended = run('doctor', '--json', *args, wanted=wanted, env=env)
    (report,) = ended.json()
    return report


def answers(path):
    """Whether a server listens; the socket exists a moment earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@contextlib.contextmanager
def redis_server(*options):
    """Start a server for this case. Yields its URL."""
    program = tool('redis-server')
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        path = os.path.join(folder, 'socket')
        server = subprocess.Popen(
            [program, '--port', '0', '--unixsocket', path, '--dir', folder,
             *options], stdout=subprocess.DEVNULL)
        try:
            until(lambda: answers(path), 'the server')
            yield 'redis+unix://' + path
        finally:
            server.kill()
            server.wait()


@case
def doctor_shows_the_store_and_its_source():
    with store() as s:
        report = examine(env=s.env)
        equal((report['url'], report['source']), (s.url, 'HOLDFAST_URL'))
        report = examine('--url', s.url)
        equal((report['url'], report['source']), (s.url, '--url'))
        report = examine(s.url, env=environment(HOLDFAST_URL='memory:other'))
        equal((report['url'], report['source']), (s.url, 'argument'))
        equal((report['reachable'], report['problems']), (True, []))
        directory = s.url.partition(':')[2]
        check(f'directory: {directory}' in report['facts'], report)


@case
def doctor_leaves_no_lock_held():
    with store() as s:
        s.run('doctor')
        equal(s.run('ls').out, '')


@case
def containers_with_one_host_name_do_not_disturb_each_other():
    """Each runs `doctor` as process 1."""
    alone = ['unshare', '--user', '--map-root-user', '--pid', '--fork']
    if subprocess.run(alone + ['true'], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        raise Skip('no namespaces')
    with store() as s:
        s.run('lock', f'holdfast-doctor/{socket.gethostname()}/1')
        ended = subprocess.run(alone + [HOLDFAST, 'doctor', s.url], check=False,
                               stdout=subprocess.PIPE)
        equal(ended.returncode, 0, ended.stdout)


@case
def two_urls_are_refused_without_showing_a_password():
    with store() as s:
        ended = run('doctor', '--url', s.url, 'redis://:hunter2@h', wanted=64)
        check('--url' in ended.err, ended)
        check('hunter2' not in ended.err, ended)


@case
def a_long_path_is_not_truncated():
    with store() as s:
        path = s.file('/'.join(['a' * 200] * 6))
        os.makedirs(os.path.dirname(path))
        report = examine('file:' + path)
        check(f'directory: {path}' in report['facts'], report)


@case
def a_store_of_one_machine_lacks_the_fleet_capability():
    with store() as s:
        report = examine(s.url)
        check('fence' in report['capabilities'], report)
        check('fleet' in report['missing'], report)
        check(any('this machine only' in note for note in report['notes']),
              report)
        ended = run('ls', '--url', s.url + '?require=fleet', wanted=64)
        check('fleet' in ended.err, ended)


@case
def a_memory_store_is_a_problem():
    report = examine('memory:x', wanted=64)
    check('no other process' in report['problems'][0], report)


@case
def a_server_that_is_down_is_a_problem():
    url = 'redis://user:hunter2@127.0.0.1:1/'
    report = examine(url, wanted=69)
    equal((report['reachable'], report['capabilities']), (False, []))
    equal(report['error']['name'], 'HF_EUNAVAIL')
    check('start it' in report['problems'][0], report)
    for ended in (run('doctor', '--json', url, wanted=69),
                  run('doctor', url, wanted=69)):
        check('hunter2' not in ended.out + ended.err, ended)


@case
def the_password_of_a_refused_url_is_hidden():
    for url in ('redis://:p/hunter2@127.0.0.1:1/',
                'redis://user:p?hunter2@127.0.0.1:1/',
                'redis://user:p@p/hunter2@127.0.0.1:1/',
                'redis:user:hunter2@127.0.0.1:1/',
                'mongodb://127.0.0.1:1/?tls=true&connectTimeoutMS=100&'
                'tlsCertificateKeyFilePassword=hunter2'):
        ended = run('doctor', url, wanted=None)
        check(ended.status in (64, 69), ended)
        check('hunter2' not in ended.out + ended.err, ended)
        check('127.0.0.1:1' in ended.out, ended)


@case
def an_unusable_directory_is_a_problem():
    with store() as s:
        with open(s.file('plain'), 'w', encoding='ascii'):
            pass
        ended = run('doctor', 'file:' + s.file('plain'), wanted=None)
        check(ended.status not in (0, 64), ended)
        check('\nproblem ' in ended.out, ended)


@case
def a_world_writable_directory_is_not_reported_as_a_server():
    with store() as s:
        os.mkdir(s.file('shared'))
        os.chmod(s.file('shared'), 0o777)
        report = examine('file:' + s.file('shared'), wanted=69)
        check('mode 0777' in report['error']['message'], report)
        check('server' not in report['problems'][0], report)


@case
def an_invalid_url_is_a_usage_error():
    report = examine('nonsense:x', wanted=64)
    equal(report['reachable'], False)
    check(report['problems'], report)


@case
def doctor_describes_a_server():
    with redis_server() as url:
        report = examine(url)
        check('fleet' in report['capabilities'], report)
        check(any(fact.startswith('server: Redis ')
                  for fact in report['facts']), report)
        check('durable' in report['missing'], report)
        check(any('appendonly' in note for note in report['notes']), report)
    with redis_server('--appendonly', 'yes', '--appendfsync', 'always') as url:
        report = examine(url)
        check('durable' in report['capabilities'], report)


@case
def refused_credentials_are_a_problem():
    with redis_server('--requirepass', 'hunter2') as url:
        report = examine(url, wanted=77)
        check('password' in report['problems'][0], report)


@case
def a_server_that_cannot_grant_locks_is_a_problem():
    with redis_server('--maxmemory', '1', '--maxmemory-policy',
                      'noeviction') as url:
        report = examine(url, wanted=69)
        equal(report['reachable'], True)
        check(report['error']['message'], report)


if __name__ == '__main__':
    main()
